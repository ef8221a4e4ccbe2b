"""The rows of a run in a terminal: time, a bar for the share of the roof, and what it is against its pin.

The same verdicts as the page's. Without a terminal it is plain text of the same columns; `NO_COLOR` takes
the colours and leaves the bars.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from tirbench.report import text
from tirbench.report.page import Page, verdict
from tirbench.report.page.rows import Line, lines

if TYPE_CHECKING:
    from rich.table import Table

STYLES: Final = {
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "fast": "cyan",
    "mute": "dim",
}
BAR: Final = 10
"""Cells of a bar."""
EIGHTHS: Final = "▏▎▍▌▋▊▉█"


def render(page: Page, *, width: int, color: bool) -> str:
    """A run as a table, the verdict first.

    Args:
        page: the run, with what is known beside it.
        width: columns of the terminal.
        color: whether it shows colours.
    """
    from rich.console import Console  # 50 ms that other commands need not pay

    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(text.plain(verdict(page)), style="bold" if color else None)
    console.print(_table(lines(page)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def bar(share: float) -> str:
    """A share as eighths of cells: `█████▋    ` for 0.57; what is above 1 fills the bar."""
    eighths = round(min(max(share, 0.0), 1.0) * BAR * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest - 1] if rest else "")).ljust(BAR)


def _table(shown: list[Line]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for head, right in (
        ("row", False),
        ("µs", True),
        ("/ reference", True),
        ("roof", False),
        ("against the pin", False),
    ):
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    previous = ""
    for line in shown:
        case = text.plain(f"{line.workload}/{line.case}")
        if case != previous:
            table.add_row(Text(case, style="bold"))
            previous = case
        name = Text("  " + text.plain(line.implementation))
        if line.role == "reference":
            name.stylize("dim")
        if line.kind != "timed":
            said = text.plain(f"{line.status}: {line.note}")
            table.add_row(name, "", "", "", Text(said, style=STYLES[line.tone], overflow="fold"))
            continue
        share = "" if line.share is None else f"{bar(line.share)} {text.percent(line.share)}"
        table.add_row(
            name,
            line.time,
            line.ratio,
            share,
            Text(line.verdict, style=STYLES[line.verdict_tone or "mute"]),
        )
    return table
