"""Both sides of a comparison in one worker: the program that `ab` runs instead of a harness.

For one placement seed the cases of both sides are opened on one arena, built and verified (`sides`); then
their launches are timed in balanced order. What was measured is reported as the quads that `judge` reads, and
the row is answered with the time of its head.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tirbench import codec
from tirbench.errors import MeasurementError
from tirbench.harness import timed
from tirbench.harness.costs import flush_us, most_arms
from tirbench.harness.quads import blocks_of, quads_of, rounds_for
from tirbench.harness.sides import Arm, Report, Side, SidesOfCase, SideSpec, open_sides, read_spec
from tirbench.model import CaseJob, Failed, Plan, Timed

if TYPE_CHECKING:
    from tirbench.harness.case import Launch
    from tirbench.harness.declarations import Timing
    from tirbench.harness.verify import Expected
    from tirbench.model import L2Policy

T = TypeVar("T")

TWIN: Final = "twin"
"""The side that loads the files of base once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpec(SideSpec):
    """What one worker compares.

    Attributes:
        rows: by case and name of the row, the arms of base and head. A row with one arm measures that
            arm alone: its sides are in workers of their own.
    """

    rows: Mapping[str, Mapping[str, tuple[Arm, ...]]]

    @classmethod
    def read(cls, path: str | Path) -> PairSpec:
        """Read the file that `comparing` writes."""
        data = read_spec(path)
        data["rows"] = {
            case: {name: tuple((side, one) for side, one in arms) for name, arms in rows.items()}
            for case, rows in data["rows"].items()
        }
        return cls(twins=(TWIN,), **data)


class PairProgram:
    """The sides of one workload, opened in the order of the file."""

    def __init__(self, spec: PairSpec) -> None:
        """Isolate the trees from each other, then import the harness of each."""
        self.spec = spec
        self.programs = open_sides(spec)

    def run(self, job: CaseJob, plan: Plan, report: Report) -> None:
        """Compare the rows of one case; every one of them is answered exactly once."""
        arms = self.spec.rows[job.case]
        PairCase(self.programs, self.spec, arms, job, plan, report).run()


def open_pairs(path: str | Path) -> PairProgram:
    """Open what `comparing` asks one worker to compare.

    Raises:
        UsageError: the file is of another version, or a side is no harness.
        Exception: what a side raises when it is imported.
    """
    return PairProgram(PairSpec.read(path))


class PairCase(SidesOfCase):
    """Runs one case on both sides and reports what was measured of every row."""

    def time(self, sides: Mapping[str, Side]) -> None:
        """Time the rows, those that share an arm of base together where they fit into one burst."""
        groups: dict[Arm, list[str]] = {}
        for name in list(self.pending):
            groups.setdefault(self.arms[name][0], []).append(name)
        for names in groups.values():
            if len(names) > 1 and self._outlasts_burst(sides, names):
                for name in names:
                    self._time_group(sides, [name])
            else:
                self._time_group(sides, names)

    def _outlasts_burst(self, sides: Mapping[str, Side], names: Sequence[str]) -> bool:
        """Whether the device would rest within a quad of all arms of these rows.

        It rests before the first or the last of three arms then, and never before the one between them,
        which is the faster for that. Two arms take turns in coming after a rest.
        """
        arms = {arm for name in names for arm in self.arms[name]}
        try:
            launch_us = max(
                launch_time_us(sides[side].launches[one], sides[side].case.device.synchronize)
                for side, one in arms
            )
        except Exception:  # noqa: BLE001 - kernels raise what they like, and will again where it is told
            return True
        before_us = flush_us(self.plan.device, self.programs[self.arms[names[0]][0][0]].timing.l2)
        return len(arms) > most_arms(launch_us, launch_us + before_us)

    def _time_group(self, sides: Mapping[str, Side], names: list[str]) -> None:
        arms = list(dict.fromkeys(arm for name in names for arm in self.arms[name]))
        self.stage("time", names[0] if len(names) == 1 else None)
        try:
            result = bench_arms(
                self.plan,
                self.programs[arms[0][0]].timing,
                {
                    name_of(arm): sides[arm[0]].launches[arm[1]]
                    for arm in in_turn(arms, self.spec.placement)
                },
                {name_of(arm): sides[arm[0]] for arm in arms},
            )
        except Exception as error:  # noqa: BLE001 - kernels raise what they like
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            for name in names:
                self.answer(Failed(row=self.pending[name], stage="time", reason=message))
            return
        self.verify_again(sides, arms)
        for name in names:
            if name in self.pending:
                self._answer_timed(sides, name, result)

    def _answer_timed(self, sides: Mapping[str, Side], name: str, result: dict[str, Any]) -> None:
        """Report the quads of a row, then answer it with the time of its head."""
        arms = self.arms[name]
        row = self.pending[name]
        timer = result["timer"]
        head = name_of(arms[-1])
        samples = timed.Samples([result["samples"][head]], [result["impls"][head]])
        try:
            blocks = blocks_together(result, [name_of(arm) for arm in arms])
            estimate = timed.estimated(samples, timer)
        except ValueError as error:
            self.answer(Failed(row=row, stage="time", reason=f"ValueError: {error}"))
            return
        where = {side: sides[side] for side, _ in arms}
        facts = {side: where[side].run.facts.get(one) for side, one in arms}
        self.report(
            {
                "event": "pair",
                "case": self.job.case,
                "implementation": name,
                "placement": self.spec.placement,
                "timer": timer,
                "blocks": blocks,
                "quads": quads_of(*blocks) if len(blocks) == 2 else [],
                "code": [codec.dump(found) if (found := facts[side]) else None for side, _ in arms],
                "settings": [self.settings[side] for side, _ in arms],
                "outputs": [digests(where[side].expected, one) for side, one in arms],
            }
        )
        last = where[arms[-1][0]]
        verification = last.run.verified[arms[-1][1]]
        self.answer(
            Timed(row=row, verification=verification, estimate=estimate, code=facts[arms[-1][0]])
        )


# --- What programs that time several sides have in common -----------------------------------------


def bench_arms(
    plan: Plan, timing: Timing, launches: Mapping[str, Launch], sides: Mapping[str, Side]
) -> dict[str, Any]:
    """Time arms in balanced order by the protocol of MEASURING, section 2.

    Args:
        plan: of the worker.
        timing: how the workload asks to be timed.
        launches: by name of the arm, in order.
        sides: the side that each of them is of.

    Returns:
        What `bench()` returns.

    Raises:
        MeasurementError: the timer does not fit the device.
        Exception: what a kernel raises.
    """
    from tirbench.timing import bench

    choice = timed.choose(plan, timing)
    if choice.refused is not None:
        raise MeasurementError(choice.refused)
    budgets = {
        name: value
        for name in ("warmup", "repeat", "cudagraph_rep")
        if (value := getattr(timing, name)) is not None
    }
    prepare = {
        name: reset for name in launches if (reset := sides[name].case.before_launch) is not None
    }
    l2: L2Policy = "warm" if plan.device == "cpu" else timing.l2
    result: dict[str, Any] = bench(
        launches,
        timer=choice.name,
        prepare=prepare or None,
        order="interleaved" if timing.regime == "burst" else "blocked",
        calls=None if budgets else "auto",
        regime=timing.regime,
        l2=l2,
        cooldown_s=timing.cooldown_s or 0.0,
        rounds=rounds_for(timing.regime, timing.rounds or plan.rounds),
        **budgets,
    )
    return result


def launch_time_us(launch: Launch, synchronize: Callable[[], object]) -> float:
    """About how long a launch takes, seen from the host: its second call."""
    begin = 0.0
    for _ in range(2):
        begin = time.perf_counter()
        launch()
        synchronize()
    return (time.perf_counter() - begin) * 1e6


def in_turn(arms: Sequence[T], placement: int) -> list[T]:
    """The order of arms on a placement seed: the other way round on every second one.

    Rounds of one `bench()` take turns, too; its first estimates, though, are made once, and what is
    estimated first meets a cold timer.
    """
    return list(arms if placement % 2 == 0 else reversed(arms))


def blocks_together(result: Mapping[str, Any], names: Sequence[str]) -> list[list[list[float]]]:
    """The sub-blocks of arms that are compared with each other, in order.

    Raises:
        ValueError: every round has lost a sample of one of them.
    """
    return [blocks_of(result, name, names) for name in names]


def name_of(arm: Arm) -> str:
    """How an arm is called in `bench()`."""
    return f"{arm[0]}:{arm[1]}"


def digests(expected: Expected, one: str) -> dict[str, int]:
    """Checksums of the outputs that were found right."""
    accepted = expected.accepted.get(one)
    return {} if accepted is None else dict(accepted.digests)
