"""One row at length: its pinned numbers through git, its placements, the ladder of its causes."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final, Protocol

from tirbench.report import columns, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.model import PinnedRow

LIGHTS: Final = {"same": "dim", "differs": "yellow", "unknown": "cyan"}


class Commit(Protocol):
    """A `store.revisions.Commit`: stages do not import each other."""

    @property
    def id(self) -> str:
        """The whole hash."""

    @property
    def date(self) -> str:
        """Of its author."""

    @property
    def subject(self) -> str:
        """First line of its message."""


class Pinning(Protocol):
    """A `causes.Pinning`."""

    @property
    def commit(self) -> Commit:
        """That changed the row."""

    @property
    def hardware(self) -> str:
        """That it is pinned on."""

    @property
    def key(self) -> str:
        """Of the row."""

    @property
    def row(self) -> PinnedRow | None:
        """As it is since; `None` where it was taken out."""


class Placed(Protocol):
    """A `causes.Placed`."""

    @property
    def key(self) -> str:
        """Of the row."""

    @property
    def rounds_us(self) -> tuple[tuple[int, tuple[float, ...]], ...]:
        """By placement seed."""

    @property
    def centre_us(self) -> float:
        """Over placements."""

    @property
    def over_placements(self) -> float:
        """Relative standard deviation."""

    @property
    def repeated(self) -> float | None:
        """Of a placement measured again."""


class Rung(Protocol):
    """A `causes.Rung`."""

    @property
    def cause(self) -> str:
        """Its name."""

    @property
    def light(self) -> str:
        """`same`, `differs` or `unknown`."""

    @property
    def detail(self) -> str:
        """How it differs."""


class Why(Protocol):
    """A `causes.Why`."""

    @property
    def key(self) -> str:
        """Of the row."""

    @property
    def change(self) -> str:
        """How the time moved."""

    @property
    def rungs(self) -> tuple[Any, ...]:
        """The ladder."""

    @property
    def command(self) -> str:
        """What goes on from there."""


def history_text(pinnings: Sequence[Pinning], *, width: int, color: bool = False) -> str:
    """A line for each commit and row, newest first."""
    look = columns.Look(width=width, color=color)
    rows = []
    for one in pinnings:
        row = one.row
        numbers = ("gone", "", "") if row is None else _numbers(row)
        why = (
            one.commit.subject
            if row is None or not row.reason
            else f"{one.commit.subject} ({row.reason})"
        )
        rows.append((one.commit.date, one.commit.id[:10], one.hardware, one.key, *numbers, why))
    heads = ("date", "commit", "hardware", "row", "pinned µs", "anchor µs", "code", "subject")
    return _lines(columns.table(heads, rows, look, right=frozenset({4, 5})))


def _numbers(row: PinnedRow) -> tuple[str, str, str]:
    return text.significant(row.midmean_us), text.significant(row.anchor_us), row.code


def placement_text(placed: Sequence[Placed], *, width: int, color: bool = False) -> str:
    """For each row the time on every placement seed, and what placement and repetition make of it."""
    look = columns.Look(width=width, color=color)
    lines: list[str] = []
    for one in placed:
        rows = []
        for placement, rounds in one.rounds_us:
            mean = statistics.fmean(rounds)
            off = f"{100 * (mean / one.centre_us - 1):+.2f} %"
            each = " ".join(text.significant(us) for us in rounds)
            rows.append((str(placement), text.significant(mean), off, each))
        lines.append(look.paint(text.plain(one.key), "bold"))
        lines += columns.table(
            ("seed", "µs", "off", "rounds µs"), rows, look, right=frozenset({0, 1, 2})
        )
        repeated = "unknown (one round)" if one.repeated is None else f"{100 * one.repeated:.2f} %"
        spread = f"{100 * one.over_placements:.2f} % over placements"
        lines += [f"standard deviation: {spread}, {repeated} when one is measured again", ""]
    return _lines(lines[:-1])


def why_text(why: Why, *, width: int, color: bool = False) -> str:
    """The ladder, and the command last."""
    look = columns.Look(width=width, color=color)
    rungs: tuple[Rung, ...] = why.rungs
    rows = [(rung.cause, rung.light, rung.detail) for rung in rungs]
    lines = [look.paint(text.plain(f"{why.key}: {why.change}"), "bold")]
    lines += columns.table(
        ("cause", "pin → run", "how"), rows, look, style=lambda row: LIGHTS[row[1]]
    )
    lines += ["", f"next: {text.plain(why.command)}"]
    return _lines(lines)


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line.rstrip()}\n" for line in lines)
