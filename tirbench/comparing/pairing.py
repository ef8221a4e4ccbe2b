"""Which rows are compared: those of cases that both sides have, where comparing means something."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tirbench import codec, digest, pipeline
from tirbench.comparing.ask import Asked
from tirbench.comparing.sides import Side, Sides
from tirbench.gating import timer_on
from tirbench.judge import incomparable, missing
from tirbench.model import BoundImplementation, Case, PairSide, Plan, Row, Verdict
from tirbench.plan import Ask, plan, rows_of

Arm: TypeAlias = "tuple[str, str]"

PLACEBO: Final = " (placebo)"
"""After the name of an implementation: the arm that loads base twice."""

LEAST_PLACEBOS: Final = 2
SHARE_OF_PLACEBOS: Final = 8
"""One row in so many has a placebo beside it, which costs half as much again."""

STATIC_KINDS: Final = frozenset({"triton", "cuda", "tirx"})
"""Kinds whose launch stands in the workload: machine code and bound arguments are all there is to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One row that is compared: the arms of base and head, and what is known of both before.

    `same_source`: everything that a person wrote is equal on both sides.
    """

    row: Row
    base_arm: Arm
    head_arm: Arm
    base: PairSide
    head: PairSide
    slower_than: float
    same_source: bool
    placebo: bool = False

    @property
    def key(self) -> str:
        """`workload/case/implementation`."""
        return self.row.key

    @property
    def place(self) -> tuple[str, str]:
        """Workload and case."""
        return self.row.workload, self.row.case


@dataclass(slots=True, kw_only=True)
class Paired:
    """The rows to measure, those that have a verdict already, and those that this machine leaves out."""

    pairs: list[Pair] = field(default_factory=list)
    decided: list[Verdict] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def paired(sides: Sides, asked: Asked, hardware: str) -> Paired:
    """Pair the rows of both sides."""
    found = Paired()
    for workload, case in sorted(sides.base.chosen | sides.head.chosen):
        old, new = sides.base.case(workload, case), sides.head.case(workload, case)
        for one in (old, new):
            other = sides.base if one is new else sides.head
            if one is not None and other.case(workload, case) is None:
                rows = [row for row in rows_of(one) if _asked(row, asked)]
                found.decided += [missing(row, other.label) for row in rows if row.role == "kernel"]
        if old is not None and new is not None:
            _pair_case(found, sides, (old, new), asked, hardware)
    _add_placebos(found)
    return found


def _asked(row: Row, asked: Asked) -> bool:
    return asked.rows is None or row.key in asked.rows


def _pair_case(
    found: Paired, sides: Sides, cases: tuple[Case, Case], asked: Asked, hardware: str
) -> None:
    old, new = cases
    names = {one.name: one for one in old.implementations}
    runnable = _runnable(found, sides.head, new, asked)
    for row in runnable:
        base_name = row.implementation if asked.candidates is None else asked.candidates[0]
        if base_name not in names:
            found.decided.append(missing(row, sides.base.label))
            continue
        pair = _pair(sides, cases, row, base_name, asked, hardware)
        if row.role == "reference" and pair.same_source and not asked.references:
            continue
        verdict = incomparable(row, pair.base, pair.head) or _protocols(row, cases, asked, hardware)
        if verdict is None:
            found.pairs.append(pair)
        else:
            found.decided.append(verdict)
    here = {one.name for one in new.implementations}
    if asked.candidates is None:
        for row in rows_of(old):
            if row.role == "kernel" and row.implementation not in here and _asked(row, asked):
                found.decided.append(missing(row, sides.head.label))


def _runnable(found: Paired, side: Side, case: Case, asked: Asked) -> Iterator[Row]:
    """The rows of a case that `exec` would time here; the reasons of the others are counted."""
    how = Plan(device=asked.device, timer=asked.timer)
    explicit = case.workload.name in side.explicit or asked.rows is not None
    planned = plan([("", [case])], Ask(plan=how, explicit=explicit))
    wanted = None if asked.candidates is None else asked.candidates[1]
    for skipped in planned.answered:
        if skipped.row.role == "kernel" and wanted in {None, skipped.row.implementation}:
            found.left_out[skipped.reason] += 1
    for job in planned.jobs:
        for one in job.cases:
            for row in one.rows:
                if wanted is not None and row.implementation != wanted:
                    continue
                if not _asked(row, asked):
                    continue
                if one.time:
                    yield row
                elif row.role == "kernel":
                    found.left_out[one.untimed] += 1


def _pair(
    sides: Sides, cases: tuple[Case, Case], row: Row, base_name: str, asked: Asked, hardware: str
) -> Pair:
    old, new = cases
    sources = (
        digest.source(old, base_name, sides.base.read),
        digest.source(new, row.implementation, sides.head.read),
    )
    base, head = (
        _pair_side(side, case, name, source, asked, hardware)
        for side, case, name, source in (
            (sides.base, old, base_name, sources[0]),
            (sides.head, new, row.implementation, sources[1]),
        )
    )
    return Pair(
        row=row,
        base_arm=("base", base_name),
        head_arm=("head", row.implementation),
        base=base,
        head=head,
        # A change must not be judged by the laxer threshold that it brings along.
        slower_than=asked.resolve or min(old.slower_than, new.slower_than),
        same_source=sources[0] == sources[1],
    )


def _pair_side(
    side: Side, case: Case, name: str, source: str, asked: Asked, hardware: str
) -> PairSide:
    timer = timer_on(case, hardware, asked.timer)
    implementation = next(one for one in case.implementations if one.name == name)
    return PairSide(
        problem=digest.problem(case, side.read),
        timer=timer,
        l2="warm" if timer == "wall" else case.workload.timer.l2,
        regime=case.workload.timer.regime,
        hardware=hardware,
        launch=_launch(implementation, source),
    )


def _launch(implementation: BoundImplementation, source: str) -> str:
    """Digest of what machine code is launched with.

    Where a function of the workload launches it, or builds the launch, only that function knows, and the
    whole source stands for it.
    """
    if any(step.kind not in STATIC_KINDS for step in implementation.steps):
        return source
    steps = [codec.dump(step) for step in implementation.steps]
    for step in steps:
        if isinstance(step, dict):
            step.pop("path", None)
    text = json.dumps(
        [steps, codec.dump(implementation.context) if implementation.context else None]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _protocols(row: Row, cases: tuple[Case, Case], asked: Asked, hardware: str) -> Verdict | None:
    """The verdict of sides that are timed in different ways."""
    defaults = pipeline.Options(device=asked.device)
    old, new = (
        digest.protocol(
            case, timer_on(case, hardware, asked.timer), defaults.placements, defaults.rounds
        )
        for case in cases
    )
    if old == new:
        return None
    reason = "another protocol: budgets or cooldown of [timer]"
    return Verdict(row=row, kind="incomparable", rule="incomparable", reason=reason)


def _add_placebos(found: Paired) -> None:
    """Load base twice beside some rows, spread over the suite: the least that is known to be equal."""
    from dataclasses import replace

    rows = [pair for pair in found.pairs if pair.row.role == "kernel"]
    count = min(len(rows), max(LEAST_PLACEBOS, len(rows) // SHARE_OF_PLACEBOS))
    for index in range(count):
        pair = rows[index * len(rows) // count]
        found.pairs.append(
            replace(
                pair,
                row=replace(pair.row, implementation=f"{pair.base_arm[1]}{PLACEBO}"),
                head_arm=("twin", pair.base_arm[1]),
                head=pair.base,
                same_source=True,
                placebo=True,
            )
        )
