"""Rows that trip: measured again, or compared with the code of their pin, until each has its decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tirbench.gating.pins import commit_of_pin, origin_of_anchor
from tirbench.gating.rows import Open, with_facts
from tirbench.judge import gate, same_code_as_pinned
from tirbench.model import (
    Failed,
    GateDecision,
    GateRow,
    GateStep,
    Outcome,
    Row,
    Timed,
    Verdict,
    Wrong,
)
from tirbench.store import revisions

UNPAIRED_PLACEMENTS: Final = 10
"""K where a row is measured without the code of its pin beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A row that tripped, and the commit that holds the code of its pin, or of its anchor."""

    row: Row
    commit: str


Measure: TypeAlias = "Callable[[Sequence[Row], int], Sequence[Outcome]]"
"""Runs rows in fresh workers on so many placement seeds."""

Confirm: TypeAlias = "Callable[[Sequence[Suspect]], Mapping[str, Verdict]]"
"""`ab` of each row against its commit: verdicts by `Row.key`; a row without one cannot be compared."""


def judged(
    root: Path,
    waiting: list[Open],
    measure: Measure | None,
    confirm: Confirm | None,
    why_not: str,
) -> Iterator[GateRow]:
    """Decide; measure what must be measured, all rows of a step together; decide again.

    Args:
        root: the project's folder.
        waiting: rows without a decision.
        measure: as in `gate_run`.
        confirm: as in `gate_run`.
        why_not: the sentence that says why nothing is measured.
    """
    while waiting:
        steps: dict[str, list[Open]] = {}
        for item in waiting:
            answer = gate(item.facts)
            if isinstance(answer, GateStep) and answer.step == "confirm" and item.commit is None:
                answer = gate(_with_code(root, item, answer.against).facts)
            if isinstance(answer, GateDecision):
                yield _row(item, answer)
            elif measure is None or (answer.step == "confirm" and confirm is None):
                yield _row(item, _to_measure(item, answer, why_not))
            else:
                steps.setdefault(answer.step, []).append(item)
        waiting = []
        for step, items in steps.items():
            if measure is not None:
                yield from _measured(step, items, measure, confirm, waiting)


def _with_code(root: Path, item: Open, against: Literal["pin", "anchor"]) -> Open:
    """The item with the commit whose code it is compared with, or the knowledge that git has none."""
    facts = item.facts
    if facts.pinned is None:
        return with_facts(item, confirmable=False)
    if against == "pin":
        item.commit = commit_of_pin(root, item.path, facts.pinned, facts.pinned_on)
    else:
        origin = origin_of_anchor(root, item.path, facts.pinned, facts.pinned_on)
        if origin is not None:
            item.commit = origin.commit
            same = isinstance(facts.outcome, Timed) and same_code_as_pinned(
                origin.row, facts.outcome
            )
            return with_facts(item, same_code_as_anchor=same)
    return item if item.commit else with_facts(item, confirmable=False)


def _measured(
    step: str,
    items: list[Open],
    measure: Measure,
    confirm: Confirm | None,
    waiting: list[Open],
) -> Iterator[GateRow]:
    """Carry out one step; rows with an answer go on waiting for their decision."""
    if step == "confirm" and confirm is not None:
        verdicts = confirm(
            [Suspect(row=item.row, commit=item.commit) for item in items if item.commit is not None]
        )
        for item in items:
            verdict = verdicts.get(item.row.key)
            change = {"confirmation": verdict} if verdict else {"confirmable": False}
            waiting.append(with_facts(item, **change))
        return
    placements = UNPAIRED_PLACEMENTS if step == "unpaired" else 0
    outcomes = {o.row.key: o for o in measure([item.row for item in items], placements)}
    for item in items:
        outcome = outcomes.get(item.row.key)
        if isinstance(outcome, Timed):
            waiting.append(with_facts(item, **{step: outcome.estimate}))
        elif isinstance(outcome, Wrong | Failed):
            waiting.append(with_facts(item, outcome=outcome))  # which the gate has a rule for
        else:
            why = getattr(outcome, "reason", "") or getattr(outcome, "untimed", "") or "no answer"
            yield _row(item, _unmeasured(item, f"tripped, and could not be measured again: {why}"))


def _to_measure(item: Open, step: GateStep, why_not: str) -> GateDecision:
    """The row answers 3, with the command that would decide it."""
    case = f"{item.path}::{item.facts.case}"
    if step.step == "confirm":
        command = f"tirbench ab {revisions.short(item.commit or 'BASE')} {case}"
    else:
        command = f"tirbench exec {case} && tirbench gate"
    because = f"{why_not}; " if why_not else ""
    return _unmeasured(item, f"{step.reason}; {because}this decides it: {command}")


def _unmeasured(item: Open, reason: str) -> GateDecision:
    facts = item.facts
    timed = facts.outcome if isinstance(facts.outcome, Timed) else None
    ratio = timed.estimate.midmean_us / facts.pinned.midmean_us if timed and facts.pinned else None
    return GateDecision(
        case=facts.case,
        implementation=facts.implementation,
        exit_code=3,
        rule="remeasure",
        reason=reason,
        ratio=ratio,
    )


def _row(item: Open, decision: GateDecision) -> GateRow:
    facts = item.facts
    return GateRow(
        workload=item.row.workload,
        path=item.path,
        decision=decision,
        pinned_us=None if facts.pinned is None else facts.pinned.midmean_us,
        midmean_us=facts.outcome.estimate.midmean_us if isinstance(facts.outcome, Timed) else None,
    )
