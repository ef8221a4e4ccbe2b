"""Dropout: the facts that its check looks at hold for a right stream and for no wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

N, P = 1 << 16, 0.25
MISTAKES = {
    "the workload as it is": [],
    "a little too much is dropped": [
        ("keep = drawn >= below", "keep = drawn >= below + (1 << 27)")
    ],
    "what is kept is not scaled": [("x * (1.0 / (1.0 - p))", "x")],
    "neighbours share a number": [("tl.join(r1, r3)", "tl.join(r0, r2)")],
    "every program draws the same": [("block * (BLOCK // 4) +", "")],
    "the offset stays": [("offset + tl.cdiv(n, 4))", "offset)")],
    "the count of programs is not set back": [("        tl.store(arrived_ptr, 0)\n", "")],
}


@pytest.fixture
def dropout(kernel_file: Callable[[str], Any]) -> Any:
    return kernel_file("dropout")


@pytest.fixture
def x() -> torch.Tensor:
    return (torch.rand(N) + 0.5).half()


def test_a_right_outcome_has_the_facts_of_the_law(dropout: Any, x: torch.Tensor) -> None:
    y, keep = torch.native_dropout(x, P, True)
    facts = dropout.dropout_facts(x, keep, y, P)
    rng = torch.tensor([1234, 1235])
    law, after, arrived = dropout.dropout_law(rng, N, P)
    assert facts[0] == law[0] == 0
    assert ((facts - law).abs() <= 6 * (0.5 / N) ** 0.5).all()
    assert after.tolist() == [1234, 1235 + N // 4]
    assert arrived.tolist() == [0]


def test_one_wrong_or_missing_element_is_counted(dropout: Any, x: torch.Tensor) -> None:
    y, keep = torch.native_dropout(x, P, True)
    y[17] += 0.01
    y[N - 1] = float("nan")
    assert dropout.dropout_facts(x, keep, y, P)[0] == 2


@pytest.mark.parametrize("lag", [1, 4, 4096])
def test_a_stream_that_repeats_itself_shows_in_the_pairs(
    dropout: Any, x: torch.Tensor, lag: int
) -> None:
    keep = (torch.rand(N // lag // 2, 1, lag) >= P).expand(-1, 2, -1).flatten()
    facts = dropout.dropout_facts(x, keep, (x * keep / (1 - P)).half(), P)
    law, _, _ = dropout.dropout_law(torch.tensor([0, 0]), N, P)
    assert (facts - law).abs().max() > 6 * (0.5 / N) ** 0.5


def test_the_check_accepts_the_kernel_and_no_mistake_in_it(verdicts: Callable[..., Any]) -> None:
    found = verdicts("dropout", MISTAKES)
    assert found.pop("the workload as it is") is None
    assert not [mistake for mistake, reason in found.items() if reason is None]


def test_the_kernel_loads_128_bits_at_a_time_without_spilling(
    hopper_facts: Callable[[str], dict[str, dict[str, int]]],
) -> None:
    (launch,) = hopper_facts("dropout").values()
    assert launch["loads_128"]
    assert not launch["local_bytes"]
