"""What HEAD has otherwise than BASE, in the words of the domain: from expanded workloads and baselines.

Nothing that a workload names is imported; files are read and digested. Weakening comes first everywhere.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tirbench.diff import pins, weaker
from tirbench.diff.changes import Place, changes
from tirbench.diff.classes import CLASSES, EVIDENCE, written
from tirbench.diff.code import Facts
from tirbench.diff.measuring import to_measure
from tirbench.diff.seconds import Times, total
from tirbench.diff.side import Key, Pins, Side, Task
from tirbench.model import CompiledSides, Diff, Weakening

if TYPE_CHECKING:
    from collections.abc import Sequence


def compare(
    base: Side,
    head: Side,
    *,
    place: Place,
    reasons: Sequence[tuple[str, str]] = (),
    facts: CompiledSides | None = None,
    measured: Mapping[tuple[str, str], float] | None = None,
) -> Diff:
    """Compare two sides.

    Args:
        base: what is there.
        head: what is proposed.
        place: the line of a path of a workload: `workloads/x.toml:12`.
        reasons: what authors say of weakenings: a glob of `workload`, `workload/implementation`,
            `workload/case` or `workload/case/implementation`, and the sentence.
        facts: what `aot` says of both sides.
        measured: µs of rows by hardware and key, for how long measuring takes.
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
    compiled = None if facts is None else Facts(facts)
    measure = tuple(to_measure(base, head, compiled, Times(base, head, measured=measured)))
    told = () if compiled is None else compiled.notices(base.tasks, head.tasks)
    return Diff(
        base=base.name,
        head=head.name,
        weakenings=tuple(_with_reason(one, reasons) for one in found),
        problems=tuple(pins.problems(base, head)),
        pins=moved,
        changes=tuple(changes(base, head, place)),
        code=() if compiled is None else tuple(compiled.changes(base.tasks, head.tasks)),
        notices=(*_added(base, head), *pins.notices(head, moved), *told),
        measure=measure,
        measure_files=tuple(
            sorted({head.tasks[one.row.workload].workload.source.path for one in measure})
        ),
        invalid=tuple(f"{path}: {why}" for path, why in sorted(head.unreadable.items())),
        rows=sum(len(task.keys) for task in head.tasks.values()),
        unchanged=sum(1 for _ in _unchanged(base, head)),
        seconds=total(measure),
        kernels=sum(len(task.workload.kernels) for task in head.tasks.values()),
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
            if old.source(key) == new.source(key) and _promised(old, key) == _promised(new, key):
                yield key


def _promised(task: Task, key: Key) -> tuple[str, ...]:
    """What a row is held to and how it is timed, as it is written."""
    case, one = task.cases[key[0]], task.implementation(key)
    assert one is not None  # noqa: S101 - the key is from there
    said = (case.check, case.workload.timer, one.unchecked, one.looser, case.skipped, one.skipped)
    return tuple(map(written, said))


def _added(base: Side, head: Side) -> Iterator[str]:
    for name, new in sorted(head.tasks.items()):
        if name not in base.tasks:
            path = new.workload.source.path
            again = " (it could not be read at BASE)" if path in base.unreadable else ""
            yield f"{name}: a new workload with {len(new.cases)} cases{again}"


__all__ = [
    "CLASSES",
    "EVIDENCE",
    "Facts",
    "Pins",
    "Side",
    "Task",
    "Times",
    "compare",
    "exit_code",
    "total",
]
