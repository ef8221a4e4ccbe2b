"""What makes a workload's numbers easier to reach or harder to doubt: every rule of MEASURING, section 7.

The rules look at bound cases, so that a tolerance that grew through a parameter is seen like one that was
written down; what is the same in several cases is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tirbench.diff.checks import weaker_check
from tirbench.diff.classes import written
from tirbench.diff.easier import easier_inputs
from tirbench.diff.found import Found
from tirbench.diff.promises import needs_more, weaker_implementation
from tirbench.model import (
    Case,
    Path,
    Weakening,
    Workload,
)
from tirbench.values import DTYPES

if TYPE_CHECKING:
    from tirbench.diff.side import Task

L2: Final = ("cold-dirty", "cold-clean", "warm")
"""From the hardest to the easiest."""


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
    yield from needs_more("workload", old.requires, new.requires, ("requires",))
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
    yield from weaker_check(old, new, before, after)
    yield from easier_inputs(before, after)
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
            yield from weaker_implementation(before, after, one, now)


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
