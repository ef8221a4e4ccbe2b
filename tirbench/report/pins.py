"""What pinning did, row by row where a number moved and as a count where none did."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from tirbench.report import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tirbench.model import Baseline, PinnedRow

_ORDER: Final = ("added", "rewritten", "replaced", "accepted", "kept")


class Change(Protocol):
    """A `tirbench.store.Change`: stages do not import each other."""

    @property
    def kind(self) -> str:
        """`added`, `kept`, `rewritten`, `replaced` or `accepted`."""

    @property
    def row(self) -> PinnedRow:
        """The row as it is now."""

    @property
    def old(self) -> PinnedRow | None:
        """The row as it was."""

    @property
    def why(self) -> str:
        """The reason of the change; may be empty."""


class Pinned(Protocol):
    """A `tirbench.store.Pinned`."""

    @property
    def baseline(self) -> Baseline:
        """The baseline after pinning."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """What became of each row of the run."""

    @property
    def refused(self) -> tuple[tuple[tuple[str, str], str], ...]:
        """Rows that could not be pinned, with the reason."""

    @property
    def orphans(self) -> tuple[tuple[str, str], ...]:
        """Rows that no workload has any more."""


def pinned_text(pinned: Pinned) -> str:
    """A line for each number that moved, each row refused and each orphan, then the counts.

    A new row, and one whose number was kept without more ado, is only counted.
    """
    counts = Counter(change.kind for change in pinned.changes)
    parts = [f"{counts[kind]} {kind}" for kind in _ORDER if counts[kind]]
    if pinned.refused:
        parts.append(f"{len(pinned.refused)} not pinned")
    name = f"{pinned.baseline.workload} on {pinned.baseline.hardware}"
    lines = [*_changed(pinned), *_refused(pinned)]
    lines += [f"  orphan: {'/'.join(key)} (--prune drops it)" for key in pinned.orphans]
    head = f"pinned {name}: {', '.join(parts) or 'nothing'}"
    return "\n".join(text.plain(line) for line in (head, *lines))


def _changed(pinned: Pinned) -> Iterator[str]:
    for change in pinned.changes:
        if change.kind == "added" or (change.kind == "kept" and not change.why):
            continue
        row, old = change.row, change.old
        times = f"{text.significant(row.midmean_us)} µs"
        if old is not None and old.midmean_us != row.midmean_us:
            ratio = text.significant(row.midmean_us / old.midmean_us)
            times = f"{text.significant(old.midmean_us)} → {times} (ratio {ratio})"
        yield f"  {change.kind}: {row.case}/{row.implementation} {times}: {change.why}".rstrip(": ")


def _refused(pinned: Pinned) -> Iterator[str]:
    """Rows not pinned, grouped by reason: one that was skipped everywhere is one line."""
    groups: dict[str, list[str]] = {}
    for key, reason in pinned.refused:
        groups.setdefault(reason, []).append("/".join(key))
    for reason, names in groups.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"  not pinned: {', '.join(names[:3])}{more}: {reason}"
