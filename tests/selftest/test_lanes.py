"""Devices share tasks, and end in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tirbench.selftest.budget import Task
from tirbench.selftest.lanes import Lane, Lanes


def lane(uuid: str) -> Lane:
    return Lane(uuid=uuid, folder=Path(), workers=cast("Any", SimpleNamespace()), environ={})


def task(workload: str, *runs_s: float) -> Task:
    sequences = [(number, ("base", "twin1")) for number in range(len(runs_s))]
    return Task(
        workload=workload,
        placements=(0,),
        rows={f"{workload}/a/k": {"sequences": sequences}},
        fixed_s=1.0,
        runs_s=dict(enumerate(runs_s)),
    )


class Clock:
    """A clock that the tasks move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lanes_of(
    clock: Clock, took: Callable[[Task], float] = lambda task: task.expected_s, count: int = 1
) -> tuple[Lanes, list[tuple[str, str, int]], list[str]]:
    done: list[tuple[str, str, int]] = []
    said: list[str] = []

    def do(where: Lane, tasks: Sequence[Task]) -> None:
        for what in tasks:
            done.append((where.uuid, what.workload, len(what.runs_s)))
            clock.now += took(what)

    found = Lanes(
        lanes=[lane(f"gpu{number}") for number in range(count)], do=do, say=said.append, clock=clock
    )
    return found, done, said


def test_tasks_that_end_too_late_are_cut_or_left_out() -> None:
    lanes, done, said = lanes_of(Clock())
    tasks = [task("a", 1.0, 1.0), task("b", 1.0, 1.0, 1.0), task("c", 7.0)]
    assert lanes.drain(tasks, 6.5) == 2
    assert done == [("gpu0", "a", 2), ("gpu0", "b", 2)]
    assert said == [
        "c: there is time for nothing",
        "b: there is time for only 2 virtual runs",
    ]


def test_tasks_are_taken_from_both_ends_by_turns() -> None:
    lanes, done, _ = lanes_of(Clock())
    lanes.drain([task(name, 1.0) for name in "abcde"], 1000.0)
    assert "".join(workload for _, workload, _ in done) == "aebdc"


def bundles(
    lanes: Lanes, tasks: Sequence[Task], end_s: float = 1000.0, together_s: float = 6.0
) -> list[str]:
    """What is done together: the names of workloads, by bundle."""
    found: list[str] = []
    do = lanes.do

    def noting(where: Lane, some: Sequence[Task]) -> None:
        found.append("".join(task.workload for task in some))
        do(where, some)

    lanes.do, lanes.together_s = noting, together_s
    lanes.drain(tasks, end_s)
    return found


def test_tasks_share_workers_until_these_take_long_enough() -> None:
    lanes, _, _ = lanes_of(Clock())
    assert bundles(lanes, [task(name, 1.0) for name in "abcdefghijkl"]) == [
        "abc", "lkj", "def", "ihg",
    ]  # fmt: skip


def test_devices_share_what_would_fit_into_one_bundle_and_a_long_task_is_one() -> None:
    lanes, _, _ = lanes_of(Clock(), count=2)
    assert sorted(bundles(lanes, [task("a", 1.0), task("b", 1.0)], together_s=100.0)) == ["a", "b"]
    lanes, _, _ = lanes_of(Clock())
    assert bundles(lanes, [task("c", 50.0), task("d", 1.0), task("e", 1.0)]) == ["c", "ed"]


def test_tasks_of_other_placements_have_workers_of_their_own() -> None:
    lanes, _, _ = lanes_of(Clock())
    names = "abcdefgh"
    tasks = [replace(task(name, 1.0), placements=(index % 2,)) for index, name in enumerate(names)]
    found = bundles(lanes, tasks)
    assert sorted("".join(found)) == list(names)
    assert all({names.index(one) % 2 for one in bundle} in ({0}, {1}) for bundle in found)


def test_of_tasks_that_are_done_together_the_last_are_cut_where_time_is_short() -> None:
    lanes, done, said = lanes_of(Clock())
    tasks = [replace(task(name, 1.0, 1.0), start_s=0.75) for name in "ab"]
    lanes._fitting(lanes.lanes[0], tasks, 5.0)  # 1 + 2 s, then 0.25 + 1
    assert done == [("gpu0", "a", 2), ("gpu0", "b", 1)]
    assert said == ["b: there is time for only 1 virtual runs"]


def test_what_may_be_slower_than_foretold_is_not_all_begun_at_once() -> None:
    clock = Clock()
    lanes, done, _ = lanes_of(clock, took=lambda task: 3 * task.expected_s)
    bundles(lanes, [task(str(number), 1.0) for number in range(200)], 180.0, together_s=200.0)
    assert clock.now <= 180.0 * 1.05
    assert len(done) < 40
    clock.now = 0.0
    untried = [replace(task(str(number)), fixed_s=1.0) for number in range(170)]
    lanes.forget_pace()
    bundles(lanes, untried, 180.0, together_s=200.0)
    assert clock.now <= 180.0 * 1.05


def test_a_task_of_other_placements_does_not_end_a_bundle() -> None:
    lanes, _, _ = lanes_of(Clock())
    tasks = [task(name, 1.0) for name in "abcd"]
    tasks[1] = replace(task("b", 50.0), placements=(7,))
    assert bundles(lanes, tasks, together_s=100.0) == ["acd", "b"]


def test_what_tasks_of_a_bundle_ask_for_is_done_together_too() -> None:
    lanes, done, _ = lanes_of(Clock())
    once = {"a": [task("a", 1.0)], "b": [task("b", 1.0)]}
    lanes.then = lambda what: once.pop(what.workload, [])
    found = bundles(lanes, [task("a", 1.0), task("b", 1.0), task("c", 9.0)])
    assert found == ["ab", "ab", "c"]
    assert len(done) == 5


def test_time_for_what_a_task_asks_for_later_is_kept() -> None:
    lanes, done, _ = lanes_of(Clock())
    asking = replace(task("b", 1.0, 1.0), then_s=3.0)
    assert lanes.drain([asking], 5.5) == 1
    assert done == [("gpu0", "b", 1)]


def test_what_a_task_asks_for_is_done_right_after_it_and_may_end_late() -> None:
    clock = Clock()
    lanes, done, said = lanes_of(clock)
    asked = [[task("a", 2.0)], [task("a", 9.0)], [task("a", 1.0)]]

    def then(what: Task) -> list[Task]:
        return asked.pop(0) if asked and what.workload == "a" else []

    lanes.then = then
    lanes.drain([task("a", 1.0), task("b", 1.0)], 6.0, late_s=3.0)
    assert done == [("gpu0", "a", 1), ("gpu0", "a", 1)]  # 5 s
    # What no longer fits ends the asking, and nothing of another workload is begun late.
    assert said == ["a: there is time for nothing", "b: there is time for nothing"]


def test_a_machine_that_is_slower_than_it_seemed_is_given_less() -> None:
    lanes, done, _ = lanes_of(Clock(), took=lambda task: 3 * task.expected_s)
    lanes.drain([task("a", 4.0), task("b", 4.0)], 22.0)
    assert done == [("gpu0", "a", 1)]
    lanes.forget_pace()
    lanes.drain([task("b", 4.0)], 22.0)
    assert done[-1] == ("gpu0", "b", 1)


def test_a_workload_stays_on_the_device_that_it_was_first_measured_on() -> None:
    lanes, done, _ = lanes_of(Clock(), count=2)
    lanes.drain([task(name, 1.0) for name in "abcdef"], 1000.0)
    first = {workload: uuid for uuid, workload, _ in done}
    done.clear()
    lanes.drain([task(name, 1.0) for name in "fedcba"], 1000.0)
    assert {workload: uuid for uuid, workload, _ in done} == first


def test_what_the_only_device_raises_is_raised() -> None:
    def fail(_: Task) -> float:
        raise RuntimeError("the device is gone")

    lanes, done, _ = lanes_of(Clock(), took=fail)
    with pytest.raises(RuntimeError, match="the device is gone"):
        lanes.drain([task("a", 1.0), task("b", 1.0)], 1000.0)
    assert len(done) == 1


def test_the_work_of_a_device_that_raises_is_done_by_the_others() -> None:
    lanes, done, said = lanes_of(Clock(), count=2)
    do = lanes.do

    def failing(where: Lane, tasks: Sequence[Task]) -> None:
        if where.uuid == "gpu1":
            raise RuntimeError("fell off the bus")
        do(where, tasks)

    lanes.do = failing
    lanes.drain([task(name, 1.0) for name in "abcd"], 1000.0)
    lanes.drain([task(name, 1.0) for name in "abcd"], 1000.0)
    assert sorted(workload for _, workload, _ in done) == list("aabbccdd")
    assert {uuid for uuid, *_ in done} == {"gpu0"}
    assert said in ([], ["nothing more on GPU gpu1: RuntimeError: fell off the bus"])
