"""What is written otherwise: every field by its class, cases that came or got other values, edited files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from tirbench.diff import weaker
from tirbench.diff.classes import Leaf, leaves, written
from tirbench.diff.side import Side, Task
from tirbench.digest import closure
from tirbench.model import Change, FieldClass, Path, Workload

Place: TypeAlias = Callable[[Workload, Path], str]
"""The line of a path of a workload: `workloads/x.toml:12`."""

AS_WRITTEN: Final = ("param ", "derive ")
"""What may enter the problem, the launch, the check, or nothing: its class is that of what it changed."""


def changes(base: Side, head: Side, place: Place) -> Iterator[Change]:
    """Everything that HEAD writes otherwise, workload by workload."""
    for name, new in sorted(head.tasks.items()):
        old = base.tasks.get(name)
        if old is not None and not new.is_untouched(old):
            yield from _written(old, new, place)
            yield from _cases(old, new, place)
            yield from _code(old, new, place)


def _written(old: Task, new: Task, place: Place) -> Iterator[Change]:
    shared = [case for case in old.cases if case in new.cases]
    other_problem = tuple(c for c in shared if old.problem(c) != new.problem(c))
    other_source = tuple(
        case
        for case in shared
        if any(
            new.implementation((case, one.name)) is not None
            and old.source((case, one.name)) != new.source((case, one.name))
            for one in old.cases[case].implementations
        )
    )
    for leaf in leaves(old.workload, new.workload):
        kind, cases = _class_of(leaf, other_problem, other_source)
        if leaf.what == "cases" or leaf.what.startswith("axis "):
            continue  # cases that came, went, or have other values are named one by one
        side = new if leaf.in_head else old
        yield Change(
            workload=new.workload.name,
            kind=kind,
            subject=leaf.subject or "workload",
            what=leaf.what,
            old=leaf.old,
            new=leaf.new,
            cases=() if len(cases) == len(shared) else cases,
            place=place(side.workload, _path(leaf)),
        )


def _path(leaf: Leaf) -> Path:
    """Where a change stands: the key itself, where it is written."""
    word, _, key = leaf.what.partition(" ")
    tables = {"param": "params", "derive": "derive", "list": "select"}
    return (tables[word], key) if word in tables and key else (*leaf.path, leaf.what)


def _class_of(
    leaf: Leaf, other_problem: tuple[str, ...], other_source: tuple[str, ...]
) -> tuple[FieldClass, tuple[str, ...]]:
    """The class of a change and the cases it touches."""
    if leaf.what.startswith(AS_WRITTEN):
        if other_problem:
            return "identity", other_problem
        return ("implementation", other_source) if other_source else ("contract", ())
    if leaf.kind == "identity":
        return leaf.kind, other_problem
    return leaf.kind, other_source if leaf.kind == "implementation" else ()


def _cases(old: Task, new: Task, place: Place) -> Iterator[Change]:
    again = dict(weaker.renamed(old, new))
    name = new.workload.name
    for (axis, was, now), cases in _other_values(old, new).items():
        yield Change(
            workload=name,
            kind=_kind_of(old, new, cases),
            subject="cases",
            what=axis,
            old=was,
            new=now,
            cases=tuple(cases),
            place=place(new.workload, ("matrix",)),
        )
    for before, after in again.items():
        yield Change(
            workload=name,
            kind="cosmetic",
            subject=f"case {before}",
            what="renamed",
            old=before,
            new=after,
            place=place(new.workload, ("id",)),
        )
    for case in new.cases:
        if case not in old.cases and case not in again.values():
            yield Change(
                workload=name,
                kind="contract",
                subject=f"case {case}",
                what="",
                old=None,
                new="added",
                place=place(new.workload, ("matrix",)),
            )


def _other_values(old: Task, new: Task) -> dict[tuple[str, str, str], list[str]]:
    """Values of axes that cases have otherwise under the same id: axis, old, new → cases."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for case_id, case in new.cases.items():
        before = dict(old.cases[case_id].values) if case_id in old.cases else None
        for axis, value in case.values if before is not None else ():
            was = None if before is None else before.get(axis)
            if was != value:
                found.setdefault((axis, written(was), written(value)), []).append(case_id)
    return found


def _kind_of(old: Task, new: Task, cases: Sequence[str]) -> FieldClass:
    """What other values of an axis change for these cases."""
    if any(old.problem(case) != new.problem(case) for case in cases):
        return "identity"
    for case in cases:
        for one in new.cases[case].implementations:
            key = (case, one.name)
            if old.implementation(key) is not None and old.source(key) != new.source(key):
                return "implementation"
    return "contract"


def _code(old: Task, new: Task, place: Place) -> Iterator[Change]:
    """Files whose text differs where what is written in the workload does not say so."""
    seen: set[tuple[str, str]] = set()
    for key in new.keys:
        before, after = old.implementation(key), new.implementation(key)
        if before is None or after is None or old.source(key) == new.source(key):
            continue
        for step in after.steps:
            for file in _other_files(old, new, step.target):
                if (after.name, file) not in seen:
                    seen.add((after.name, file))
                    yield Change(
                        workload=new.workload.name,
                        kind="implementation",
                        subject=f"{after.role} {after.name}",
                        what=f"code of {file}",
                        old=None,
                        new="edited",
                        place=place(new.workload, after.path),
                    )
    for case_id, case in new.cases.items():
        before_case = old.cases.get(case_id)
        befores = {one.returns: one for one in before_case.inits} if before_case else {}
        for init in case.inits:
            was = befores.get(init.returns)
            mark = ("init", ", ".join(init.returns))
            if was is not None and mark not in seen and old.text_of(was) != new.text_of(init):
                seen.add(mark)
                yield Change(
                    workload=new.workload.name,
                    kind="identity",
                    subject=f"init of {mark[1]}",
                    what=f"code of {init.target}",
                    old=None,
                    new="edited",
                    place=place(new.workload, init.path),
                )


def _other_files(old: Task, new: Task, target: str) -> list[str]:
    file, colon, _ = target.rpartition(":")
    if not colon:
        return []
    folder = new.workload.source.folder
    path = f"{folder}/{file}" if folder else file
    before, after = closure.files(path, old.read), closure.files(path, new.read)
    return sorted(one for one in {*before, *after} if before.get(one) != after.get(one))
