"""What the same compilers make of both sides: which rows are the same code, and what changed in the others.

What was handed over holds of the rows it was made of and of no others: facts of another revision, or of a
row that has been edited since, say nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from tirbench.diff.classes import written
from tirbench.model import CodeChange, Compilation, CompiledSides, CompiledSuite

if TYPE_CHECKING:
    from tirbench.diff.side import Key, Task
    from tirbench.model import BoundImplementation

COMPILED: Final = frozenset({"triton", "cuda", "tirx"})
"""Launch kinds whose code `aot` compiles; a test holds them to those of its own."""

ASSUMED: Final = "first of "
"""How the note begins of a tuned kernel whose choice is not pinned: its code may be another one's."""

ByRow: TypeAlias = "Mapping[tuple[str, str], Compilation]"
"""By `workload/case/implementation` and architecture."""

UNITS: Final[Mapping[str, tuple[str, int, str]]] = {
    "registers": ("registers", 1, ""),
    "spills": ("spills", 4, " bytes"),  # counted in registers of four bytes
    "stack_bytes": ("stack", 1, " bytes"),
    "shared_bytes": ("shared", 1, " bytes"),
    "instructions": ("instructions", 1, ""),
    "occupancy_percent": ("occupancy", 1, " %"),
}
"""Resources as a reviewer reads them: word, factor, unit; in this order."""


def resources(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[tuple[str, str, str], ...]:
    """What differs between the resources of two rows, where both say it: name, old, new with its unit."""
    found = []
    for name, (word, factor, unit) in UNITS.items():
        if name in old and name in new and old[name] != new[name]:
            found.append((word, f"{old[name] * factor}", f"{new[name] * factor}{unit}"))
    return tuple(found)


class Facts:
    """What `aot` says of both sides, looked up by row."""

    def __init__(self, sides: CompiledSides) -> None:
        """Index both sides."""
        self.sides = sides
        self.old = _by_row(sides.base)
        self.new = _by_row(sides.head)
        self.comparable = sides.base.compilers == sides.head.compilers

    def same(self, old: Task, new: Task, key: Key, arch: str | None) -> bool:
        """Whether a row with another source is the same code, launched alike, on an architecture.

        Args:
            old: the workload at BASE.
            new: the same at HEAD.
            key: the row; both sides have it.
            arch: where it is pinned; `None`, or one that nothing was compiled for, is all of them.
        """
        before, after = old.implementation(key), new.implementation(key)
        if before is None or after is None or not self.comparable:
            return False
        row = f"{new.workload.name}/{key[0]}/{key[1]}"
        archs = [one for name, one in self.new if name == row]
        wanted = [arch] if arch in archs else archs
        return (
            bool(wanted)
            and _launched_alike(old, new, before, after)
            and all(self._equal(old, new, key, (row, one)) for one in wanted)
        )

    def _equal(self, old: Task, new: Task, key: Key, place: tuple[str, str]) -> bool:
        was, now = self.old.get(place), self.new.get(place)
        if was is None or now is None or was.code is None or now.code is None:
            return False
        known = is_of(was, old, key) and is_of(now, new, key)
        assumed = any(note.startswith(ASSUMED) for note in (*was.notes, *now.notes))
        return known and not assumed and was.code == now.code

    def changes(self, olds: Mapping[str, Task], news: Mapping[str, Task]) -> Iterator[CodeChange]:
        """Rows of which the compilers say something else than at BASE."""
        for place, now in self.new.items() if self.comparable else ():
            was = self.old.get(place)
            if was is None or not (_is_side(was, olds) and _is_side(now, news)):
                continue
            changed = _changed(was, now)
            if changed:
                yield CodeChange(row=now.row, arch=now.arch, old=was, new=now, changed=changed)

    def notices(self, olds: Mapping[str, Task], news: Mapping[str, Task]) -> Iterator[str]:
        """What a reader must know of the facts before believing them."""
        if not self.comparable:
            names = [_compilers(side) for side in (self.sides.base, self.sides.head)]
            yield f"compiled by {names[0]} at BASE and {names[1]} at HEAD: code is not compared"
            return
        foreign = sum(not _is_side(one, olds) for one in self.old.values())
        foreign += sum(not _is_side(one, news) for one in self.new.values())
        if foreign:
            yield f"facts of {foreign} rows are of another revision than the one compared: left out"
        both = [place for place in self.new if place in self.old]
        same = sum(
            1
            for place in both
            if _is_side(self.old[place], olds)
            and _is_side(self.new[place], news)
            and not _changed(self.old[place], self.new[place])
        )
        yield f"machine code by {_compilers(self.sides.head)}: {same} of {len(self.new)} rows unchanged"


def is_of(one: Compilation, task: Task, key: Key) -> bool:
    """Whether a compilation is of this row as this side has it."""
    return (one.problem, one.source) == (task.problem(key[0]), task.source(key))


def _is_side(one: Compilation, tasks: Mapping[str, Task]) -> bool:
    task, key = tasks.get(one.row.workload), (one.row.case, one.row.implementation)
    return task is not None and task.implementation(key) is not None and is_of(one, task, key)


def _by_row(suite: CompiledSuite) -> ByRow:
    return {(one.row.key, one.arch): one for one in suite.compilations}


def _compilers(suite: CompiledSuite) -> str:
    return ", ".join(" ".join(pair) for pair in suite.compilers) or "nothing"


def _launched_alike(
    old: Task, new: Task, before: BoundImplementation, after: BoundImplementation
) -> bool:
    """Whether everything of a row but its compiled code is the same: arguments, grid, steps in Python."""
    names = ("steps", "context", "returns")
    if any(written(getattr(before, name)) != written(getattr(after, name)) for name in names):
        return False
    called = (step for step in after.steps if step.kind not in COMPILED)
    steps_alike = all(old.text_of(step) == new.text_of(step) for step in called)
    return steps_alike and old.text_of(after.context) == new.text_of(after.context)


def _changed(was: Compilation, now: Compilation) -> tuple[tuple[str, str, str], ...]:
    """What the compiler says otherwise, as a reviewer reads it."""
    if was.code is None or now.code is None:
        states = ["yes" if one.code else f"no: {one.failure}" for one in (was, now)]
        return () if states[0] == states[1] else (("compiles", states[0], states[1]),)
    found = resources(dict(was.code.resources), dict(now.code.resources))
    if was.code.digest != now.code.digest:
        found = (*found, ("code", was.code.digest, now.code.digest))
    return found


__all__ = ["UNITS", "Facts", "is_of", "resources"]
