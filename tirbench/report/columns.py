"""Plain tables whose last column is a sentence, for a terminal and for Markdown."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tirbench.report import text
from tirbench.report.layout import display_width
from tirbench.report.terminal import Look

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GAP = "  "
LEAST_SENTENCE = 40

__all__ = ["Look", "markdown", "table"]


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    look: Look,
    *,
    right: frozenset[int] = frozenset(),
    style: Callable[[Sequence[str]], str] = lambda _: "",
) -> list[str]:
    """Lines of a table; the last column goes below its row where there is no room beside it.

    Args:
        heads: one a column.
        rows: cells as texts; control characters are made visible.
        look: width and colours.
        right: columns that are set to the right.
        style: of a row's second cell.
    """
    cells = [[text.plain(cell) for cell in row] for row in rows]
    used = [i for i in range(len(heads) - 1) if any(row[i] for row in cells)]
    widths = {i: max(display_width(row[i]) for row in [list(heads), *cells]) for i in used}
    before = sum(widths[i] + len(GAP) for i in used)
    beside = look.width - before >= LEAST_SENTENCE

    def line(row: Sequence[str]) -> list[str]:
        return [_pad(row[i], widths[i], right=i in right) for i in used]

    head = GAP.join([*line(heads), heads[-1]]) if beside else GAP.join(line(heads))
    lines = [look.paint(head, "bold"), look.paint("─" * min(look.width, len(head) + 8), "dim")]
    for row in cells:
        parts = line(row)
        if len(used) > 1:
            parts[1] = look.paint(parts[1], style(row))
        room, indent = (look.width - before, before) if beside else (look.width - 4, 4)
        wrapped = textwrap.wrap(
            row[-1], max(room, LEAST_SENTENCE), break_long_words=False, break_on_hyphens=False
        )
        first = wrapped.pop(0) if beside and wrapped else ""
        lines.append(GAP.join([*parts, first]).rstrip())
        lines += [" " * indent + more for more in wrapped]
    return lines


def markdown(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()
) -> list[str]:
    """The same as lines of Markdown."""
    rules = ["---:" if index in right else "---" for index in range(len(heads))]
    lines = [[text.markdown(head) for head in heads], rules]
    lines += [[text.markdown(cell) for cell in row] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _pad(content: str, width: int, *, right: bool) -> str:
    blanks = " " * max(0, width - display_width(content))
    return blanks + content if right else content + blanks
