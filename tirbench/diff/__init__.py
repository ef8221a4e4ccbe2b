"""What HEAD has otherwise than BASE, in the words of the domain: from expanded workloads and baselines.

Nothing that a workload names is imported; files are read and digested. Weakening comes first everywhere.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from tirbench.diff import pins, weaker
from tirbench.diff.classes import CLASSES, EVIDENCE, Leaf, leaves, written
from tirbench.diff.side import Key, Pins, Side, Task
from tirbench.digest import closure
from tirbench.model import (
    Change,
    CodeChange,
    Compilation,
    CompiledSuite,
    Diff,
    FieldClass,
    Path,
    Row,
    Weakening,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Place: TypeAlias = "Callable[[Workload, Path], str]"

AS_WRITTEN: Final = ("param ", "derive ")
"""What may enter the problem, the launch, the check, or nothing: its class is that of what it changed."""


def compare(
    base: Side,
    head: Side,
    *,
    place: Place,
    reasons: Sequence[tuple[str, str]] = (),
    facts: tuple[CompiledSuite, CompiledSuite] | None = None,
) -> Diff:
    """Compare two sides.

    Args:
        base: what is there.
        head: what is proposed.
        place: the line of a path of a workload: `workloads/x.toml:12`.
        reasons: what authors say of weakenings: a glob of `workload`, `workload/implementation`,
            `workload/case` or `workload/case/implementation`, and the sentence.
        facts: what `aot` says of both sides.
    """
    moved = pins.changes(base, head)
    found = [
        one
        for name, old in sorted(base.tasks.items())
        if (new := head.tasks.get(name)) is not None and not new.is_untouched(old)
        for one in weaker.weakenings(old, new, place)
    ]
    found += _deleted(base, head)
    found += pins.weakenings(base, head, moved)
    code, notes = _code_changes(facts)
    same_code = _same_code(facts)
    measure = tuple(_to_measure(base, head, same_code))
    return Diff(
        base=base.name,
        head=head.name,
        weakenings=tuple(_with_reason(one, reasons) for one in found),
        problems=tuple(pins.problems(base, head)),
        pins=moved,
        changes=tuple(_changes(base, head, place)),
        code=tuple(code),
        notices=(*_added(base, head), *pins.notices(head, moved), *notes),
        measure=measure,
        measure_files=tuple(
            sorted({head.tasks[row.workload].workload.source.path for row in measure})
        ),
        invalid=tuple(f"{path}: {why}" for path, why in sorted(head.unreadable.items())),
        rows=sum(len(task.keys) for task in head.tasks.values()),
        unchanged=sum(1 for _ in _unchanged(base, head)),
    )


def exit_code(diff: Diff) -> int:
    """2 for files that cannot be read, 1 for weakening without a reason or rows that cannot stand."""
    if diff.invalid:
        return 2
    unexplained = any(not one.reason for one in diff.weakenings)
    return 1 if unexplained or diff.problems else 0


# --- Weakening ------------------------------------------------------------------------------------


def _deleted(base: Side, head: Side) -> Iterator[Weakening]:
    known = {task.workload.source.path for task in head.tasks.values()} | set(head.unreadable)
    for name, old in sorted(base.tasks.items()):
        path = old.workload.source.path
        if name not in head.tasks and path not in known:
            text = f"deleted, with {len(old.cases)} cases"
            yield Weakening(workload=name, subject="workload", text=text, place=path)


def _with_reason(one: Weakening, reasons: Sequence[tuple[str, str]]) -> Weakening:
    if one.reason:
        return one
    names = {one.workload, *(f"{one.workload}/{case}" for case in one.cases)}
    if one.subject.startswith("case "):
        names.add(f"{one.workload}/{one.subject.removeprefix('case ')}")
    if one.implementation is not None:
        names |= {f"{name}/{one.implementation}" for name in names}
    for pattern, reason in reasons:
        if any(fnmatch.fnmatchcase(name, pattern) for name in names):
            return replace(one, reason=reason)
    return one


# --- Changes --------------------------------------------------------------------------------------


def _changes(base: Side, head: Side, place: Place) -> Iterator[Change]:
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


# --- Rows -----------------------------------------------------------------------------------------


def _unchanged(base: Side, head: Side) -> Iterator[Key]:
    """Rows of which nothing differs that a number, or the trust in it, depends on."""
    for name, new in head.tasks.items():
        old = base.tasks.get(name)
        if old is None or new.is_untouched(old):
            yield from new.keys if old else ()
            continue
        for key in new.keys:
            if old.implementation(key) is None or old.problem(key[0]) != new.problem(key[0]):
                continue
            checks = [side.cases[key[0]].check for side in (old, new)]
            if old.source(key) == new.source(key) and _same_check(*checks):
                yield key


def _same_check(old: object, new: object) -> bool:
    return written(old) == written(new)


def _to_measure(base: Side, head: Side, same_code: frozenset[str]) -> Iterator[Row]:
    """Pinned or new rows whose problem, protocol or code is not that of their pin."""
    missing = {one.subject for one in pins.problems(base, head) if one.kind == "missing"}
    for name, task in sorted(head.tasks.items()):
        pinned = [one for one in head.pins.values() if one.baseline.workload == name]
        if task.is_untouched(base.tasks.get(name)) and all(
            base.pins.get(one.path) == one for one in pinned
        ):
            continue
        for key in task.keys:
            one = task.implementation(key)
            assert one is not None  # noqa: S101 - the key is from there
            row = Row(workload=name, case=key[0], implementation=key[1], role=one.role)
            rows = [side.rows[key] for side in pinned if key in side.rows]
            stale = any(
                row_.problem != task.problem(key[0])
                or pins.placements_of(task.cases[key[0]], row_.protocol) is None
                or row_.source != task.source(key)
                for row_ in rows
            )
            new = any(text.startswith(f"{row.key} on ") for text in missing)
            if new or (stale and not _is_same(base, task, key, row, same_code)):
                yield row


def _is_same(base: Side, task: Task, key: Key, row: Row, same_code: frozenset[str]) -> bool:
    """Whether a row with another source compiles to the same code and is launched alike."""
    old = base.tasks.get(row.workload)
    before, after = (None if old is None else old.implementation(key)), task.implementation(key)
    if old is None or before is None or after is None or row.key not in same_code:
        return False
    return written(before.steps) == written(after.steps) and old.problem(key[0]) == task.problem(
        key[0]
    )


def _added(base: Side, head: Side) -> Iterator[str]:
    for name, new in sorted(head.tasks.items()):
        if name not in base.tasks:
            path = new.workload.source.path
            again = " (it could not be read at BASE)" if path in base.unreadable else ""
            yield f"{name}: a new workload with {len(new.cases)} cases{again}"


# --- Machine code ---------------------------------------------------------------------------------


def _by_row(suite: CompiledSuite) -> dict[tuple[str, str], Compilation]:
    return {(one.row.key, one.arch): one for one in suite.compilations}


def _same_code(facts: tuple[CompiledSuite, CompiledSuite] | None) -> frozenset[str]:
    """Rows whose machine code is the same on both sides, on every architecture."""
    if facts is None or facts[0].compilers != facts[1].compilers:
        return frozenset()
    olds, news = map(_by_row, facts)
    other = {
        row for (row, arch), one in news.items() if _digest(olds.get((row, arch))) != _digest(one)
    }
    return frozenset(row for (row, _), one in news.items() if one.code and row not in other)


def _digest(one: Compilation | None) -> str | None:
    return None if one is None or one.code is None else one.code.digest


def _code_changes(
    facts: tuple[CompiledSuite, CompiledSuite] | None,
) -> tuple[list[CodeChange], list[str]]:
    if facts is None:
        return [], []
    if facts[0].compilers != facts[1].compilers:
        names = [", ".join(" ".join(pair) for pair in side.compilers) for side in facts]
        text = f"compiled by {names[0]} at BASE and {names[1]} at HEAD: code is not compared"
        return [], [text]
    olds, news = map(_by_row, facts)
    found = []
    for key, new in news.items():
        old = olds.get(key)
        if old is None:
            continue
        before, after = _numbers(old), _numbers(new)
        changed = tuple(
            (name, before.get(name, "–"), after.get(name, "–"))
            for name in dict.fromkeys([*before, *after])
            if before.get(name) != after.get(name)
        )
        if changed:
            found.append(CodeChange(row=new.row, arch=new.arch, old=old, new=new, changed=changed))
    same = sum(1 for key in news if key in olds) - len(found)
    return found, [f"machine code: {same} of {len(news)} kernels unchanged"]


def _numbers(one: Compilation) -> Mapping[str, str]:
    """What the compiler says of a row, as a reviewer reads it."""
    if one.code is None:
        return {"compiles": f"no: {one.failure}"}
    kernels = one.kernels
    numbers: Iterable[tuple[str, object]] = (
        ("compiles", "yes"),
        ("registers", one.code.registers),
        ("spills", one.code.spills),
        ("stack bytes", max((kernel.stack_bytes for kernel in kernels), default=None)),
        ("shared bytes", one.code.shared_bytes),
        ("instructions", sum(kernel.instructions for kernel in kernels) or None),
        ("code", one.code.digest),
    )
    return {name: str(value) for name, value in numbers if value is not None}


__all__ = ["CLASSES", "EVIDENCE", "Pins", "Side", "Task", "compare", "exit_code"]
