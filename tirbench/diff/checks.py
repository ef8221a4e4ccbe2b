"""What the check of a case no longer finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tirbench.diff.classes import written
from tirbench.diff.found import Found
from tirbench.model import BoundCheck, BoundOutput, Case, Path

if TYPE_CHECKING:
    from tirbench.diff.side import Task

DEFAULT_RTOL: Final = {
    "float64": 1e-9,
    "float32": 1e-5,
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float8_e4m3fn": 0.07,
    "float8_e5m2": 0.13,
}
"""As `tirbench.check` has them, which needs torch to be imported; a test holds the two together."""

ORACLE: Final = ("float64", "float32", "same")
"""What an oracle may compute in, from the most exact: `same` is never more than the tensors have."""


def weaker_check(old: Task, new: Task, before: Case, after: Case) -> Iterator[Found]:
    """What is let through that was not.

    Args:
        old: the workload at BASE.
        new: the same at HEAD.
        before: the case at BASE.
        after: the same at HEAD.
    """
    was, now = before.check, after.check
    if was.disabled is None and now.disabled is not None:
        yield Found(
            subject="check", text="nothing is checked now", reason=now.disabled, path=("check",)
        )
        return
    yield from _oracle(old, new, was, now)
    if set(was.grad) - set(now.grad):
        text = f"gradients of {', '.join(sorted(set(was.grad) - set(now.grad)))} no longer checked"
        yield Found(subject="check", text=text, path=("check", "oracle"))
    rules = {one.tensor: one for one in now.outputs}
    dtypes = {tensor.name: str(tensor.dtype) for tensor in after.tensors}
    for rule in was.outputs:
        current = rules.get(rule.tensor)
        if current is None:
            if rule.unchecked is None:
                yield Found(
                    subject=f"output {rule.tensor}", text="no longer checked", path=("check",)
                )
            continue
        said = current.reason if current.reason != rule.reason else None
        looser = [*_looser(rule, current, dtypes.get(rule.tensor, ""))]
        for text in (*looser, *_other_region(old, new, (before, after), rule, current)):
            yield Found(
                subject=f"output {rule.tensor}",
                text=text,
                path=(*current.path, text.partition(" ")[0]),  # most begin with their key
                reason=said,
            )
        if rule.unchecked is None and current.unchecked is not None:
            yield Found(
                subject=f"output {rule.tensor}",
                text="no longer checked",
                path=current.path,
                reason=current.unchecked,
            )
        if rule.reason and not current.reason and _same_rule(rule, current):
            yield Found(
                subject=f"output {rule.tensor}", text="its reason was deleted", path=current.path
            )


def _other_region(
    old: Task, new: Task, cases: tuple[Case, Case], was: BoundOutput, now: BoundOutput
) -> Iterator[str]:
    """The sentence about a region of the same name whose tensor holds something else."""
    for name in ("rows", "lengths", "mask"):
        tensor = getattr(now, name)
        if tensor is None or tensor != getattr(was, name):
            continue
        if _contents(old, cases[0], tensor) != _contents(new, cases[1], tensor):
            yield f"other elements are compared: {name} {tensor} has other contents"


def _contents(task: Task, case: Case, name: str) -> tuple[str, ...]:
    """What a tensor is filled with, as it is written: its word of `init`, and functions that make it."""
    words = [written((one.shape, one.init)) for one in case.tensors if one.name == name]
    makers = [one for one in case.inits if name in one.returns]
    return (*words, *(f"{written(one.args)} {sorted(task.text_of(one).items())}" for one in makers))


def _same_rule(one: BoundOutput, other: BoundOutput) -> bool:
    """Whether two rules demand the same, whatever is said of them."""
    return written(replace(one, reason=None)) == written(replace(other, reason=None))


def _oracle(old: Task, new: Task, was: BoundCheck, now: BoundCheck) -> Iterator[Found]:
    path: Path = ("check", "oracle")
    if ORACLE.index(now.dtype) > ORACLE.index(was.dtype):
        words = [
            "the dtype of the tensors" if one.dtype == "same" else one.dtype for one in (now, was)
        ]
        text = f"computes in {words[0]} instead of {words[1]}"
        yield Found(subject="oracle", text=text, path=("check", "dtype"))
    if was.oracle is None:
        return
    if now.oracle is None:
        yield Found(subject="oracle", text=f"{was.oracle.target} removed", path=("check",))
        return
    if was.oracle.target != now.oracle.target:
        kernels = {step.target for one in new.workload.kernels for step in one.steps}
        whose = ", which is a kernel under test" if now.oracle.target in kernels else ""
        text = f"{was.oracle.target} → {now.oracle.target}{whose}"
        yield Found(subject="oracle", text=text, path=path)
    elif old.text_of(was.oracle) != new.text_of(now.oracle):
        yield Found(subject="oracle", text="its code is another one", path=path)
    if was.oracle.target == now.oracle.target and written(was.oracle.args) != written(
        now.oracle.args
    ):
        yield Found(subject="oracle", text="is called with other arguments", path=path)


def _looser(was: BoundOutput, now: BoundOutput, dtype: str) -> Iterator[str]:
    """The sentences about one output's rule."""
    if was.exact and not now.exact:
        yield f"exact → {_kind(now)}"
    elif _elementwise(was) and not _elementwise(now) and not now.exact:
        yield f"every element → {_kind(now)} only"
    elif not now.exact:
        yield from _numbers(was, now, dtype)
    if was.not_worse_than is not None and now.not_worse_than is None:
        yield f"may be worse than {was.not_worse_than} now"
    for name in ("rows", "lengths", "mask"):
        before, after = getattr(was, name), getattr(now, name)
        if before != after and after is not None:
            yield f"only the elements of {name} {after} are compared ({name} was {before or 'none'})"
        elif before is not None and after is None:
            yield f"what is outside of {name} {before} need not stay as it was"
    through = (was.through, now.through)
    if through[1] is not None and (through[0] is None or through[0].target != through[1].target):
        yield f"compared through {through[1].target}"
    if now.allow_nan and not was.allow_nan:
        yield "NaN is allowed now"
    if now.allow_inf and not (was.allow_inf or was.allow_nan):
        yield "infinities are allowed now"


def _numbers(was: BoundOutput, now: BoundOutput, dtype: str) -> Iterator[str]:
    default = DEFAULT_RTOL.get(dtype)
    if not was.exact and _elementwise(was) and _elementwise(now):
        old_rtol, new_rtol = (_rtol(one, default) for one in (was, now))
        if new_rtol > old_rtol:
            yield f"rtol {_said(was.rtol, default)} → {_said(now.rtol, default)}"
        if now.atol is not None and (was.atol is None or now.atol > was.atol):
            yield f"atol {_said(was.atol, None)} → {now.atol:g}"
        if now.matched is not None and now.matched < (1.0 if was.matched is None else was.matched):
            yield f"matched {'all' if was.matched is None else format(was.matched, 'g')} → {now.matched:g}"
    for name, looser in (("relative_l2", 1), ("cosine", -1)):
        before, after = getattr(was, name), getattr(now, name)
        if before is not None and (after is None or looser * after > looser * before):
            yield f"{name} {before:g} → {'none' if after is None else format(after, 'g')}"


def _rtol(rule: BoundOutput, default: float | None) -> float:
    """The relative tolerance that holds; with `atol` alone there is none."""
    if rule.rtol is not None:
        return rule.rtol
    return 0.0 if rule.atol is not None or default is None else default


def _said(number: float | None, default: float | None) -> str:
    if number is not None:
        return f"{number:g}"
    return "none" if default is None else f"{default:g} (the default)"


def _elementwise(rule: BoundOutput) -> bool:
    """Whether every element has a tolerance, be it the default one: as `tirbench.check.Rule`."""
    if any(one is not None for one in (rule.rtol, rule.atol, rule.matched)):
        return True
    return not rule.exact and rule.relative_l2 is None and rule.cosine is None


def _kind(rule: BoundOutput) -> str:
    if rule.matched is not None:
        return f"{rule.matched:g} of the elements within a tolerance"
    if _elementwise(rule):
        return "within a tolerance"
    names = [name for name in ("relative_l2", "cosine") if getattr(rule, name) is not None]
    return " and ".join(names)
