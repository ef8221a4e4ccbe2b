"""Bind what a case is held against: the oracle, the rule of each output, the work, the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tirbench.expression import Site, describe, site
from tirbench.model import BoundCheck, BoundOutput, BoundWork, OutputCheck
from tirbench.values import Code, Dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tirbench.expand.binder import Binder
    from tirbench.expression import Layout
    from tirbench.model import Check, Work, Workload
    from tirbench.values import Bound

DEFAULT_RTOL: Final[dict[str, float]] = {
    "float64": 1e-9,
    "float32": 1e-5,
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float8_e4m3fn": 0.07,
    "float8_e5m2": 0.13,
}
"""Relative tolerance by dtype where none is given (LANGUAGE, default tolerance); others are exact."""


def bind_check(workload: Workload, layouts: Mapping[str, Layout], binder: Binder) -> BoundCheck:
    """The oracle and one rule for each checked tensor, in the order the tensors are defined."""
    check = workload.check
    if check.oracle is None:
        return BoundCheck(dtype=check.dtype, disabled=check.disabled)
    where = Site(what="an argument of the oracle", gathers=workload.ranks is not None)
    oracle = binder.function(check.oracle, where)
    seed_path = ("check", "oracle", "grad", "seed")
    seed = None if check.grad_seed is None else binder.given(check.grad_seed, seed_path, where)
    return BoundCheck(
        oracle=oracle,
        dtype=check.dtype,
        grad=check.grad,
        grad_seed=seed,
        outputs=tuple(_output(rule, layouts, binder) for rule in rules(workload, check)),
        disabled=check.disabled,
    )


def rules(workload: Workload, check: Check) -> list[OutputCheck]:
    """The rule of every tensor that the oracle returns or `[check.outputs]` names."""
    written = {output.tensor: output for output in check.outputs}
    returned = set(check.oracle.returns) if check.oracle else set()
    return [
        written.get(tensor.name) or OutputCheck(tensor=tensor.name, path=("check", "oracle"))
        for tensor in workload.tensors
        if tensor.name in returned or tensor.name in written
    ]


def _output(rule: OutputCheck, layouts: Mapping[str, Layout], binder: Binder) -> BoundOutput:
    """One rule with its numbers; looser than the default needs a reason."""
    _check_region(rule, layouts, binder)
    numbers = {
        name: binder.number(getattr(rule, name), (*rule.path, name), name)
        for name in ("rtol", "atol", "matched", "relative_l2", "cosine")
    }
    for name in ("matched", "cosine"):
        share = numbers[name]
        if share is not None and share > 1:
            binder.note("TB061", (*rule.path, name), f"'{name}' is at most 1, got {share}")
    _check_weaker(rule, numbers, layouts[rule.tensor].dtype, binder)
    return BoundOutput(
        tensor=rule.tensor,
        path=rule.path,
        exact=rule.exact,
        **numbers,
        not_worse_than=rule.not_worse_than,
        rows=rule.rows,
        lengths=rule.lengths,
        mask=rule.mask,
        through=binder.function(rule.through),
        allow_nan=rule.allow_nan,
        allow_inf=rule.allow_inf,
        unchecked=rule.unchecked,
        reason=rule.reason,
    )


def _check_region(rule: OutputCheck, layouts: Mapping[str, Layout], binder: Binder) -> None:
    """A region is given by whole numbers, or by a mask of booleans."""
    for key in ("rows", "lengths", "mask"):
        name = getattr(rule, key)
        if name is None:
            continue
        dtype = layouts[name].dtype
        if key == "mask" and dtype != "bool":
            binder.note("TB023", (*rule.path, key), f"a mask is bool, but '{name}' is {dtype:s}")
        elif key != "mask" and (dtype.floating or dtype == "bool"):
            message = f"'{key}' takes an integer tensor, but '{name}' is {dtype:s}"
            binder.note("TB023", (*rule.path, key), message)


def _check_weaker(
    rule: OutputCheck, numbers: dict[str, float | None], dtype: Dtype, binder: Binder
) -> None:
    """Refuse a tolerance looser than the default of the dtype that gives no reason.

    `atol` takes the place of `rtol * rms(want)`, so it is held against the default at an rms of one.
    """
    if rule.reason is not None:
        return
    default = DEFAULT_RTOL.get(dtype, 0.0)
    for name in ("rtol", "atol"):
        given = numbers[name]
        if given is not None and given > default:
            message = f"'{name}' {given:g} is looser than the default of {dtype:s}, {default:g}"
            binder.note("TB062", (*rule.path, name), message, hint='add reason = "…"')
    matched = numbers["matched"]
    if matched is not None and matched < 1:
        message = f"'matched' {matched:g} lets elements be wrong"
        binder.note("TB062", (*rule.path, "matched"), message, hint='add reason = "…"')


def bind_work(work: Work, binder: Binder) -> BoundWork:
    """The least work; numbers that the case knows must be positive."""
    bound: dict[str, Bound] = {}
    for name in ("flops", "bytes"):
        argument = getattr(work, name)
        if argument is None:
            continue
        value = bound[name] = binder.bind(argument, ("work", name), site(f"'{name}'"))
        if isinstance(value, Code) or (value is None and binder.failed):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            message = f"'{name}' must be a number, got {describe(value)}"
            binder.note("TB023", ("work", name), message, argument)
        elif not 0 <= value < float("inf"):
            message = f"'{name}' must be finite and not negative, got {value}"
            binder.note("TB014", ("work", name), message, argument)
    roof = binder.dtype(work.roof, ("work", "roof")) if work.roof is not None else None
    return BoundWork(**bound, roof=roof)


def bind_gate(workload: Workload, binder: Binder) -> float:
    """The fraction from which a slowdown counts."""
    path = ("gate", "slower_than")
    value = binder.number(workload.gate.slower_than, path, "slower_than")
    if value is not None and not 0 < value < 1:
        message = f"slower_than is a fraction between 0 and 1 (0.01 is 1 %), got {value:g}"
        binder.note("TB014", path, message, workload.gate.slower_than)
    return value or 0.01
