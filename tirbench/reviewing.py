"""What a reviewer asks, as compositions of stages: `diff`, and the rows of `exec --changed`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tirbench import pipeline, sides
from tirbench.diff import total
from tirbench.model import CompiledSides, Diff, Row
from tirbench.plan import rows_of
from tirbench.reading import Reading


def diff(
    root: Path,
    base: str,
    head: str | None = None,
    *,
    files: Sequence[str] = (),
    facts: CompiledSides | None = None,
) -> Diff:
    """Load → expand → diff: two revisions, a revision and the working tree, or two folders.

    Args:
        root: the project's folder.
        base: a revision, or a folder where `head` is one.
        head: a revision; absent: the working tree.
        files: workload files and folders; absent: `workloads/` where there is one, else everywhere.
        facts: what `aot` says of both sides.

    Raises:
        UsageError: a revision is unknown, or the two have nothing in common.
    """
    with sides.opened(root, base, head, files) as found:
        return found.compare(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What `exec --changed` measures.

    Attributes:
        reading: the rows that must be measured.
        with_references: these, and the references that the ratios of the kernels among them are to.
        references: those that are only in the second.
        diff: the comparison, cut down to these rows.
    """

    reading: Reading
    with_references: Reading
    references: tuple[Row, ...]
    diff: Diff


def changed(
    reading: Reading, base: str, facts: CompiledSides | None = None, hardware: str = ""
) -> Changed:
    """The rows of a reading that must be measured, for `exec --changed`.

    Args:
        reading: what was named.
        base: the revision it is compared with.
        facts: what `aot` says of both.
        hardware: of the machine that measures; one that something is pinned on takes only its own rows.

    Raises:
        UsageError: as `diff`.
    """
    files = [chosen.workload.source.path for chosen in reading.chosen]
    with sides.opened(reading.root, base, files=files) as found:
        diff = found.compare(facts)
        pinned = {pins.baseline.hardware for pins in found.head.pins.values()}
    named = {row.key: row for row in _rows_of(reading)}
    measure = tuple(
        one
        for one in diff.measure
        if one.key in named and (hardware not in pinned or hardware in one.hardware)
    )
    wanted = {one.key for one in measure}
    reference = {one.workload.name: one.workload.gate.reference for one in reading.chosen}
    beside = {
        f"{one.row.workload}/{one.row.case}/{reference[one.row.workload]}"
        for one in measure
        if one.row.role == "kernel"
    }
    references = tuple(named[key] for key in sorted((beside & named.keys()) - wanted))
    rows = [one.row for one in measure]
    return Changed(
        reading=pipeline.only(reading, rows),
        with_references=pipeline.only(reading, [*rows, *references]),
        references=references,
        diff=replace(diff, measure=measure, seconds=total(measure)),
    )


def _rows_of(reading: Reading) -> Iterator[Row]:
    for chosen in reading.chosen:
        for case in chosen.cases:
            yield from rows_of(case)
