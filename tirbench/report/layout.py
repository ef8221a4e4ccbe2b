"""Tables of texts set in columns: numbers under numbers, sentences over the rest of their line.

A line without a time has nothing to put under the numbers, so its sentence runs over them: one reason, one
line, instead of a narrow column of words.
"""

from __future__ import annotations

import textwrap
import unicodedata
from typing import TYPE_CHECKING, TypeAlias

from tirbench.report import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tirbench.report.table import Column, Line, Table

Paint: TypeAlias = "Callable[[str, str], str]"
"""Puts a style (`bold`, `dim`, `red` …) on a text; the identity where there are no colours."""

GAP = 2
LEAST_NOTES = 24
LEFT = ("case", "implementation", "verified")


def set_table(table: Table, width: int, paint: Paint) -> Iterator[str]:
    """The lines of a table: head, rule, cases with a blank line between.

    Where the columns are wider than `width`, the case stands on a line of its own.
    """
    numbers = [column for column in table.columns if column.key not in {*LEFT, "notes"}]
    widths = {column.key: _width(table, column) for column in table.columns}
    own_line = sum(widths[c.key] + GAP for c in table.columns if c.key != "notes") > width
    if own_line:
        widths["case"] = 0
    left = _left_width(widths, own_line=own_line)
    head = _head(table.columns, widths, own_line=own_line)
    yield paint(text.plain(table.workload), "bold")
    yield paint(head, "bold")
    yield paint("─" * min(width, max(len(head), 60)), "dim")
    for index, line in enumerate(table.lines):
        if line.first_of_case and index:
            yield ""
        if own_line and line.first_of_case:
            yield paint(text.plain(line.cell("case")), "bold")
        yield from _set_line(line, numbers, widths, left, width, paint, own_line=own_line)


def display_width(content: str) -> int:
    """Columns that a text takes in a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in content
    )


def _width(table: Table, column: Column) -> int:
    """The widest text of a column; names of rows without a time may stick out."""
    lines = [line for line in table.lines if line.kind == "timed" or column.key != "implementation"]
    texts = [column.head, *(text.plain(line.cell(column.key)) for line in lines)]
    return max(map(display_width, texts))


def _left_width(widths: dict[str, int], *, own_line: bool) -> int:
    keys = LEFT[1:] if own_line else LEFT
    return sum(widths.get(key, 0) + GAP for key in keys) + (GAP if own_line else 0)


def _pad(content: str, width: int, *, right: bool = False) -> str:
    blanks = " " * max(0, width - display_width(content))
    return blanks + content if right else content + blanks


def _head(columns: tuple[Column, ...], widths: dict[str, int], *, own_line: bool) -> str:
    shown = [column for column in columns if column.key != "case" or not own_line]
    cells = [_pad(text.plain(c.head), widths[c.key], right=c.right) for c in shown]
    return (" " * GAP if own_line else "") + (" " * GAP).join(cells).rstrip()


def _set_line(
    line: Line,
    numbers: list[Column],
    widths: dict[str, int],
    left: int,
    width: int,
    paint: Paint,
    *,
    own_line: bool,
) -> Iterator[str]:
    case = _pad(text.plain(line.cell("case")), widths["case"]) if not own_line else ""
    name = _pad(text.plain(line.cell("implementation")), widths["implementation"])
    verified = _pad(text.plain(line.cell("verified")), widths["verified"])
    start = f"{paint(case, 'bold')}{' ' * GAP}"
    if line.kind != "timed":
        style = {"wrong": "red", "failed": "red", "skipped": "dim", "verified": "cyan"}[line.kind]
        style = "yellow" if line.reference and style == "red" else style
        # A name that sticks out takes from the blanks after the word, so that sentences stay in line.
        label = f"{name}{' ' * GAP}{text.plain(line.cell('verified'))}"
        label = _pad(label, widths["implementation"] + GAP + widths["verified"])
        used = widths["case"] + 2 * GAP + display_width(label)
        clip = line.kind in {"wrong", "failed"}  # said in full below the table
        first, *rest = _sentence(line.cell("notes"), used, left, width, clip=clip)
        yield (start + paint(f"{label}{' ' * GAP}{first}", style)).rstrip()
        yield from (paint(" " * left + more, style) for more in rest)
        return
    cells = "".join(
        " " * GAP + paint(_pad(line.cell(c.key), widths[c.key], right=c.right), _style(c, line))
        for c in numbers
    )
    used = left - GAP + sum(widths[column.key] + GAP for column in numbers)
    notes = text.plain(line.cell("notes"))
    beside = notes and used + GAP + min(LEAST_NOTES, len(notes)) <= width
    first, *rest = textwrap.wrap(notes, max(width - used - GAP, LEAST_NOTES)) if beside else [""]
    if notes and not beside:
        rest = textwrap.wrap(notes, max(width - left, LEAST_NOTES))
    indent = used + GAP if beside else left
    body = f"{name}{' ' * GAP}{paint(verified, 'green')}{cells}{' ' * GAP}{paint(first, 'dim')}"
    yield (start + body).rstrip()
    yield from (paint(" " * indent + more, "dim") for more in rest)


def _style(column: Column, line: Line) -> str:
    content = line.cell(column.key)
    if column.key == "time":
        return "bold" if not line.reference else ""
    if column.key.startswith("ratio:") and content:
        return "green" if float(content) < 1 else "yellow"
    return ""


def _sentence(sentence: str, used: int, left: int, width: int, *, clip: bool) -> list[str]:
    """A sentence over the rest of its line: cut with an ellipsis, or continued below its beginning."""
    sentence = text.plain(sentence)
    room = max(width - used, LEAST_NOTES)
    if display_width(sentence) <= room:
        return [sentence]
    if clip:
        return [sentence[: room - 1].rstrip() + "…"]
    first = textwrap.wrap(sentence, room)[0]
    rest = sentence[len(first) :].strip()
    return [first, *textwrap.wrap(rest, max(width - left, LEAST_NOTES))]
