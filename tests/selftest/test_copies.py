"""What stands twice, because a worker's half imports nothing of the other, is the same."""

from __future__ import annotations

from tirbench.harness import trials
from tirbench.selftest import learnt, readings
from tirbench.timing import schedule


def test_the_sides_that_a_worker_delays_are_those_that_it_is_asked_for() -> None:
    assert set(readings.DELAYED) == trials.DELAYED
    assert set(readings.PLANTEDS) == trials.SLOWER
    assert readings.PLANTED == trials.PLANTED
    assert trials.QUIET in readings.QUIETS


def test_bursts_are_planned_as_they_are_paced() -> None:
    assert learnt.BURST_US == schedule.BURST_WORK_US
    assert learnt.REST_US == schedule.BURST_REST_S * 1e6
