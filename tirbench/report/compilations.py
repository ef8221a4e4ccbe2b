"""What `aot` found: a table for people, and the facts that `diff --facts` and the static gate read."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tirbench import codec
from tirbench.report import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tirbench.model import (
        CodeChange,
        Compilation,
        CompiledSides,
        CompiledSuite,
        MachineCode,
    )

FORMAT: Final = 2
"""Of the JSON; raised when a reader of the old form would misread the new."""

HEADS: Final = (
    "case",
    "implementation",
    "registers",
    "spills",
    "stack B",
    "shared B",
    "instructions",
    "occupancy",
    "code",
)
_TEXTS: Final = frozenset({"case", "implementation", "code"})


def compilations_text(suite: CompiledSuite) -> str:
    """A table for each workload and architecture, then what could not be compiled.

    Numbers of a sequence of kernels are its largest, its instructions together, its occupancy the least.
    """
    versions = " · ".join(f"{name} {version}" for name, version in suite.compilers)
    parts = [f"compiled by {versions}"] if versions else []

    def place(one: Compilation) -> tuple[str, str]:
        return one.row.workload, one.arch

    for (workload, arch), group in groupby(sorted(suite.compilations, key=place), key=place):
        parts += ["", f"{workload} · {arch}", *_table(list(group))]
    done = sum(one.code is not None for one in suite.compilations)
    failed = len(suite.compilations) - done
    tail = f"{text.count(done, 'row')} compiled" + (f", {failed} not" if failed else "")
    return "\n".join(text.plain(line) for line in [*parts, "", tail]) + "\n"


def compilations_json(suite: CompiledSuite, base: CompiledSuite | None = None) -> str:
    """The facts for programs; those of two revisions are what `--facts` reads back with `codec`."""
    data = {"schema": FORMAT, "facts": codec.dump(suite)}
    if base is not None:
        data["base"] = codec.dump(base)
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def sides_json(both: CompiledSides, _: Sequence[CodeChange]) -> str:
    """Both sides for programs; what changed in them is for who reads them to say."""
    return compilations_json(both.head, both.base)


def sides_text(both: CompiledSides, changes: Sequence[CodeChange]) -> str:
    """The rows that are written otherwise than at BASE, as HEAD compiles them, then what changed in them."""
    if not (both.head.compilations or both.base.compilations):
        return "nothing that is compiled is written otherwise than at BASE\n"
    lines = [text.plain(_change(one)) for one in changes]
    same = len(both.head.compilations) - len(changes)
    tail = f"against BASE: {text.count(len(lines), 'row')} with other code, {same} without\n"
    return compilations_text(both.head) + "\n" + "".join(f"{one}\n" for one in lines) + tail


def sides_markdown(both: CompiledSides, changes: Sequence[CodeChange]) -> str:
    """The same for a job summary: what changed comes first."""
    lines = "".join(f"- {text.markdown(_change(one))}\n" for one in changes)
    return (
        (lines or "The code of every row is what it was at BASE.\n")
        + "\n"
        + (compilations_markdown(both.head))
    )


def _change(one: CodeChange) -> str:
    moved = ", ".join(f"{name} {old} → {new}" for name, old, new in one.changed)
    return f"{one.row.key} on {one.arch}: {moved}"


def compilations_markdown(suite: CompiledSuite) -> str:
    """One table over everything, for a job summary."""
    heads = ("arch", "workload", *HEADS)
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for one in suite.compilations:
        cells = (one.arch, one.row.workload, *(_cells(one) or _failure(one)))
        lines.append("| " + " | ".join(map(text.markdown, cells)) + " |")
    return "\n".join(lines) + "\n"


def _table(group: list[Compilation]) -> Iterator[str]:
    rows = [cells for one in group if (cells := _cells(one))]
    widths = [max(len(line[i]) for line in [HEADS, *rows]) for i in range(len(HEADS))]
    if rows:
        yield _line(HEADS, widths)
    previous = ""
    for one in group:
        cells = _cells(one)
        if cells is None:
            continue
        shown = ("" if cells[0] == previous else cells[0], *cells[1:])
        previous = cells[0]
        yield _line(shown, widths) + _notes(one.notes)
    for one in group:
        if one.code is None:
            yield f"  {one.row.case}/{one.row.implementation}: {one.failure}"


def _notes(notes: Iterable[str]) -> str:
    joined = "; ".join(notes)
    return f"  ({joined})" if joined else ""


def _line(cells: Iterable[str], widths: list[int]) -> str:
    padded = [
        f"{cell:<{width}}" if head in _TEXTS else f"{cell:>{width}}"
        for head, cell, width in zip(HEADS, cells, widths, strict=True)
    ]
    return "  " + "  ".join(padded).rstrip()


def _cells(one: Compilation) -> tuple[str, ...] | None:
    if one.code is None:
        return None
    kernels = one.kernels
    return (
        one.row.case,
        one.row.implementation,
        _number(one.code.registers),
        _number(one.code.spills),
        _number(max((kernel.stack_bytes for kernel in kernels), default=None)),
        _number(one.code.shared_bytes),
        _number(sum(kernel.instructions for kernel in kernels) or None),
        _occupancy(kernels),
        one.code.digest,
    )


def _failure(one: Compilation) -> tuple[str, ...]:
    return (one.row.case, one.row.implementation, "", "", "", "", "", "", one.failure)


def _number(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _occupancy(kernels: tuple[MachineCode, ...]) -> str:
    known = [(one.occupancy, one.limited_by) for one in kernels if one.occupancy is not None]
    if not known:
        return "–"
    share, limit = min(known, key=lambda pair: pair[0])
    return f"{text.percent(share)}" if share == 1 else f"{text.percent(share)} ({limit})"
