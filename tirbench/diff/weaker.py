"""What makes a workload's numbers easier to reach or harder to doubt: every rule of MEASURING, section 7.

The rules look at bound cases, so that a tolerance that grew through a parameter is seen like one that was
written down; what is the same in several cases is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tirbench.diff import easier
from tirbench.diff.classes import written
from tirbench.diff.found import Found
from tirbench.model import (
    BoundCheck,
    BoundImplementation,
    BoundOutput,
    Case,
    Path,
    Requirements,
    Weakening,
    Workload,
)
from tirbench.values import DTYPES

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

PRECISION: Final = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
L2: Final = ("cold-dirty", "cold-clean", "warm")
"""From the hardest to the easiest."""
COMPILED: Final = ("max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead", "default", None)


def weakenings(
    old: Task, new: Task, place: Callable[[Workload, Path], str]
) -> tuple[Weakening, ...]:
    """Everything that HEAD makes easier than BASE, each once.

    Args:
        old: the workload at BASE.
        new: the same at HEAD.
        place: the line of a path of a workload.
    """
    found: dict[tuple[str, str, str | None, str | None], list[str]] = {}
    paths: dict[tuple[str, str, str | None, str | None], Path] = {}

    def note(case: str, one: Found) -> None:
        key = (one.subject, one.text, one.implementation, one.reason)
        found.setdefault(key, []).append(case)
        paths.setdefault(key, one.path)

    for one in _of_workload(old.workload, new.workload):
        note("", one)
    for case_id, before in old.cases.items():
        after = new.cases.get(case_id)
        if after is not None:
            for one in _of_case(old, new, before, after):
                note(case_id, one)
    for one in _of_cases(old, new):
        note("", one)
    shared = [case for case in old.cases if case in new.cases]
    return tuple(
        Weakening(
            workload=new.workload.name,
            subject=subject,
            text=text,
            implementation=implementation,
            reason=reason,
            cases=() if "" in cases or len(cases) == len(shared) else tuple(cases),
            place=place(new.workload, paths[subject, text, implementation, reason]),
        )
        for (subject, text, implementation, reason), cases in found.items()
    )


# --- Of the whole workload ------------------------------------------------------------------------


def _of_workload(old: Workload, new: Workload) -> Iterator[Found]:
    yield from _removed(old, new)
    yield from _timer(old, new)
    if old.gate.reference != new.gate.reference and old.gate.reference is not None:
        now = new.gate.reference or "none"
        text = f"the gate's reference {old.gate.reference} → {now}"
        yield Found(subject="gate", text=text, path=("gate", "reference"))
    kept = {written(one) for one in new.asserts}
    for one in old.asserts:
        if written(one) not in kept:
            yield Found(subject="assert", text=f"{written(one)} removed", path=("assert",))
    yield from _needs_more("workload", old.requires, new.requires, ("requires",))
    names = {one.name: one for one in new.tensors}
    for tensor in old.tensors:
        now_tensor = names.get(tensor.name)
        if now_tensor is not None and tensor.reason and not now_tensor.reason:
            yield Found(
                subject=f"tensor {tensor.name}", text="its reason was deleted", path=now_tensor.path
            )


def _removed(old: Workload, new: Workload) -> Iterator[Found]:
    for word, before, after, table in (
        ("kernel", old.kernels, new.kernels, "kernels"),
        ("reference", old.references, new.references, "references"),
    ):
        left = {one.name for one in after}
        added = [one for one in after if one.name not in {item.name for item in before}]
        for one in before:
            if one.name in left:
                continue
            same = next(
                (item.name for item in added if written(item.steps) == written(one.steps)), None
            )
            text = "removed" if same is None else f"renamed to {same}: its pinned rows are lost"
            path = (table,)
            yield Found(subject=f"{word} {one.name}", text=text, path=path, implementation=one.name)


def _timer(old: Workload, new: Workload) -> Iterator[Found]:
    before, after = old.timer, new.timer
    if L2.index(after.l2) > L2.index(before.l2):
        yield Found(subject="timer", text=f"l2 {before.l2} → {after.l2}", path=("timer", "l2"))
    if (before.regime, after.regime) == ("sustained", "burst"):
        yield Found(subject="timer", text="regime sustained → burst", path=("timer", "regime"))
    for name in ("rounds", "warmup", "repeat", "cudagraph_rep", "cooldown_s"):
        was, now = getattr(before, name), getattr(after, name)
        if was is not None and (now is None or now < was):
            shown = "the default" if now is None else f"{now:g}"
            yield Found(subject="timer", text=f"{name} {was:g} → {shown}", path=("timer", name))


def _needs_more(subject: str, old: Requirements, new: Requirements, path: Path) -> Iterator[Found]:
    """A machine that could measure before is refused now, or an older version is let in."""
    for name in ("device", "capability", "memory"):
        was, now = getattr(old, name), getattr(new, name)
        if now is not None and written(was) != written(now):
            text = f"requires {name} {written(was)} → {written(now)}: fewer machines measure it"
            yield Found(subject=subject, text=text, path=path)
    before, after = (_bounds(one.packages) for one in (old, new))
    for name, bound in before.items():
        now_bound = after.get(name)
        if now_bound is None:
            yield Found(subject=subject, text=f"requires {name} {bound} removed", path=path)
        elif _lowest(now_bound) < _lowest(bound):
            text = f"requires {name} {bound} → {now_bound}: an older version will do"
            yield Found(subject=subject, text=text, path=path)
    for name in after.keys() - before.keys():
        text = f"requires {name}: left out where it is not installed"
        yield Found(subject=subject, text=text, path=path)


def _bounds(packages: Iterable[str]) -> dict[str, str]:
    from packaging.requirements import Requirement  # 10 ms that most comparisons need not pay

    parsed = [Requirement(text) for text in packages]
    return {one.name: str(one.specifier) for one in parsed}


def _lowest(specifier: str) -> Any:
    """The lowest version that a specifier lets in."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    lower = [
        Version(one.version.removesuffix(".*"))
        for one in SpecifierSet(specifier)
        if one.operator in {">=", ">", "==", "~="}
    ]
    return max(lower, default=Version("0"))


# --- Of the set of cases --------------------------------------------------------------------------


def _of_cases(old: Task, new: Task) -> Iterator[Found]:
    gone = [case for case in old.cases if case not in new.cases]
    fresh = {new.problem(case): case for case in new.cases if case not in old.cases}
    for case in gone:
        if fresh.pop(old.problem(case), None) is None:
            yield Found(subject=f"case {case}", text="removed", path=("matrix",))


def renamed(old: Task, new: Task) -> tuple[tuple[str, str], ...]:
    """Cases that have another id and compute the same."""
    fresh = {new.problem(case): case for case in new.cases if case not in old.cases}
    pairs = [
        (case, fresh.pop(old.problem(case), None)) for case in old.cases if case not in new.cases
    ]
    return tuple((case, now) for case, now in pairs if now is not None)


# --- Of one case ----------------------------------------------------------------------------------


def _of_case(old: Task, new: Task, before: Case, after: Case) -> Iterator[Found]:
    yield from _selected(new.workload, before, after)
    yield from _checked(old, new, before, after)
    yield from easier.easier_inputs(before, after)
    if after.slower_than > before.slower_than:
        text = f"slower_than {before.slower_than:g} → {after.slower_than:g}"
        yield Found(subject="gate", text=text, path=("gate", "slower_than"))
    if old.problem(before.id) == new.problem(after.id):
        yield from _work(before, after)
    if before.prepare is None and after.prepare is not None:
        text = f"{after.prepare.target} now runs before every launch, untimed"
        yield Found(subject="ranks", text=text, path=("ranks",))
    by_name = {one.name: one for one in after.implementations}
    for one in before.implementations:
        now = by_name.get(one.name)
        if now is not None:
            yield from _implementation(before, after, one, now)


def _selected(workload: Workload, before: Case, after: Case) -> Iterator[Found]:
    if before.skipped is None and after.skipped is not None:
        path = next((one.path for one in workload.skips if one.reason == after.skipped), ("skip",))
        yield Found(subject="case", text="skipped now", reason=after.skipped, path=path)
    for name in ("default", "smoke"):
        if name in before.selected_by and name not in after.selected_by:
            yield Found(subject="case", text=f"out of `{name}`", path=("select", name))


def _work(before: Case, after: Case) -> Iterator[Found]:
    """More work for the same problem makes a better rate of the same time."""
    for name in ("flops", "bytes"):
        was, now = getattr(before.work, name), getattr(after.work, name)
        if _number(was) and _number(now) and now > was:
            text = f"{name} {was:,.0f} → {now:,.0f} for the same problem"
            yield Found(subject="work", text=text, path=("work", name))
        elif written(was) != written(now) and not (_number(was) and _number(now)):
            text = f"{name} is another expression for the same problem"
            yield Found(subject="work", text=text, path=("work", name))
    if before.work.roof is not None and before.work.roof != after.work.roof:
        now = after.work.roof
        if now is None or DTYPES[now][0] > DTYPES[before.work.roof][0]:
            text = f"roof {before.work.roof} → {now or 'none'}: a lower ceiling"
            yield Found(subject="work", text=text, path=("work", "roof"))


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- Implementations ------------------------------------------------------------------------------


def _implementation(
    before: Case, after: Case, old: BoundImplementation, new: BoundImplementation
) -> Iterator[Found]:
    word = "kernel" if new.role == "kernel" else "reference"
    subject = f"{word} {new.name}"

    def found(text: str, reason: str | None = None) -> Found:
        return Found(
            subject=subject, text=text, path=new.path, implementation=new.name, reason=reason
        )

    if old.skipped is None and new.skipped is not None and after.skipped is None:
        yield found("skipped now", new.skipped)
    if old.unchecked is None and new.unchecked is not None:
        yield found("is no longer checked", new.unchecked)
    looser = [1.0 if one.looser is None else one.looser for one in (old, new)]
    if looser[1] > looser[0]:
        said = new.reason if new.reason != old.reason else None
        yield found(f"tolerance times {looser[0]:g} → {looser[1]:g}", said)
    yield from (
        Found(subject=subject, text=one.text, path=new.path, implementation=new.name)
        for one in _needs_more(subject, old.requires, new.requires, new.path)
    )
    yield from map(found, _moved(before, after, old, new))
    if new.role == "reference":
        yield from map(found, _reference(old, new))
    lost = set(_computed(before, old)) - set(_computed(after, new))
    for name in sorted(lost & {one.tensor for one in after.check.outputs}):
        yield found(f"no longer computes {name}")


def _moved(
    before: Case, after: Case, old: BoundImplementation, new: BoundImplementation
) -> Iterator[str]:
    """Work that was timed and is not any more."""
    targets = [step.target for step in new.steps]
    untimed = {one.target for one in after.inits} - {one.target for one in before.inits}
    if new.context is not None:
        untimed.add(new.context.target)
    if after.prepare is not None:
        untimed.add(after.prepare.target)
    for step in old.steps:
        if step.target in targets:
            now = new.steps[targets.index(step.target)]
            if step.kind != "build" and now.kind == "build":
                yield f"{step.target} is now built once and no longer launched whole"
        elif len(new.steps) < len(old.steps):
            where = "moved out of what is timed" if step.target in untimed else "no longer timed"
            yield f"step {step.target} {where}"
    if old.context is None and new.context is not None:
        yield f"runs within {new.context.target} now, which is not timed"


def _reference(old: BoundImplementation, new: BoundImplementation) -> Iterator[str]:
    were, are = ([step.target for step in one.steps] for one in (old, new))
    if were != are:
        yield f"target {', '.join(were)} → {', '.join(are)}"
        return
    for before, after in zip(old.steps, new.steps, strict=True):
        was, now = (dict(step.options).get("compile") for step in (before, after))
        if was != now and _rank(now) > _rank(was):
            yield f"compile {was} → {now or 'none'}"


def _rank(mode: object) -> int:
    return COMPILED.index(mode) if mode in COMPILED else 0


def _computed(case: Case, one: BoundImplementation) -> list[str]:
    """The outputs that an implementation is checked for: those it returns, or all that it is given."""
    from tirbench.launch.emit import names_in

    outputs = [tensor.name for tensor in case.tensors if tensor.role in {"out", "inout"}]
    given = {name for step in one.steps for name in names_in(step.args)}
    return [name for name in outputs if name in one.returns or name in given]


# --- The check ------------------------------------------------------------------------------------


def _checked(old: Task, new: Task, before: Case, after: Case) -> Iterator[Found]:
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
        for text in _looser(rule, current, dtypes.get(rule.tensor, "")):
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


def _same_rule(one: BoundOutput, other: BoundOutput) -> bool:
    """Whether two rules demand the same, whatever is said of them."""
    return written(replace(one, reason=None)) == written(replace(other, reason=None))


def _oracle(old: Task, new: Task, was: BoundCheck, now: BoundCheck) -> Iterator[Found]:
    path: Path = ("check", "oracle")
    if _known(was, now) and PRECISION.index(now.dtype) > PRECISION.index(was.dtype):
        text = f"computes in {now.dtype} instead of {was.dtype}"
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


def _known(was: BoundCheck, now: BoundCheck) -> bool:
    return was.dtype in PRECISION and now.dtype in PRECISION


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
