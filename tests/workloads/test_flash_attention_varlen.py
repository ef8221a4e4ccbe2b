"""Attention over packed sequences: oracle and reference agree, and the check sees a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

SHARED_BYTES_OF_A_PROGRAM = 227 * 1024  # compute capability 9.0, CUDA programming guide
LENS = (5, 1, 30)
MISTAKES = {
    "the workload as it is": [],
    "all sequences read the first one's keys": [
        ("k_ptr += token * stride_k + head", "k_ptr += head")
    ],
    "a query sees one key of the future": [
        ("key[None, :] <= row[:, None]", "key[None, :] <= row[:, None] + 1")
    ],
    "query heads are dealt out to key heads in turn": [
        ("v_ptr += token * stride_k + head // GROUP", "v_ptr += token * stride_k + head % GROUP")
    ],
    "the log-sum-exp is to the base of two": [("tl.log2(total)) * LN_2", "tl.log2(total))")],
    "the last row of a sequence is not written": [
        ("inside = row[:, None] < length", "inside = row[:, None] < length - 1")
    ],
    "the sum is not scaled down with the maximum": [
        ("total = total * shrink + ", "total = total + ")
    ],
}


@pytest.fixture
def attention(kernel_file: Callable[[str], Any]) -> Any:
    return kernel_file("flash_attention_varlen")


@pytest.fixture
def tensors() -> tuple[torch.Tensor, ...]:
    q = torch.randn(sum(LENS), 4, 16, dtype=torch.float64)
    k, v = torch.randn(2, sum(LENS), 2, 16, dtype=torch.float64)
    return q, k, v


def test_the_oracle_agrees_with_the_attention_of_torch_on_each_sequence(
    attention: Any, tensors: tuple[torch.Tensor, ...]
) -> None:
    o, _ = attention.attention_oracle(*tensors, LENS, 0.3)
    torch.testing.assert_close(o, attention.build_sdpa_per_sequence(*tensors, LENS, 0.3)())


def test_the_log_sum_exp_normalises_the_scores_of_a_row(
    attention: Any, tensors: tuple[torch.Tensor, ...]
) -> None:
    q, k, _ = tensors
    _, lse = attention.attention_oracle(*tensors, LENS, 0.3)
    last = slice(LENS[0] + LENS[1], None)
    scores = q[-1, 3] @ k[last, 1].T * 0.3
    torch.testing.assert_close((scores - lse[3, -1]).exp().sum(), torch.ones_like(lse[3, -1]))


def test_the_check_accepts_the_kernel_and_no_mistake_in_it(verdicts: Callable[..., Any]) -> None:
    found = verdicts("flash_attention_varlen", MISTAKES)
    assert found.pop("the workload as it is") is None
    assert not [mistake for mistake, reason in found.items() if reason is None]


def test_the_kernel_uses_the_tensor_cores_of_hopper_without_spilling(
    hopper_facts: Callable[[str], dict[str, dict[str, int]]],
) -> None:
    facts = hopper_facts("flash_attention_varlen")
    assert len(facts) == 2
    for launch in facts.values():
        assert launch["wgmma"]
        assert launch["loads_128"]
        assert not launch["local_bytes"]
        assert launch["shared_bytes"] <= SHARED_BYTES_OF_A_PROGRAM
