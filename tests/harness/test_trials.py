"""What sequences of trials take, and how often each arm was launched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.harness.trials import _launches, costs


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
    assert _launches({"benchmark_protocol": protocol}, "base") == 750
    assert _launches({"benchmark_protocol": protocol}, "other") == 8
