"""Where the time of a run goes, told from its events."""

from __future__ import annotations

import pytest

from tirbench.execute.events import CaseDone, Event, RowDone, StageStarted
from tirbench.execute.spending import Spending
from tirbench.model import Failed, Row, Spent, Stage


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stage(name: Stage, workload: str = "w", case: str = "a") -> Event:
    return StageStarted(workload=workload, case=case, implementation=None, stage=name)


def done(elapsed_s: float, workload: str = "w", case: str = "a") -> Event:
    return CaseDone(workload=workload, case=case, log="", elapsed_s=elapsed_s)


def after(spending: Spending, clock: Clock, *steps: tuple[float, Event]) -> None:
    """Look at events, each so many seconds after the one before."""
    for seconds, event in steps:
        clock.now += seconds
        spending.look(event)


def test_each_stage_takes_from_its_beginning_to_the_next_and_loading_what_came_before() -> None:
    clock = Clock()
    spending = Spending(devices=1, clock=clock)
    after(
        spending,
        clock,
        (2.0, stage("allocate")),
        (0.5, stage("build")),
        (1.0, stage("verify")),
        (0.25, stage("build")),
        (1.0, stage("time")),
        (3.0, done(7.75)),
    )
    assert spending.spent() == Spent(
        elapsed_s=7.75,
        devices=1,
        stages=(
            (
                "w",
                (
                    ("load", 2.0),
                    ("allocate", 0.5),
                    ("build", 2.0),
                    ("verify", 0.25),
                    ("time", 3.0),
                ),
            ),
        ),
    )


def test_cases_on_several_devices_are_told_apart() -> None:
    clock = Clock()
    spending = Spending(devices=2, clock=clock)
    after(
        spending,
        clock,
        (1.0, stage("build", "w")),
        (0.0, stage("build", "v")),
        (2.0, stage("time", "w")),
        (1.0, done(3.0, "v")),
        (1.0, done(4.0, "w")),
    )
    found = spending.spent()
    assert (found.elapsed_s, found.devices) == (5.0, 2)
    assert dict(found.stages)["v"] == (("build", 3.0),)
    assert dict(found.stages)["w"] == (("build", 2.0), ("time", 2.0))


def test_a_case_that_never_begins_is_loading() -> None:
    clock = Clock()
    spending = Spending(devices=1, clock=clock)
    row = Row(workload="w", case="a", implementation="k", role="kernel")
    failed = Failed(row=row, stage="load", reason="no module named x")
    after(spending, clock, (1.5, RowDone(outcome=failed)), (0.5, done(2.0)))
    assert spending.spent().stages == (("w", (("load", 2.0),)),)


def test_what_waited_for_the_device_is_no_stage() -> None:
    clock = Clock()
    spending = Spending(devices=1, clock=clock)
    after(spending, clock, (60.0, stage("time")), (1.0, done(1.0)))
    assert spending.spent().stages == (("w", (("time", 1.0),)),)


def test_parts_of_a_run_add_up() -> None:
    first = Spent(elapsed_s=2.0, devices=1, stages=(("w", (("load", 1.0), ("time", 1.0))),))
    later = Spent(
        elapsed_s=3.0, devices=2, stages=(("v", (("time", 4.0),)), ("w", (("time", 2.0),)))
    )
    both = first.plus(later)
    assert (both.elapsed_s, both.devices) == (5.0, 2)
    assert both.stages == (("w", (("load", 1.0), ("time", 3.0))), ("v", (("time", 4.0),)))
    assert both.by_stage() == {"load": 1.0, "time": 7.0}
    assert sum(both.by_stage().values()) == pytest.approx(8.0)
