"""Bind the implementations of a case: arguments, options of their kind, requirements."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

from tirbench.expand.binder import CALL, Item, bound_arguments, tensors_in, whole_numbers
from tirbench.expression import Expression, describe, site
from tirbench.launch import kind_of
from tirbench.model import (
    BoundFunction,
    BoundImplementation,
    BoundLaunch,
    Requirements,
)
from tirbench.values import OMIT, Bound, Code, CScalar, Dtype, Phase, TensorRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tirbench.expand.binder import Binder
    from tirbench.launch import Option
    from tirbench.model import Implementation, Launch, Path

_NOTHING: Final = Requirements()

GRID_LIMITS: Final = (2**31 - 1, 65_535, 65_535)
"""CUDA's limits of a grid's three dimensions."""

MAX_THREADS: Final = 1_024
"""CUDA's limit of the threads of a block."""


def bind_implementation(
    implementation: Implementation,
    common: Requirements,
    skipped: str | None,
    binder: Binder,
) -> BoundImplementation:
    """One implementation; nothing of a skipped one is bound but its name."""
    steps: tuple[BoundLaunch, ...] = ()
    context: BoundFunction | None = None
    requires = implementation.requires
    if skipped is None:
        steps = tuple(bind_launch(step, binder) for step in implementation.steps)
        context = binder.function(implementation.context)
        requires = _requirements(requires, common, implementation.path, binder)
        requires = _of_kinds(requires, implementation.steps)
    return BoundImplementation(
        name=implementation.name,
        role=implementation.role,
        path=implementation.path,
        steps=steps,
        returns=implementation.returns,
        context=context,
        requires=requires,
        unchecked=implementation.unchecked,
        skipped=skipped,
        looser=None if skipped is not None else _looser(implementation, binder),
        reason=implementation.reason,
    )


def _looser(implementation: Implementation, binder: Binder) -> float | None:
    """What a reference's tolerances are multiplied by: more than one, and with a reason."""
    path = (*implementation.path, "looser")
    factor = binder.number(implementation.looser, path, "looser")
    if factor is None:
        return None
    if factor < 1:
        binder.note("TB061", path, f"'looser' is at least 1, got {factor:g}")
    if factor > 1 and implementation.reason is None:
        message = f"'{implementation.name}' is held to {factor:g} times the tolerance"
        binder.note("TB062", path, message, hint='add reason = "…"')
    return factor


def bind_launch(launch: Launch, binder: Binder) -> BoundLaunch:
    """One launch, checked against the limits of its kind."""
    syntax = kind_of(launch.kind).syntax
    items = list(binder.items(launch.args, (*launch.path, "args"), CALL))
    _check_scalars(items, launch.kind, syntax.c_scalars, binder)
    options: list[tuple[str, Bound]] = []
    for key, value in launch.options:
        bound = _option(value, syntax.options[key], (*launch.path, key), key, binder)
        if bound is not OMIT:
            options.append((key, bound))
            if launch.kind in ("triton", "cuda"):
                _check_option(key, bound, (*launch.path, key), binder)
    return BoundLaunch(
        kind=launch.kind,
        target=launch.target,
        path=launch.path,
        args=bound_arguments(items),
        options=tuple(options),
    )


def tensors_of(implementation: BoundImplementation) -> dict[str, None]:
    """The tensors that an implementation takes, reads or returns."""
    if implementation.skipped is not None:
        return {}
    found = tensors_in(implementation.context) if implementation.context else {}
    for step in implementation.steps:
        found.update(tensors_in(step.args))
        for key, value in step.options:
            found.update(tensors_in(value))
            if key == "grad":
                gradient: dict[str, Any] = dict(value)  # type: ignore[arg-type]  # pairs, as _option made it
                found.update(dict.fromkeys(gradient["of"]))
    found.update(dict.fromkeys(name for name in implementation.returns if name != "_"))
    return found


def _option(value: object, option: Option, path: Path, key: str, binder: Binder) -> Bound:
    """One option bound by its form."""
    match option.form:
        case "expr" | "exprs":
            return _bind_exprs(value, option, path, key, binder)
        case "grad":
            gradient: dict[str, Any] = dict(value)  # type: ignore[call-overload]  # pairs, as load made it
            seed = binder.given(gradient["seed"], (*path, "seed"), site("a gradient's seed"))
            return ("of", gradient["of"]), ("seed", seed)
        case _:
            return value  # type: ignore[return-value]  # text, or a tuple of texts


def _bind_exprs(value: object, option: Option, path: Path, key: str, binder: Binder) -> Bound:
    """An expression or a list of them; names that only a tuner knows are left to it."""
    if isinstance(value, tuple):
        return tuple(
            _bind_exprs(item, option, (*path, i), key, binder) for i, item in enumerate(value)
        )
    where = site(f"'{key}'", option.latest)
    if option.tuned and isinstance(value, Expression):
        scope = binder.scope
        meta = [n for n in value.names if n not in scope.values and n not in scope.tensors]
        where = replace(where, meta=frozenset(meta)) if meta else where
    return binder.bind(value, path, where)  # type: ignore[arg-type]  # an argument by its form


def _check_scalars(items: list[Item], kind: str, c_scalars: bool, binder: Binder) -> None:
    """Hold arguments against what the kind can pass: C widths where there are C types."""
    for _, value, argument, path in items:
        if not c_scalars and isinstance(value, CScalar):
            message = f"{value.ctype}() makes a C scalar, which a {kind} launch does not take"
            binder.note("TB023", path, message, argument)
        elif c_scalars and not isinstance(value, TensorRef | CScalar | None):
            message = f"a number needs a C width, got {describe(value)}"
            binder.note("TB023", path, message, argument, hint="write int32(…) or float32(…)")


def _check_option(key: str, value: Bound, path: Path, binder: Binder) -> None:
    """Hold an option that the case knows against what the hardware can do."""
    if key in ("flags", "include"):
        return
    sizes = value if isinstance(value, tuple) else (value,)
    for i, size in enumerate(sizes):
        place = (*path, i) if isinstance(value, tuple) else path
        if isinstance(size, Code) or (size is None and binder.failed):
            continue
        if key == "template":
            if not isinstance(size, bool | int | Dtype):
                message = f"a template takes integers, booleans and dtypes, got {describe(size)}"
                binder.note("TB023", place, message)
        elif isinstance(size, bool) or not isinstance(size, int):
            hint = "divide with //" * isinstance(size, float)
            message = f"'{key}' takes whole numbers, got {describe(size)}"
            binder.note("TB023", place, message, hint=hint)
        else:
            _check_size(key, size, i, place, binder)
    threads = prod(whole_numbers(sizes))
    if key == "block" and threads > MAX_THREADS:
        message = f"a block has at most {MAX_THREADS:,} threads, got {threads:,}"
        binder.note("TB055", path, message)


def _check_size(key: str, size: int, dimension: int, path: Path, binder: Binder) -> None:
    """Hold one number of an option against its limits."""
    least = 0 if key == "shared_bytes" else 1
    if size < least:
        binder.note("TB055", path, f"'{key}' must be at least {least}, got {size}")
    elif key == "grid" and size > GRID_LIMITS[dimension]:
        message = f"dimension {dimension} of a grid is at most {GRID_LIMITS[dimension]:,}"
        binder.note("TB055", path, f"{message}, got {size:,}")
    elif key == "num_warps" and size & (size - 1):
        binder.note("TB055", path, f"'num_warps' must be a power of two, got {size}")


def _of_kinds(requires: Requirements, steps: Iterable[Launch]) -> Requirements:
    """The requirements with the device of kinds that run on one alone, where none is asked for."""
    devices = {kind_of(step.kind).syntax.device for step in steps} - {None}
    if requires.device is not None or len(devices) != 1:
        return requires
    return replace(requires, device=devices.pop())


def _requirements(
    own: Requirements, common: Requirements, path: Path, binder: Binder
) -> Requirements:
    """What the implementation and its workload require together, with `memory` as a number."""
    if common == _NOTHING and own.memory is None:
        return own
    where_read = site("a size of memory", Phase.CASE)
    sizes = []
    for memory, where in ((own.memory, path), (common.memory, ())):
        if memory is not None:
            place = (*where, "requires", "memory")
            size = binder.integer(memory, place, where_read, least=0, what="memory")
            sizes += [size] if isinstance(size, int) else []
    bounds = [bound for bound in (common.capability, own.capability) if bound]
    return Requirements(
        device=own.device or common.device,
        capability=",".join(bounds) or None,
        memory=max(sizes) if sizes else None,
        packages=tuple(dict.fromkeys((*common.packages, *own.packages))),
    )
