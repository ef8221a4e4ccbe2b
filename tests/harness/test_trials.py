"""What sequences of trials take, and how often each arm was launched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.harness.costs import costs, launches_of, most_arms


@given(st.floats(0.0, 1.0), st.floats(0.001, 1.0))
def test_seconds_of_a_sequence_and_of_its_arms_are_told_apart(fixed: float, each: float) -> None:
    sequence_s, arm_s = costs([(count, fixed + count * each) for count in (1, 2, 5, 4)])
    assert sequence_s == pytest.approx(fixed, abs=2e-5)
    assert arm_s == pytest.approx(each, abs=1e-5)


def test_costs_are_never_negative() -> None:
    assert costs([(1, 0.5), (5, 0.1)]) == (0.3, 0.0)
    sequence_s, arm_s = costs([(1, 0.1), (5, 2.5)])
    assert sequence_s == 0.0
    assert arm_s == pytest.approx(1.3 / 3, abs=1e-5)


def test_launches_count_discarded_calls() -> None:
    protocol = {"sub_blocks": {"base": (1, 4)}, "repeat_counts": {"base": [300, 300], "other": [8]}}
    assert launches_of({"benchmark_protocol": protocol}, "base") == 750
    assert launches_of({"benchmark_protocol": protocol}, "other") == 8


@given(st.floats(0.5, 20_000), st.floats(0, 100))
def test_a_quad_of_as_many_arms_as_a_sequence_may_have_fits_into_a_burst(
    launch_us: float, flush_us: float
) -> None:
    arms = most_arms(launch_us, launch_us + flush_us)
    block_us = (5 if launch_us < 250 else 1) * (launch_us + flush_us)
    assert arms == 2 or 2 * arms * block_us <= 15_000
