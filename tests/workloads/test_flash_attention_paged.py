"""Attention over a paged cache: oracle and reference agree, and the check sees a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

SHARED_BYTES_OF_A_PROGRAM = 227 * 1024  # compute capability 9.0, CUDA programming guide
Q_LENS, K_LENS, PAGE = (3, 1, 8), (3, 9, 13), 4
MISTAKES = {
    "the workload as it is": [],
    "the page table is ignored": [("page.to(tl.int64) * PAGE + key % PAGE", "key.to(tl.int64)")],
    "all sequences use the first one's pages": [("sequence * stride_table", "0 * stride_table")],
    "tokens of a page are read in reverse": [("+ key % PAGE", "+ PAGE - 1 - key % PAGE")],
    "the walk ends at the diagonal of a square": [
        ("earliest = length - new + block * BLOCK_M", "earliest = block * BLOCK_M")
    ],
    "a query sees one key of the future": [
        ("key[None, :] <= position[:, None]", "key[None, :] <= position[:, None] + 1")
    ],
    "one block too many goes without a mask": [
        ("(earliest + 1) // BLOCK_N * BLOCK_N", "((earliest + 1) // BLOCK_N + 1) * BLOCK_N")
    ],
}


@pytest.fixture
def paged(kernel_file: Callable[[str], Any]) -> Any:
    return kernel_file("flash_attention_paged")


def cached(table: torch.Tensor, tokens: list[torch.Tensor]) -> torch.Tensor:
    """A cache that holds the tokens of each sequence on the pages that the table gives it."""
    cache = torch.full((8, PAGE, 2, 16), float("nan"), dtype=torch.float64)
    for row, own in zip(table, tokens, strict=True):
        for i, token in enumerate(own):
            cache[row[i // PAGE], i % PAGE] = token
    return cache


def test_the_oracle_is_attention_over_the_tokens_wherever_their_pages_lie(paged: Any) -> None:
    table = torch.tensor([[6, -1, -1, -1], [0, 7, 3, -1], [5, 1, 4, 2]], dtype=torch.int32)
    k, v = ([torch.randn(n, 2, 16, dtype=torch.float64) for n in K_LENS] for _ in range(2))
    q = torch.randn(sum(Q_LENS), 4, 16, dtype=torch.float64)
    arguments = (q, cached(table, k), cached(table, v), table, Q_LENS, K_LENS, 0.3)
    o, lse = paged.attention_oracle(*arguments)
    torch.testing.assert_close(o, paged.build_sdpa_per_sequence(*arguments)())
    # The single new token of the second sequence sees all nine.
    scores = torch.einsum("d,nd->n", q[3, 2], k[1][:, 1]) * 0.3
    torch.testing.assert_close(o[3, 2], scores.softmax(0) @ v[1][:, 1])
    torch.testing.assert_close(lse[2, 3], scores.logsumexp(0))


def test_the_check_accepts_the_kernel_and_no_mistake_in_it(verdicts: Callable[..., Any]) -> None:
    found = verdicts("flash_attention_paged", MISTAKES)
    assert found.pop("the workload as it is") is None
    assert not [mistake for mistake, reason in found.items() if reason is None]


def test_the_kernel_uses_the_tensor_cores_of_hopper_without_spilling(
    hopper_facts: Callable[[str], dict[str, dict[str, int]]],
) -> None:
    facts = hopper_facts("flash_attention_paged")
    assert len(facts) == 2
    for launch in facts.values():
        assert launch["wgmma"]
        assert launch["loads_128"]
        assert not launch["local_bytes"]
        assert launch["shared_bytes"] <= SHARED_BYTES_OF_A_PROGRAM
