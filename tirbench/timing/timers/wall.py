"""Timer `wall`: the host's monotonic clock around CPU work."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tirbench.errors import ImpossibleTime, TimerUnavailable
from tirbench.timing import schedule
from tirbench.timing.plan import Call, CallFailed, Pilot, Plan, Record
from tirbench.timing.steps import blame, kept_flags, launch_untimed, walk

if TYPE_CHECKING:
    from collections.abc import Callable

# Reading the clock may make up one per cent of a sample; shorter calls are timed in groups.
CLOCK_SHARE: Final = 0.01

# A group grows tenfold until the clock sees it, and no further than this (pytorch/pytorch#66487).
LARGEST_GROUP: Final = 1_000_000

# An estimate is the fastest of five groups, as many as the GPU timers take, unless that takes longer
# than 10 ms.
SETTLE_GROUPS: Final = 5
SETTLE_NS: Final = 10_000_000


class NoDevice:
    """CPU work is done when its call returns."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


@dataclass(slots=True, kw_only=True)
class WallTimer:
    """Times groups of calls on the CPU, with the garbage collector off as in `timeit`.

    A sample is the mean over a group, which has one call unless that is too short for the clock.
    Implementations that are interleaved with each other have groups of one size: reading the clock is part
    of every sample, and what has half the calls would seem 1 % slower. Caches are as the previous call left
    them: there is no flush.

    Args:
        gpu_is_busy: whether the call that has just returned left work on a GPU; such a call is refused.
    """

    sleep: Callable[[float], None]
    clock_ns: Callable[[], int]
    gpu_is_busy: Callable[[], bool] = lambda: False
    _groups: dict[str, int] = field(default_factory=dict, init=False)
    _pilots: dict[str, Pilot] = field(default_factory=dict, init=False)

    def require(self) -> None:
        """The clock works everywhere."""

    def require_cpu(self, device: object) -> None:
        """Refuse a device that is not the CPU.

        Raises:
            TimerUnavailable: the caller asks for another device.
        """
        if device is not None and str(device).partition(":")[0] != "cpu":
            raise TimerUnavailable(
                f"timer 'wall' times CPU work, not {str(device)!r}; use timer='proton' or 'event'"
            )

    def pilot(self, call: Call) -> Pilot:
        """First call, then grow the group until the clock costs at most one per cent of it."""
        blame(call, launch_untimed)
        if self.gpu_is_busy():
            raise TimerUnavailable(
                f"{call.name!r} launches GPU work, which timer='wall' would not wait for; use "
                "timer='proton' or 'event'"
            )
        wanted_ns = self._clock_cost_ns() / CLOCK_SHARE
        group = 1
        elapsed_ns = self._settled_ns(call, group)
        while elapsed_ns < wanted_ns and group < LARGEST_GROUP and call.prepare is None:
            enough = math.ceil(1.2 * group * wanted_ns / elapsed_ns) if elapsed_ns > 0 else math.inf
            group = int(min(max(enough, 2 * group), 10 * group, LARGEST_GROUP))
            elapsed_ns = self._settled_ns(call, group)
        if elapsed_ns <= 0:
            raise CallFailed(
                call.name,
                ImpossibleTime(
                    f"timer 'wall' returned {elapsed_ns} ns for {group} calls of {call.name!r}: "
                    "the clock stands still"
                ),
            )
        self._groups[call.name] = group
        sample_us = elapsed_ns / 1e3
        pilot = Pilot(budget_us=sample_us, cycle_us=sample_us, launch_us=sample_us / group)
        self._pilots[call.name] = pilot
        return pilot

    def measure(self, plan: Plan) -> list[Record]:
        """One sample per launch of the plan, each the mean of its group."""
        samples_us: list[float] = []
        self._share_groups({block.call.name for block in plan.blocks() if not block.call.prepare})

        def launch(call: Call) -> None:
            group = self._groups.get(call.name, 1)
            samples_us.append(self._group_ns(call, group) / group / 1e3)

        device = NoDevice()
        collecting = gc.isenabled()
        gc.disable()
        try:
            walk(plan.warmup, launch_untimed, device, self.sleep)
            walk(plan.timed, launch, device, self.sleep)
        finally:
            if collecting:
                gc.enable()
        return [
            Record(name=name, kept=kept, time_us=sample_us)
            for (name, kept), sample_us in zip(kept_flags(plan), samples_us, strict=True)
        ]

    def facts(self) -> dict[str, object]:
        """How many calls a sample averages."""
        return {
            "source": "time.perf_counter_ns",
            "definition": "mean wall time of the calls of a group",
            "group_calls": dict(self._groups),
        }

    def _share_groups(self, names: set[str]) -> None:
        """Give calls that are compared with each other the largest of their groups.

        What must be prepared before every call is in none: its groups are of one.
        """
        pilots = {name: pilot for name, pilot in self._pilots.items() if name in names}
        for together in schedule.groups(pilots):
            largest = max(self._groups[name] for name in together)
            self._groups |= dict.fromkeys(together, largest)

    def _group_ns(self, call: Call, group: int) -> int:
        """Time so many calls back to back."""
        call.precede()
        launch, clock_ns = call.launch, self.clock_ns
        elapsed_ns = 0

        def run(_: Call) -> None:
            nonlocal elapsed_ns
            start = clock_ns()
            for _repeat in range(group):
                launch()
            elapsed_ns = clock_ns() - start

        blame(call, run)
        return elapsed_ns

    def _settled_ns(self, call: Call, group: int) -> int:
        """The fastest of a few groups: the first ones still fill caches and grow pools."""
        times_ns = [self._group_ns(call, group)]
        while len(times_ns) < SETTLE_GROUPS and sum(times_ns) < SETTLE_NS:
            times_ns.append(self._group_ns(call, group))
        return min(times_ns)

    def _clock_cost_ns(self) -> float:
        """What two readings of the clock cost, from a hundred."""
        start = self.clock_ns()
        for _ in range(100):
            self.clock_ns()
        return (self.clock_ns() - start) / 101
