"""From a workload to its cases: every axis bound, every expression folded as far as the case knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirbench.diagnostics import Problems
from tirbench.errors import InputError
from tirbench.expand.binder import Report
from tirbench.expand.case import Plan, Unbound, bind_case
from tirbench.expand.checks import DEFAULT_RTOL
from tirbench.expand.order import derivation_order
from tirbench.expand.parts import Parts
from tirbench.expand.points import (
    FIELD,
    MAX_CASES,
    bound_names,
    count,
    default_template,
    matches,
    points,
    selections,
)
from tirbench.expand.tensors import Memo

if TYPE_CHECKING:
    from tirbench.model import Case, Function, Path, Workload

__all__ = ["DEFAULT_RTOL", "MAX_CASES", "count", "expand"]


def expand(workload: Workload) -> tuple[Case, ...]:
    """All cases of a workload, skipped ones included, the last axis varying fastest.

    Only the tensors that a case uses are in it. Case values are literals; what only a device or the
    contents of tensors can tell is `Code`, so the cases are the same on every machine.

    Raises:
        InputError: with everything that is wrong with any case, each place once.
    """
    problems = Problems(workload.source.path, workload.source.text)
    number = count(workload)
    if number > MAX_CASES:
        message = f"{number:,} cases; a workload has at most {MAX_CASES:,}"
        problems.add("TB036", ("matrix",), message, hint="split it, or list the cases in [[case]]")
        raise InputError(problems.diagnostics())
    report = Report(problems)
    try:
        plan = _plan(workload)
        cases = _bind_all(plan, report)
    except RecursionError:
        problems.add("TB025", (), "names and shapes are defined through one another too deeply")
        raise InputError(problems.diagnostics()) from None
    report.close()
    if not problems:
        _check_selections(plan, cases, problems)
        _check_skips(plan, problems)
    if problems:
        raise InputError(problems.diagnostics())
    return tuple(cases)


def _plan(workload: Workload) -> Plan:
    """What all cases share."""
    return Plan(
        workload=workload,
        template=workload.id or default_template(bound_names(workload)),
        derived=derivation_order(workload),
        selections=selections(workload),
        makers=_makers(workload),
        memo={},
        tensors=Memo(workload),
        parts=Parts(workload),
        skips_hit=set(),
    )


def _makers(workload: Workload) -> dict[str, list[Function]]:
    """By tensor the functions that compute it or, through a view, part of it."""
    made = {name: init for init in workload.inits for name in init.returns if name != "_"}
    found: dict[str, list[Function]] = {}
    for tensor in workload.tensors:
        if tensor.name in made:
            found.setdefault(tensor.name, []).insert(0, made[tensor.name])
            if tensor.view is not None:
                found.setdefault(tensor.view, []).append(made[tensor.name])
    return found


def _bind_all(plan: Plan, report: Report) -> list[Case]:
    """The cases that can be bound; ids are held against each other."""
    cases: list[Case] = []
    seen: dict[str, tuple[tuple[str, object], ...]] = {}
    for point, where in points(plan.workload):
        try:
            case = bind_case(plan, point, where, report)
        except Unbound:
            continue
        if case.id in seen:
            path: Path = ("id",) if plan.workload.id is not None else where
            _note_twins(case.id, seen[case.id], point, plan.template, report, path)
        seen.setdefault(case.id, point)
        cases.append(case)
    return cases


def _note_twins(
    identity: str,
    first: tuple[tuple[str, object], ...],
    second: tuple[tuple[str, object], ...],
    template: str,
    report: Report,
    path: Path,
) -> None:
    """Note two cases of one id, and which axis would tell them apart."""
    other = dict(second)
    differing = [name for name, value in first if other[name] != value]
    missing = [name for name in differing if name not in FIELD.findall(template)]
    detail = f"{missing[0]} is not in the id" if missing else "the cases are equal"
    report.add("TB033", path, f"two cases have the id '{identity}'", case=identity, detail=detail)


def _check_selections(plan: Plan, cases: list[Case], problems: Problems) -> None:
    """Note globs that select nothing."""
    for name, globs in plan.workload.select:
        for index, glob in enumerate(globs):
            if not any(matches(case.id, glob) for case in cases):
                from tirbench.diagnostics import did_you_mean

                hint = did_you_mean(glob, (case.id for case in cases), "the ids are")
                path: Path = ("select", name, index)
                problems.add("TB034", path, f"'{glob}' selects no case", hint=hint)


def _check_skips(plan: Plan, problems: Problems) -> None:
    """Note skips that no case met."""
    for index, skip in enumerate(plan.workload.skips):
        if index not in plan.skips_hit:
            message = f"no case is skipped: {skip.when.text} never holds"
            problems.add("TB034", (*skip.path, "when"), message, hint="remove it, or correct it")
