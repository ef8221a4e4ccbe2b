"""The result of a run for a terminal, or for a file that people read."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from tirbench.report import text
from tirbench.report.layout import set_table
from tirbench.report.table import (
    BASELINE_ERROR,
    Trouble,
    headline,
    summary,
    tables,
    troubles,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tirbench.model import Outcome, Run, Spent

FILE_WIDTH: Final = 140
"""Columns where there is no terminal to ask: wide enough for four references."""

LEAST_WIDTH: Final = 60
DETAIL_LINES: Final = 12
"""Last lines of a log that are shown; the whole log is in the run."""

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
"""Select Graphic Rendition codes, ECMA-48."""

_LEGENDS: Final = {
    "verified": "verified: against what, and the share of its tolerance that was used",
    "ratio": "/ name: time of the kernel over time of name; below 1 is faster than name",
    "roof": "roof: share of the measured copy bandwidth (bw) or matrix product rate (math)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How wide a text may be and whether it may have colours."""

    width: int = FILE_WIDTH
    color: bool = False

    def paint(self, content: str, style: str) -> str:
        """The content in a style, or as it is where there are no colours."""
        return f"\x1b[{_CODES[style]}m{content}\x1b[0m" if self.color and style else content


def look_of(stream: IO[str], environment: Mapping[str, str]) -> Look:
    """What a stream can show.

    Colours only on a terminal that is not dumb, and not if `NO_COLOR` is set; `FORCE_COLOR` gives
    them to a pipe. `COLUMNS` sets the width of what is no terminal.
    """
    terminal = stream.isatty() and environment.get("TERM") != "dumb"
    color = (terminal or bool(environment.get("FORCE_COLOR"))) and not environment.get("NO_COLOR")
    columns = environment.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        width = int(columns)
    else:
        width = shutil.get_terminal_size((FILE_WIDTH, 24)).columns if terminal else FILE_WIDTH
    return Look(width=max(width, LEAST_WIDTH), color=color)


def render(
    run: Run,
    look: Look,
    *,
    notes: tuple[str, ...] = (),
    folder: str = "",
    debug: bool = False,
) -> str:
    """The tables of a run, what went wrong in it, and a summary line last.

    Args:
        run: what was measured.
        look: what the stream can show.
        notes: what is missing from the run, said before the summary.
        folder: where logs and samples are kept, as the person would write it.
        debug: whether tracebacks are shown whole.
    """
    lines = list(_body(run.outcomes, look, folder=folder, debug=debug))
    lines.append(look.paint(text.plain(headline(run)), "dim"))
    lines += [look.paint(text.plain(note), "yellow") for note in notes]
    if run.spent is not None and (where := spent_line(run.spent)):
        lines.append(look.paint(where, "dim"))
    if folder:
        lines.append(look.paint(f"samples, logs and harnesses: {text.plain(folder)}", "dim"))
    lines.append(look.paint(text.plain(summary(run.outcomes)), "bold"))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def spent_line(spent: Spent) -> str:
    """`188 s on 2 devices: load 31 %, build 22 %, verify 4 %, time 43 %`; empty where nothing took time."""
    seconds = spent.by_stage()
    whole = math.fsum(seconds.values())
    if not whole:
        return ""
    devices = f"{spent.devices} devices" if spent.devices > 1 else "1 device"
    shares = [
        f"{stage} {100 * s / whole:.0f} %" for stage, s in seconds.items() if s / whole >= 0.005
    ]
    return f"{spent.elapsed_s:.3g} s on {devices}: {', '.join(shares)}"


def table(outcomes: Sequence[Outcome], look: Look | None = None) -> str:
    """Outcomes without a run around them: what a harness that runs alone prints."""
    look = look or Look()
    lines = [*_body(outcomes, look), look.paint(text.plain(summary(outcomes)), "bold")]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _body(
    outcomes: Sequence[Outcome], look: Look, *, folder: str = "", debug: bool = False
) -> Iterator[str]:
    """Tables, what went wrong, and what the columns mean."""
    found = tables(outcomes)
    for one in found:
        yield from (*set_table(one, look.width, look.paint), "")
    for trouble in troubles(outcomes):
        yield from (*_trouble(trouble, look, folder=folder, debug=debug), "")
    keys = {column.key.partition(":")[0] for one in found for column in one.columns}
    for key, legend in _LEGENDS.items():
        if key in keys:
            yield look.paint(legend, "dim")


def _trouble(trouble: Trouble, look: Look, *, folder: str, debug: bool) -> Iterator[str]:
    style = "yellow" if trouble.word == BASELINE_ERROR else "red"
    shown = ", ".join(trouble.cases[:4])
    more = f" and {len(trouble.cases) - 4} more" if len(trouble.cases) > 4 else ""
    where = text.plain(f"{trouble.implementation} in {trouble.stage} ({shown}{more})")
    yield f"{look.paint(f'{trouble.word}: {where}', style)}: {text.plain(trouble.reason)}"
    if trouble.place:
        yield f"  asked for at {text.plain(trouble.place)}"
    if line := _harness_line(trouble):
        name = trouble.implementation.partition("/")[0]
        yield f"  harness at {text.plain(f'{folder}/harness/{name}.py'.lstrip('/'))}:{line}"
    tail = trouble.detail.rstrip().split("\n") if trouble.detail.strip() else []
    tail = tail if debug else tail[-DETAIL_LINES:]
    yield from (look.paint(f"  │ {text.plain(line)}", "dim") for line in tail)


def _harness_line(trouble: Trouble) -> str:
    """The line of the harness that a traceback passed last; empty where it passed none."""
    name = re.escape(trouble.implementation.partition("/")[0])
    found = re.findall(rf'File "(?:[^"]*/)?harness/{name}\.py", line (\d+)', trouble.detail)
    return found[-1] if found else ""
