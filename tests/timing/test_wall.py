"""Timer `wall`."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tirbench.errors import ImpossibleTime, TimerUnavailable
from tirbench.timing.plan import Block, Call, CallFailed, Plan
from tirbench.timing.timers.wall import LARGEST_GROUP, WallTimer


class Clock:
    """A clock that costs 40 ns to read and moves when work is done."""

    def __init__(self, cost_ns: int = 40) -> None:
        self.now_ns = 0
        self.cost_ns = cost_ns

    def __call__(self) -> int:
        self.now_ns += self.cost_ns
        return self.now_ns

    def work(self, ns: int) -> Callable[[], None]:
        def launch() -> None:
            self.now_ns += ns

        return launch


def timer_of(clock: Clock, *, busy: bool = False) -> WallTimer:
    return WallTimer(sleep=lambda _: None, clock_ns=clock, gpu_is_busy=lambda: busy)


def test_a_long_call_is_timed_alone() -> None:
    clock = Clock()
    timer = timer_of(clock)
    call = Call(name="f", launch=clock.work(50_000))
    assert timer.pilot(call).launch_us == pytest.approx(50.0, rel=0.01)
    records = timer.measure(Plan(timed=(Block(call=call, kept=3),)))
    assert [record.time_us for record in records] == pytest.approx([50.0] * 3, rel=0.01)
    assert timer.facts()["group_calls"] == {"f": 1}


def test_a_short_call_is_grouped_until_the_clock_costs_one_per_cent() -> None:
    clock = Clock()
    timer = timer_of(clock)
    call = Call(name="f", launch=clock.work(10))
    timer.pilot(call)
    (group,) = timer._groups.values()
    assert 0.011 * group * 10 >= 40
    (record,) = timer.measure(Plan(timed=(Block(call=call, kept=1),)))
    assert record.time_us == pytest.approx(0.010, rel=0.02)


def test_a_clock_that_stands_still_ends_in_an_error_and_not_in_a_loop() -> None:
    clock = Clock(cost_ns=0)
    with pytest.raises(CallFailed) as raised:
        timer_of(clock).pilot(Call(name="f", launch=lambda: None))
    assert isinstance(raised.value.error, ImpossibleTime)


def test_groups_do_not_grow_without_end() -> None:
    clock = Clock(cost_ns=10**9)
    timer = timer_of(clock)
    timer.pilot(Call(name="f", launch=clock.work(1)))
    assert timer._groups["f"] <= LARGEST_GROUP


def test_a_prepared_call_is_never_grouped_and_prepare_is_not_timed() -> None:
    clock = Clock()
    timer = timer_of(clock)
    call = Call(name="f", launch=clock.work(10), prepare=clock.work(90_000))
    timer.pilot(call)
    (record,) = timer.measure(Plan(timed=(Block(call=call, kept=1),)))
    assert record.time_us == pytest.approx(0.050)
    assert timer.facts()["group_calls"] == {"f": 1}


def test_gpu_work_is_refused() -> None:
    clock = Clock()
    with pytest.raises(TimerUnavailable, match=r"'f' launches GPU work.*timer='proton'"):
        timer_of(clock, busy=True).pilot(Call(name="f", launch=clock.work(10)))


def test_the_garbage_collector_is_off_while_timing_and_on_afterwards() -> None:
    clock = Clock()
    seen: list[bool] = []
    call = Call(name="f", launch=lambda: seen.append(gc.isenabled()))
    timer_of(clock).measure(Plan(timed=(Block(call=call, kept=2),)))
    assert seen == [False, False]
    assert gc.isenabled()


def test_a_slow_start_does_not_decide_the_group() -> None:
    clock = Clock()
    slow = [500_000, 400_000]

    def launch() -> None:
        clock.now_ns += slow.pop() if slow else 10

    timer = timer_of(clock)
    timer.pilot(Call(name="f", launch=launch))
    assert timer._groups["f"] > 100


def test_calls_that_are_interleaved_are_timed_in_groups_of_one_size() -> None:
    clock = Clock()
    timer = timer_of(clock)
    calls = [Call(name=name, launch=clock.work(ns)) for name, ns in (("a", 300), ("b", 500))]
    far = Call(name="far", launch=clock.work(1500))
    for call in (*calls, far):
        timer.pilot(call)
    groups = dict(timer.facts()["group_calls"])  # type: ignore[call-overload]  # facts hold anything
    assert groups["a"] > groups["b"] > groups["far"]
    timer.measure(Plan(timed=tuple(Block(call=call, kept=2) for call in (*calls, far))))
    shared = timer.facts()["group_calls"]
    assert shared == {**groups, "b": groups["a"]}


def test_a_call_that_is_prepared_stays_alone_whatever_it_is_interleaved_with() -> None:
    clock = Clock()
    timer = timer_of(clock)
    free = Call(name="free", launch=clock.work(500))
    prepared = Call(name="prepared", launch=clock.work(500), prepare=lambda: None)
    for call in (free, prepared):
        timer.pilot(call)
    timer.measure(Plan(timed=tuple(Block(call=call, kept=2) for call in (free, prepared))))
    groups = dict(timer.facts()["group_calls"])  # type: ignore[call-overload]
    assert groups["prepared"] == 1
    assert groups["free"] > 1
