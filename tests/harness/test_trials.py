"""What sequences of trials take, and how often each arm was launched."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.harness.costs import costs, launches_of, most_arms
from tirbench.harness.trials import Trial, TrialCase
from tirbench.model import Plan


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


# --- Calibrating a row of a GPU, with times made by hand ----------------------------------------------


class Calibrating:
    """A case of one row whose sequences are answered by a formula: 5 ns a step, quiet 0.6 % above base."""

    def __init__(self, launch_us: float, *, delayed: bool = True) -> None:
        self.sequences: list[list[str]] = []
        self.launch_us = launch_us
        case = TrialCase.__new__(TrialCase)
        case.rows = {"k": Trial(sides=("base", "planted", "quiet"), calibrate=True)}
        case.plan = Plan(device="cuda")
        case._unplanted, case._delays = {}, delayed
        case._delay = cast("Any", SimpleNamespace(launching=lambda _, steps: steps))
        case._sequence = cast("Any", self.sequence)  # type: ignore[method-assign]
        side = SimpleNamespace(launches={"k": None})
        sides = cast("Any", dict.fromkeys(("base", "planted", "quiet"), side))
        self.said = case._strength(sides, "k", launch_us, launch_us + 60)

    def sequence(
        self, _: object, __: str, launches: Mapping[str, int | None], side_of: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self.sequences.append(list(launches))
        assert {side_of[arm] for arm in launches} <= {"base", "quiet", "planted"}
        steps = {arm: launches[arm] or 0 for arm in launches}
        logs = {
            arm: [(0.006 if arm != "base" else 0.0) + 0.005 * steps[arm] / self.launch_us] * 8
            for arm in launches
        }
        return {}, {"logs": logs}


def test_a_row_is_calibrated_in_one_sequence_of_base_quiet_and_two_delays() -> None:
    found = Calibrating(50.0)
    assert found.sequences == [["base", "quiet", "199", "398"]]
    assert found.said["strength"] == 100
    assert found.said["offset"] == pytest.approx(0.006)
    assert found.said["unplanted"] == ""
    assert [values[0] for values in found.said["seen"].values()] == pytest.approx([0.0199, 0.0398])


def test_a_long_launch_is_calibrated_in_pairs_that_fit_into_a_burst() -> None:
    found = Calibrating(4000.0)
    assert [names[0] for names in found.sequences] == ["quiet", "quiet"]
    assert all(len(names) == 2 for names in found.sequences)
    assert found.said["strength"] == pytest.approx(7960, rel=0.01)
    assert found.said["offset"] is None


def test_a_row_whose_kernels_ask_for_no_delay_says_so_and_is_not_measured() -> None:
    found = Calibrating(50.0, delayed=False)
    assert found.sequences == []
    assert found.said == {"strength": None, "unplanted": "no kernel of it asks for its delay"}
