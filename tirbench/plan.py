"""Cases → Jobs: what runs, how far each row goes, and what is answered before anything starts.

On a CUDA device every selected case is verified and timed. Without one, smoke cases are verified (Triton
kernels in the interpreter), the cases of the `cpu` list are timed by `wall` where an implementation runs on
a CPU, and every other row says why it was not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal

from tirbench.launch import imports_of
from tirbench.model import (
    Baseline,
    BoundImplementation,
    BoundLaunch,
    Case,
    CaseJob,
    DeadlineChoice,
    Job,
    Plan,
    Row,
    Skipped,
)

NO_GPU: Final = "no GPU here: a default case is verified and timed on a CUDA device"
ASKED: Final = "only verified, as asked"
NOT_ON_CPU: Final = "a smoke case, not in the cpu list of [select]: verified, not timed"
INTERPRETER: Final = "Triton's interpreter verifies smoke cases only; this one is timed on a CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the user asked to be done with the selected cases.

    `explicit` cases were named one by one: they run whatever lists they are in. `deadlines` come before
    those of the workload. `baseline` is what is pinned of the workload on this hardware: tuned kernels take
    the configurations that are pinned there, unless `retune` is asked for.
    """

    plan: Plan
    verify: bool = True
    time: bool = True
    explicit: bool = False
    deadlines: DeadlineChoice = field(default_factory=DeadlineChoice)
    baseline: Baseline | None = None
    retune: bool = False


@dataclass(slots=True)
class Planned:
    """Jobs by workload, and the rows that are answered already."""

    jobs: list[Job] = field(default_factory=list)
    answered: list[Skipped] = field(default_factory=list)


def rows_of(case: Case) -> tuple[Row, ...]:
    """Every row of a case, kernels first."""
    return tuple(
        Row(workload=case.workload.name, case=case.id, implementation=item.name, role=item.role)
        for item in case.implementations
    )


def plan(cases: Iterable[tuple[str, Sequence[Case]]], ask: Ask) -> Planned:
    """Decide for every row of every case.

    Args:
        cases: per workload, the path of its harness and the selected cases.
        ask: what is to be done with them.
    """
    planned = Planned()
    for harness, of_workload in cases:
        jobs = [
            job
            for case in of_workload
            if (job := _case_job(case, ask, planned.answered)) is not None
        ]
        if jobs:
            workload = of_workload[0].workload
            planned.jobs.append(
                Job(
                    workload=workload.name,
                    harness=harness,
                    plan=ask.plan,
                    cases=tuple(jobs),
                    deadlines=_over(workload.deadlines, ask.deadlines),
                    imports=imports_of(_launches(of_workload, jobs)),
                )
            )
    return planned


def _launches(cases: Sequence[Case], jobs: Sequence[CaseJob]) -> Iterator[BoundLaunch]:
    """Those of the rows that are asked for."""
    asked = {(row.case, row.implementation) for job in jobs for row in job.rows}
    for case in cases:
        for one in case.implementations:
            if (case.id, one.name) in asked:
                yield from one.steps


def _over(below: DeadlineChoice, above: DeadlineChoice) -> DeadlineChoice:
    """The deadlines of `below` where `above` says nothing."""
    chosen = {field.name: getattr(above, field.name) for field in fields(above)}
    return replace(below, **{name: s for name, s in chosen.items() if s is not None})


def _case_job(case: Case, ask: Ask, answered: list[Skipped]) -> CaseJob | None:
    rows = dict(zip(rows_of(case), case.implementations, strict=True))
    reasons = {row: _reason(case, item, ask) for row, item in rows.items()}
    answered.extend(
        Skipped(row=row, reason=reason) for row, reason in reasons.items() if reason is not None
    )
    asked = tuple(row for row, reason in reasons.items() if reason is None)
    if not asked:
        return None
    untimed = "" if ask.time else ASKED
    if ask.time and ask.plan.device == "cpu" and not ask.explicit and "cpu" not in case.selected_by:
        untimed = NOT_ON_CPU
    return CaseJob(
        case=case.id,
        rows=asked,
        verify=ask.verify,
        time=not untimed,
        untimed=untimed,
        configurations=_configurations(asked, ask),
    )


def _configurations(rows: Iterable[Row], ask: Ask) -> tuple[tuple[str, str], ...]:
    """What was chosen for the tuned kernels among the rows when they were pinned, by implementation."""
    if ask.retune or ask.baseline is None:
        return ()
    pinned = {(row.case, row.implementation): row.configuration for row in ask.baseline.rows}
    chosen = ((row.implementation, pinned.get((row.case, row.implementation))) for row in rows)
    return tuple((name, configuration) for name, configuration in chosen if configuration)


def _reason(case: Case, item: BoundImplementation, ask: Ask) -> str | None:
    """Why a row is not run; `None` where it is."""
    if (skipped := case.skipped or item.skipped) is not None:
        return skipped
    if case.world_size is not None and case.world_size > 1:
        return (
            f"needs {case.world_size} ranks: `tirbench compile` it, then torchrun --nproc-per-node "
            f"{case.world_size} build/{case.workload.name}.py"
        )
    free = ask.plan.device == "cuda" or ask.explicit
    if not free and not case.selected_by & {"smoke", "cpu"}:
        return NO_GPU
    needed: Literal["cuda", "cpu"] | None = item.requires.device or case.workload.requires.device
    if needed is not None and needed != ask.plan.device:
        return f"needs a {'CUDA device' if needed == 'cuda' else 'CPU'}"
    if free:
        return None
    if "smoke" not in case.selected_by and any(step.kind == "triton" for step in item.steps):
        return INTERPRETER
    return None
