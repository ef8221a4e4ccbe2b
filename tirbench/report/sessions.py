"""What sessions show of pinned rows, and what `pin --learn` made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tirbench.report import columns, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tirbench.model import Lesson, SessionReport, SessionRow

HEADS: Final = ("row", "s_session", "sessions", "draws", "band", "with s_session", "")
"""The last column of `columns` is a sentence: here there is none."""

APART: Final = 1.1
"""A row is shown on its own where its s_session is larger than that of its class by more than a tenth."""


def sessions_text(
    reports: Sequence[SessionReport], *, every: bool, width: int, color: bool = False
) -> str:
    """For each class of hardware what it has from session to session, and rows.

    Args:
        reports: of the classes.
        every: show all rows, not only those that differ from their class.
        width: of the terminal.
        color: whether it has any.
    """
    look = columns.Look(width=width, color=color)
    lines: list[str] = []
    for one in reports:
        lines += ["", look.paint(text.plain(f"{one.hardware}: {_class(one)}"), "bold")]
        rows = [row for row in one.rows if every or row.session_sd > APART * one.session_sd]
        cells = [_cells(row) for row in rows]
        lines += columns.table(HEADS, cells, look, right=frozenset(range(1, 6))) if rows else []
        if len(one.rows) > len(rows):
            lines.append(f"{len(one.rows) - len(rows)} row(s) as their class, within a tenth")
    return "".join(f"{line.rstrip()}\n" for line in lines[1:])


def _class(one: SessionReport) -> str:
    said = f"s_session {_share(one.session_sd)}"
    if not one.draws:
        return f"{said}, which no sessions beside its baselines say otherwise"
    return f"{said} by {one.sessions} sessions, worth {one.draws} draws"


def _cells(row: SessionRow) -> tuple[str, ...]:
    return (
        row.key,
        _share(row.session_sd),
        str(row.sessions),
        f"{row.draws:.1f}",
        _share(row.band),
        _share(row.in_band),
        "",
    )


def lesson_text(lesson: Lesson) -> str:
    """What was kept and learnt of a class of hardware, and every band that became wider."""
    known = lesson.known
    new = "nothing new"
    if lesson.new_times:
        new = f"{lesson.new_times} time(s) new, {lesson.new_sessions} session(s)"
    head = f"learnt on {known.hardware}: {new}; {_class(known)}"
    return "\n".join(text.plain(line) for line in (head, *_widened(lesson)))


def _widened(lesson: Lesson) -> Iterator[str]:
    for one in lesson.widened:
        bands = f"band {_share(one.old_band)} → {_share(one.band)}"
        yield f"  wider: {one.key} {bands} by s_session {_share(one.session_sd)}"


def _share(share: float) -> str:
    return f"{100 * share:.2f} %"
