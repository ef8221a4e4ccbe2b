"""Bind one case: its names, whether it is skipped, and everything it uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tirbench.expand.binder import Binder, Report, tensors_in
from tirbench.expand.checks import bind_check, bind_gate, bind_work
from tirbench.expand.launches import bind_implementation, tensors_of
from tirbench.expand.parts import Parts
from tirbench.expand.points import Globs, case_id
from tirbench.expand.tensors import Layouts, Memo, used_by
from tirbench.expression import (
    Expression,
    ExpressionError,
    Scope,
    Site,
    bind,
    describe,
    evaluate,
    is_value,
)
from tirbench.model import BoundCheck, BoundImplementation, BoundWork, Case
from tirbench.values import Phase

if TYPE_CHECKING:
    from tirbench.expand.points import Point
    from tirbench.model import (
        Argument,
        BoundFunction,
        BoundTensor,
        Function,
        Implementation,
        Path,
        Workload,
    )
    from tirbench.values import Bound, Value

_DERIVED = Site(what="a derived name", layouts=False)
_CONDITION = Site(what="a condition", latest=Phase.CASE, layouts=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all cases of a workload share.

    `derived` is in an order in which each name comes after those it reads; `skips_hit` collects the
    indices of the skips that some case met; `memo`, `tensors` and `parts` what earlier cases found out;
    `makers` the functions that compute a tensor or, through a view, part of it.
    """

    workload: Workload
    template: str
    derived: tuple[tuple[str, Argument], ...]
    selections: dict[str, Globs]
    makers: dict[str, list[Function]]
    memo: dict[tuple[object, ...], Value]
    tensors: Memo
    parts: Parts
    skips_hit: set[int]


class Unbound(Exception):
    """The case could not be bound; why is in the report."""


def bind_case(plan: Plan, point: Point, where: Path, report: Report) -> Case:
    """One case.

    Raises:
        Unbound: something in it has no value; the report says what.
    """
    workload = plan.workload
    values: dict[str, Value] = {**dict(workload.params), **dict(point), "seed": workload.seed}
    later: dict[str, Bound] = {}
    scope = Scope(
        values=values,
        later=later,
        ranked=workload.ranks is not None,
        memo=plan.memo,
    )
    binder = Binder(scope, report, _describe_point(point))
    layouts = scope.tensors = Layouts(plan.tensors, binder)
    broken = _derive(plan, values, later, scope)
    identity = _identify(plan, values, where, broken, binder)
    binder.case = identity
    skipped, partly = _skips(plan, broken, binder)
    if skipped is not None:
        return _skipped_case(plan, identity, point, skipped)
    for name, (error, argument) in broken.items():
        binder.note("TB022", ("derive", name), error.message, argument, span=error.span)
    _assert(workload, binder)
    if binder.failed:
        raise Unbound
    return _bind(plan, identity, point, partly, layouts, binder)


def _derive(
    plan: Plan, values: dict[str, Value], later: dict[str, Bound], scope: Scope
) -> dict[str, tuple[ExpressionError, Argument]]:
    """Resolve the derived names; those without a value are only an error if the case is not skipped."""
    broken: dict[str, tuple[ExpressionError, Argument]] = {}
    for name, argument in plan.derived:
        if broken and _reads(argument) & broken.keys():
            continue
        try:
            bound = bind(argument, scope, _DERIVED)
        except ExpressionError as error:
            broken[name] = (error, argument)
            continue
        if is_value(bound):
            values[name] = bound  # type: ignore[assignment]  # narrowed by is_value
        else:
            later[name] = bound
    return broken


def _reads(argument: Argument) -> frozenset[str]:
    """The names in an argument."""
    if isinstance(argument, Expression):
        return frozenset(argument.names)
    if isinstance(argument, tuple):
        return frozenset().union(*map(_reads, argument))
    return frozenset()


def _identify(
    plan: Plan,
    values: dict[str, Value],
    where: Path,
    broken: dict[str, tuple[ExpressionError, Argument]],
    binder: Binder,
) -> str:
    """The id of the case.

    Raises:
        Unbound: it has none.
    """
    try:
        return case_id(plan.template, values)
    except KeyError as error:
        name = error.args[0]
        if name in broken:
            cause, argument = broken[name]
            binder.note("TB022", ("derive", name), cause.message, argument, span=cause.span)
        else:
            message = f"the id needs '{name}', which only the device or the data know"
            binder.note("TB032", ("id",), message)
    except ValueError as error:
        path: Path = ("id",) if plan.workload.id is not None else where
        binder.note("TB032", path, str(error), hint="ids are letters, digits and _ . , = + @ % -")
    raise Unbound


def _skips(
    plan: Plan, broken: dict[str, tuple[ExpressionError, Argument]], binder: Binder
) -> tuple[str | None, dict[str, str]]:
    """The reason why the whole case is skipped, if it is, and those of single implementations."""
    whole: str | None = None
    partly: dict[str, str] = {}
    for index, skip in enumerate(plan.workload.skips):
        if broken and _reads(skip.when) & broken.keys():
            continue
        if not _holds(skip.when, (*skip.path, "when"), binder):
            continue
        plan.skips_hit.add(index)
        if not skip.implementations:
            whole = whole or skip.reason
        for name in skip.implementations:
            partly.setdefault(name, skip.reason)
    return whole, partly


def _holds(condition: Expression, path: Path, binder: Binder) -> bool:
    """Whether a condition holds; noted where it is none."""
    try:
        value = evaluate(condition, binder.scope, _CONDITION)
    except ExpressionError as error:
        binder.note("TB022", path, error.message, condition, hint=error.hint, span=error.span)
        return True
    if not isinstance(value, bool):
        message = f"a condition is true or false, got {describe(value)}"
        binder.note("TB023", path, message, condition, hint="compare it with something")
        return True
    return value


def _assert(workload: Workload, binder: Binder) -> None:
    """Note every assertion that does not hold."""
    for index, condition in enumerate(workload.asserts):
        path: Path = ("assert", index)
        if not _holds(condition, path, binder):
            binder.note("TB035", path, f"does not hold: {condition.text}", condition)


def _bind(
    plan: Plan,
    identity: str,
    point: Point,
    partly: dict[str, str],
    layouts: Layouts,
    binder: Binder,
) -> Case:
    """The case with everything in it bound.

    Raises:
        Unbound: something has no value.
    """
    workload = plan.workload
    parts = plan.parts
    implementations: list[BoundImplementation] = []
    used: dict[str, None] = {}
    for item in (*workload.kernels, *workload.references):
        skipped = partly.get(item.name)
        implementation, needed = parts.get(
            item.path, binder, partial(_implementation, item, workload, skipped, binder), skipped
        )
        implementations.append(implementation)
        used.update(needed)
    check, needed = parts.get(("check",), binder, partial(_check, workload, layouts, binder))
    used.update(needed)
    work, needed = parts.get(("work",), binder, partial(_work, workload, binder))
    used.update(needed)
    slower_than = bind_gate(workload, binder)
    world_size, prepare = _ranks(workload, binder)
    used.update(tensors_in(prepare))
    tensors, inits = _tensors(plan, used, layouts, binder)
    if binder.failed:
        raise Unbound
    return Case(
        workload=workload,
        id=identity,
        values=point,
        tensors=tensors,
        inits=inits,
        implementations=tuple(implementations),
        check=check,
        work=work,
        slower_than=slower_than,
        selected_by=_selected_by(plan, identity),
        world_size=world_size,
        prepare=prepare,
    )


def _skipped_case(plan: Plan, identity: str, point: Point, reason: str) -> Case:
    """A case of which nothing runs: its implementations are named, so that each can be answered for."""
    workload = plan.workload
    return Case(
        workload=workload,
        id=identity,
        values=point,
        tensors=(),
        inits=(),
        implementations=tuple(
            BoundImplementation(
                name=item.name, role=item.role, path=item.path, steps=(), skipped=reason
            )
            for item in (*workload.kernels, *workload.references)
        ),
        check=BoundCheck(),
        work=BoundWork(),
        slower_than=0.01,
        selected_by=_selected_by(plan, identity),
        skipped=reason,
    )


def _implementation(
    item: Implementation, workload: Workload, skipped: str | None, binder: Binder
) -> tuple[BoundImplementation, dict[str, None]]:
    """An implementation and the tensors that it names."""
    bound = bind_implementation(item, workload.requires, skipped, binder)
    return bound, tensors_of(bound)


def _check(
    workload: Workload, layouts: Layouts, binder: Binder
) -> tuple[BoundCheck, dict[str, None]]:
    """What the case is held against, and the tensors that it names."""
    check = bind_check(workload, layouts, binder)
    used = tensors_in(check.oracle, check.grad_seed)
    used.update(dict.fromkeys(check.grad))
    for output in check.outputs:
        regions = (output.tensor, output.rows, output.lengths, output.mask)
        used.update(dict.fromkeys(name for name in regions if name is not None))
        used.update(tensors_in(output.through))
    return check, used


def _work(workload: Workload, binder: Binder) -> tuple[BoundWork, dict[str, None]]:
    """The least work, and the tensors whose contents it reads."""
    work = bind_work(workload.work, binder)
    return work, tensors_in(work.flops, work.bytes)


def _tensors(
    plan: Plan, used: dict[str, None], layouts: Layouts, binder: Binder
) -> tuple[tuple[BoundTensor, ...], tuple[BoundFunction, ...]]:
    """The tensors of the case and the functions that compute some of them, in definition order.

    What is used is followed to what it needs: bases, initialisers' tensors, functions and their inputs.
    """
    bound: dict[str, BoundTensor] = {}
    calls: dict[Path, BoundFunction] = {}
    waiting = [name for name in used if name in layouts.tensors]
    while waiting:
        name = waiting.pop()
        if name in bound:
            continue
        tensor = bound[name] = layouts.bound(name)
        waiting.extend(used_by(tensor))
        for maker in plan.makers.get(name, ()):
            if maker.path not in calls:
                call = plan.parts.get(maker.path, binder, partial(binder.function, maker))
                assert call is not None  # noqa: S101 - a function is given
                calls[maker.path] = call
                waiting.extend(tensors_in(call))
                waiting.extend(name for name in maker.returns if name != "_")
    inits = tuple(calls[init.path] for init in plan.workload.inits if init.path in calls)
    return tuple(bound[t.name] for t in plan.workload.tensors if t.name in bound), inits


def _ranks(workload: Workload, binder: Binder) -> tuple[int | None, BoundFunction | None]:
    """The number of ranks and what runs on each before a launch."""
    if workload.ranks is None:
        return None, None
    site = Site(what="the number of ranks", latest=Phase.CASE)
    path: Path = ("ranks", "world_size")
    size = binder.integer(workload.ranks.world_size, path, site, least=1, what="world_size")
    return size if isinstance(size, int) else None, binder.function(workload.ranks.prepare)


def _selected_by(plan: Plan, identity: str) -> frozenset[str]:
    """The names of the selections that the case belongs to."""
    return frozenset([name for name, globs in plan.selections.items() if globs.match(identity)])


def _describe_point(point: Point) -> str:
    """A case before it has an id: `(hidden = 4096, batch = 128)`."""
    return "(" + ", ".join(f"{name} = {value!r}" for name, value in point) + ")"
