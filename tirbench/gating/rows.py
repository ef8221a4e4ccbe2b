"""What is known of every row of a run that is judged, or pinned where the run was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from tirbench import digest, pipeline, store
from tirbench.bands import OTHER_UNIT
from tirbench.expand import expand
from tirbench.gating.pins import Pins
from tirbench.judge import GateFacts, same_code_as_pinned, shift_since_pins
from tirbench.judge.gate import is_at_fault
from tirbench.model import (
    Case,
    Environment,
    Estimate,
    Failed,
    GateDecision,
    GateRow,
    Outcome,
    PinnedRow,
    Row,
    Timed,
    TimerName,
    Workload,
    Wrong,
)
from tirbench.plan import rows_of

Resolve: TypeAlias = "Callable[[Timed, float], str]"
"""Why this class of hardware cannot resolve a threshold T for a row, by its self-test; empty where it can."""

DEFAULTS: Final = pipeline.Options(device="cuda")
"""How a row is measured that no run says anything of."""


@dataclass(slots=True, kw_only=True)
class Open:
    """A row that is being judged: its facts so far, and where it belongs.

    `commit` holds the code that it is to be compared with, as soon as that is known.
    """

    row: Row
    path: str
    facts: GateFacts
    commit: str | None = None


def plan_of(kept: store.KeptRun) -> pipeline.Options:
    """How the run was made; of a run that planned nothing, the defaults."""
    device = kept.run.machine.kind
    if not kept.jobs:
        return replace(DEFAULTS, device=device)
    plan = kept.jobs[0].plan
    return pipeline.Options(
        device=device, timer=plan.timer, placements=plan.placements, rounds=plan.rounds
    )


def open_rows(
    root: Path,
    workload: Workload,
    pins: Pins,
    kept: store.KeptRun,
    plan: pipeline.Options,
    decided: list[GateRow],
    resolve: Resolve,
) -> Iterator[Open]:
    """Every row of a workload that was timed, or failed, or is pinned here; the others are no matter.

    Args:
        root: the project's folder.
        workload: as it is now.
        pins: of it.
        kept: the run.
        plan: how the run was made.
        decided: gets the rows that need no pin to be decided.
        resolve: says whether the machine can tell what the gate of a row asks.
    """
    hardware = kept.run.machine.hardware
    outcomes = {
        (o.row.case, o.row.implementation): o
        for o in kept.run.outcomes
        if o.row.workload == workload.name
    }
    cases = {case.id: case for case in expand(workload)}
    known = {
        (row.case, row.implementation): row for case in cases.values() for row in rows_of(case)
    }
    read = digest.reader(root)
    pinned_here = set(pins.by_hardware.get(hardware, {}))
    judged = {key for key, outcome in outcomes.items() if isinstance(outcome, Timed)}
    for key in sorted({*outcomes, *pinned_here}):
        outcome = outcomes.get(key)
        pinned, pinned_on = pins.of(key, hardware)
        row = known.get(key) or (outcome.row if outcome else _orphan(workload, key))
        if pinned is None and key not in judged:
            if isinstance(outcome, Wrong | Failed) and _fault(outcome):
                decided.append(_failed(workload, row, outcome))
            continue
        if pinned is not None and key not in pinned_here and key not in judged:
            continue  # pinned elsewhere, not timed here: no business of this machine
        slower_than = cases[key[0]].slower_than if key[0] in cases else 0.01
        problem, protocol = _digests(cases.get(key[0]), outcome, pinned_on, hardware, plan, read)
        yield Open(
            row=row,
            path=workload.source.path,
            facts=GateFacts(
                case=key[0],
                implementation=key[1],
                known=key in known,
                pinned=pinned,
                pinned_on=pinned_on,
                sealed=pinned is None or store.is_sealed(pinned),
                problem=problem,
                protocol=protocol,
                hardware=hardware,
                outcome=outcome,
                slower_than=slower_than,
                same_code=_same_code(pinned, outcome),
                unresolved=resolve(outcome, slower_than) if isinstance(outcome, Timed) else "",
                unit_allowance=_allowance(pinned, outcome, kept),
                environment=Environment(rows=0, flagged=0, shift=None),
            ),
        )


def _orphan(workload: Workload, key: tuple[str, str]) -> Row:
    return Row(workload=workload.name, case=key[0], implementation=key[1], role="kernel")


def _fault(outcome: Wrong | Failed) -> bool:
    if isinstance(outcome, Failed):
        return is_at_fault(outcome)
    return outcome.row.role != "reference"


def _failed(workload: Workload, row: Row, outcome: Wrong | Failed) -> GateRow:
    """A row without a pin that is wrong or failed: a pin would not mend it."""
    what = "wrong" if isinstance(outcome, Wrong) else f"failed to {outcome.stage}"
    decision = GateDecision(
        case=row.case,
        implementation=row.implementation,
        exit_code=1,
        rule="wrong",
        reason=f"{what}: {outcome.reason}",
    )
    return GateRow(workload=workload.name, path=workload.source.path, decision=decision)


def _digests(
    case: Case | None,
    outcome: Outcome | None,
    pinned_on: str,
    hardware: str,
    plan: pipeline.Options,
    read: digest.Read,
) -> tuple[str, str]:
    """Problem and protocol as of now: of the run where it measured, else of the workload as it is.

    A pin of another kind of device was taken by another timer: its protocol is that of a run there.
    """
    if case is None:
        return "", ""
    if isinstance(outcome, Timed) and pinned_on == hardware:
        return outcome.problem, outcome.protocol
    timer = timer_on(case, pinned_on, plan.timer if pinned_on == hardware else None)
    protocol = digest.protocol(case, timer, plan.placements, plan.rounds)
    if isinstance(outcome, Timed):
        return outcome.problem, protocol
    return digest.problem(case, read), protocol


def timer_on(case: Case, hardware: str, asked: TimerName | None = None) -> TimerName:
    """The timer that a case has on a class of hardware: `harness.timed.choose`, without its refusals."""
    on_cpu = hardware.startswith("cpu-")
    named = asked or case.workload.timer.name
    if named is not None and (named == "wall") == on_cpu:
        return named
    return "wall" if on_cpu else "proton"


def _same_code(pinned: PinnedRow | None, outcome: Outcome | None) -> bool:
    return (
        pinned is not None and isinstance(outcome, Timed) and same_code_as_pinned(pinned, outcome)
    )


def _allowance(pinned: PinnedRow | None, outcome: Outcome | None, kept: store.KeptRun) -> float:
    unit = outcome.unit if isinstance(outcome, Timed) else None
    here = unit or kept.run.machine.unit or "none"
    return 0.0 if pinned is None or pinned.unit == here else OTHER_UNIT


def environment_of(waiting: Sequence[Open], kept: store.KeptRun) -> Environment:
    """What the rows say whose code is the pin's: a change of theirs is everything but code."""
    unchanged: list[tuple[PinnedRow, Estimate]] = []
    for item in waiting:
        facts, pinned = item.facts, item.facts.pinned
        comparable = (
            pinned is not None
            and facts.known
            and facts.sealed
            and facts.same_code
            and facts.pinned_on == kept.run.machine.hardware
            and (facts.problem, facts.protocol) == (pinned.problem, pinned.protocol)
        )
        if comparable and pinned is not None and isinstance(facts.outcome, Timed):
            unchanged.append((pinned, facts.outcome.estimate))
    return shift_since_pins(unchanged)


def with_facts(item: Open, **facts: object) -> Open:
    """The item, which knows these facts from now on."""
    item.facts = replace(item.facts, **facts)  # type: ignore[arg-type]
    return item
