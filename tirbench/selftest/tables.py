"""The tables of a tally, as texts in cells: whoever shows them lays them out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tirbench.selftest.shares import EqualShare, PlantedShare, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells; the first column is a name, the others are numbers."""

    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def markdown(self) -> list[str]:
        """The lines of it as Markdown, numbers to the right."""
        marks = ["---", *["---:"] * (len(self.head) - 1)]
        return [f"| {' | '.join(line)} |" for line in (self.head, marks, *self.lines)]


def equal(found: Tally) -> Table:
    """Equal code, a line for each class."""
    lines = [(one.name, one.equal) for one in found.classes]
    return Table(
        head=(
            *("kernels", "rows", "decisions", "screened", "flagged", "rate", "≤", "same"),
            *("undecided", "unfinished", "GPU s", "most"),
        ),
        lines=tuple(_equal(*line) for line in [*lines, ("all, disjoint pairs", found.disjoint)]),
    )


def _equal(name: str, share: EqualShare) -> tuple[str, ...]:
    return (
        name,
        str(share.rows),
        str(share.decisions),
        percent(share.screened),
        str(share.flagged),
        percent(_rate(share.flagged, share.decisions)),
        percent(share.at_most),
        percent(share.same),
        percent(share.undecided),
        str(share.unfinished),
        seconds(share.gpu_s),
        seconds(share.gpu_s_most),
    )


def planted_by_class(found: Tally) -> Table:
    """Planted slowdowns of about 1 %, a line for each class."""
    return planted([(one.name, one.planted) for one in found.classes], "kernels")


def planted(named: Iterable[tuple[str, PlantedShare]], what: str) -> Table:
    """Planted slowdowns, a line for each name.

    Args:
        named: what is shown.
        what: head of the names.
    """
    return Table(
        head=(
            *(what, "rows", "decisions", "true size", "found", "rate", "≥", "same"),
            *("undecided", "unfinished", "GPU s"),
        ),
        lines=tuple(
            (
                name,
                str(share.rows),
                str(share.decisions),
                percent(share.truth),
                str(share.found),
                percent(_rate(share.found, share.decisions)),
                percent(share.at_least),
                percent(share.same),
                percent(share.undecided),
                str(share.unfinished),
                seconds(share.gpu_s),
            )
            for name, share in named
        ),
    )


def spreads(found: Tally) -> Table:
    """Where the scatter comes from, a line for each class."""
    return Table(
        head=("kernels", "quads", "again", "worker"),
        lines=tuple(
            (
                one.name,
                *(percent(sd) for sd in (one.spread.quads, one.spread.again, one.spread.worker)),
            )
            for one in found.classes
        ),
    )


def rows(found: Tally) -> Table:
    """Everything by row."""
    return Table(
        head=(
            *("row", "µs", "equal", "screened", "flagged", "undecided", "GPU s", "quads", "again"),
            *("worker", "planted", "true size", "found"),
        ),
        lines=tuple(
            (
                one.row,
                f"{one.midmean_us:.4g}",
                str(one.equal.decisions),
                percent(one.equal.screened),
                str(one.equal.flagged),
                percent(one.equal.undecided),
                seconds(one.equal.gpu_s),
                percent(one.spread.quads),
                percent(one.spread.again),
                percent(one.spread.worker),
                str(one.planted.decisions),
                percent(one.planted.truth),
                str(one.planted.found),
            )
            for one in found.rows
        ),
    )


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def percent(share: float | None) -> str:
    """`0.012 %`; a dash for what is not known."""
    return "–" if share is None else f"{100 * share:.3g} %"


def seconds(value: float | None) -> str:
    """`0.123`; a dash for what is not known."""
    return "–" if value is None else f"{value:.3f}"
