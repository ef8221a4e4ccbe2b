"""Measuring in one process: rounds over implementations, blocked or interleaved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tirbench.errors import MeasurementError
from tirbench.timing import budgets, schedule
from tirbench.timing.plan import Call, CallFailed, Pilot, Plan, Record, Step, Timer
from tirbench.timing.samples import Samples
from tirbench.timing.schedule import Pacer
from tirbench.timing.timers.cudagraph_proton import REPLAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tirbench.timing.references import Failures
    from tirbench.timing.request import Request


@dataclass(slots=True, kw_only=True)
class LocalRun:
    """One call of `bench()` in one process: its state while it measures, its facts afterwards.

    Args:
        request: what to measure and how.
        timer: how to time.
        calls: what is launched, in order; `references` names those whose failure is a result.
        failures: told about failing references.
        alive: raises if the device no longer works.
        sleep: idles the host.
    """

    request: Request
    timer: Timer
    calls: dict[str, Call]
    references: frozenset[str]
    failures: Failures
    alive: Callable[[], object]
    sleep: Callable[[float], None]
    samples: dict[str, Samples] = field(default_factory=dict, init=False)
    pilots: dict[str, list[Pilot]] = field(default_factory=dict, init=False)
    counts: dict[str, list[budgets.Counts]] = field(default_factory=dict, init=False)
    groups: list[list[str]] = field(default_factory=list, init=False)
    sub_blocks: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    sequence: list[list[str]] = field(default_factory=list, init=False)
    broken_by: str | None = field(default=None, init=False)
    pacer: Pacer = field(init=False)

    def __post_init__(self) -> None:
        """Pace from the first call on."""
        self.pacer = Pacer(regime=self.request.regime)

    def measure(self) -> None:
        """Measure everything; what a failing reference leaves behind is taken away."""
        if self.request.order == "blocked":
            self._blocked()
        else:
            self._interleaved()

    def _blocked(self) -> None:
        """Every implementation in every round starts anew: cooldown, first call, estimate, warm-up, calls."""
        for _ in range(self.request.rounds):
            for name in list(self.calls):
                if name in self.calls:  # a reference before it may have taken all others with it
                    self._cooldown()
                    self._guarded(partial(self._one_block, name))

    def _one_block(self, name: str) -> None:
        call = self.calls[name]
        pilot = self._pilot(name)
        counts = self._counts(pilot)
        self.counts.setdefault(name, []).append(counts)
        warmup = schedule.warmup(call, counts.warmup, pilot, self.pacer)
        plan = Plan(
            warmup=warmup,
            timed=self._timed_block(call, counts, pilot),
            merge_replays=self.request.calls is None,
        )
        self._take([name], plan)

    def _timed_block(self, call: Call, counts: budgets.Counts, pilot: Pilot) -> tuple[Step, ...]:
        if self.request.timer != "cudagraph_proton":
            return schedule.paced(call, counts.repeat, pilot.cycle_us, self.pacer)
        by_calls = self.request.calls is not None
        wanted = min(counts.repeat, schedule.GRAPH_BLOCK[1]) if by_calls else counts.repeat
        size = schedule.graph_length(wanted, pilot.cycle_us, self.request.regime)
        # A budget means the public protocol's ten replays; `calls` means so many calls in all.
        sizes = schedule.split(counts.repeat, size) if by_calls else [size] * REPLAYS
        return schedule.replays(call, sizes, pilot.cycle_us, self.pacer)

    def _interleaved(self) -> None:
        """One estimate, then in every round a cooldown and each group's sub-blocks in balanced order."""
        for name in list(self.calls):
            if name in self.calls:
                self._guarded(partial(self._pilot, name))
        pilots = {name: self.pilots[name][0] for name in self.calls}
        self.groups = schedule.groups(pilots)
        for number in range(self.request.rounds):
            self._cooldown()
            self._one_round(reverse=number % 2 == 1)

    def _one_round(self, *, reverse: bool) -> None:
        """Measure all groups in one plan; where a reference fails in it, all but that one once more."""
        done = False
        while self.calls and not done:
            done = self._guarded(partial(self._one_plan, reverse=reverse))

    def _one_plan(self, *, reverse: bool) -> None:
        plans: list[Plan] = []
        counts: dict[str, budgets.Counts] = {}
        for group in self.groups:
            names = [name for name in group if name in self.calls]
            if names:
                plans.append(self._group_plan(names, counts, reverse=reverse))
        plan = Plan(
            warmup=tuple(step for part in plans for step in part.warmup),
            timed=tuple(step for part in plans for step in part.timed),
        )
        self._take(counts, plan)
        self.sequence.append([block.call.name for block in plan.blocks()])
        for name, count in counts.items():
            self.counts.setdefault(name, []).append(count)

    def _group_plan(
        self, names: list[str], counts: dict[str, budgets.Counts], *, reverse: bool
    ) -> Plan:
        """The sub-blocks of one group; enters the counts of its members, which are alike."""
        request = self.request
        pilots = {name: self.pilots[name][0] for name in names}
        longest = max(pilots.values(), key=lambda pilot: pilot.launch_us)
        shape = schedule.block_shape(request.timer, longest, request.regime)
        largest = max(map(self._counts, pilots.values()), key=lambda count: count.repeat)
        if request.calls == "auto":
            whole = -(-largest.repeat // shape[1]) * shape[1]
            largest = replace(largest, repeat=whole)
        counts |= dict.fromkeys(names, largest)
        self.sub_blocks |= dict.fromkeys(names, shape)
        calls = [self.calls[name] for name in names]
        warmup = tuple(
            step
            for call in calls
            for step in schedule.warmup(call, largest.warmup, pilots[call.name], self.pacer)
        )
        plan = schedule.interleaved(
            calls, pilots, largest.repeat, shape, self.pacer, reverse=reverse
        )
        return replace(plan, warmup=warmup)

    def _pilot(self, name: str) -> Pilot:
        for rest in self.pacer.due():
            self.sleep(rest.seconds)
        pilot = self.timer.pilot(self.calls[name])
        self.pacer.worked(pilot.calls * pilot.cycle_us)
        self.pilots.setdefault(name, []).append(pilot)
        return pilot

    def _counts(self, pilot: Pilot) -> budgets.Counts:
        """How many calls: from the budgets, as asked for, or from the table."""
        request = self.request
        counts = budgets.from_budget(request.timer, request.budget, pilot)
        if request.calls is not None:
            repeat = (
                request.calls
                if isinstance(request.calls, int)
                else budgets.from_table(pilot.launch_us, request.rounds)
            )
            warmup = counts.warmup if request.warmup_given else 0
            counts = replace(counts, warmup=warmup, repeat=repeat)
        if request.regime == "sustained":
            budget = budgets.Budget(repeat_ms=1.0, warmup_ms=schedule.SUSTAINED_WARMUP_MS)
            hot = budgets.from_budget(request.timer, budget, pilot).warmup
            counts = replace(counts, warmup=max(counts.warmup, hot))
        return counts

    def _take(self, names: Iterable[str], plan: Plan) -> None:
        """Measure the plan and keep its samples, all or none."""
        records: list[Record] = self.timer.measure(plan)
        found = {name: Samples() for name in names}
        for name, samples in found.items():
            samples.add_round(name, self.request.timer, records)
        for name, samples in found.items():
            self.samples.setdefault(name, Samples()).extend(samples)

    def _cooldown(self) -> None:
        if self.request.cooldown_s > 0:
            self.sleep(self.request.cooldown_s)
            self.pacer.rested(self.request.cooldown_s)

    def _guarded(self, action: Callable[[], object]) -> bool:
        """Do it and tell whether it succeeded; a failing reference is recorded and taken out.

        Raises:
            Exception: a failing kernel of ours, with its own exception.
        """
        try:
            action()
        except CallFailed as failed:
            error, culprit = failed.error, failed.name
        else:
            return True
        if culprit not in self.references:
            raise error
        self.failures.add(culprit, error, "launch")
        self.calls.pop(culprit, None)
        self._require_alive(culprit, error)
        return False

    def _require_alive(self, culprit: str, error: Exception) -> None:
        """A reference may have broken the device's context: then nothing more can be measured."""
        try:
            self.alive()
        except Exception as broken:
            unmeasured = [
                name
                for name in self.calls
                if name not in self.samples and name not in self.references
            ]
            if unmeasured:
                raise MeasurementError(
                    f"reference {culprit!r} broke the device's context ({error}), before "
                    f"{', '.join(map(repr, unmeasured))} could be measured: measure it in a process "
                    "of its own"
                ) from broken
            self.broken_by = culprit
            for name in list(self.calls):
                if name in self.references and name not in self.samples:
                    self.failures.add(name, broken, "launch")
            self.calls.clear()
