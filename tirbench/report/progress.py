"""What a person watches while a run goes on: on stderr, live where that is a terminal.

Where it is none (a pipe, a log of CI) there is one line for each finished case and nothing else.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Protocol

from tirbench.model import Outcome, Timed
from tirbench.report import text
from tirbench.report.table import word
from tirbench.report.terminal import Look, look_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress(Protocol):
    """What the pipeline tells while it waits for workers."""

    def stage(self, case: str, implementation: str | None, stage: str) -> None:
        """A worker begins a stage of a case (`workload/id`), for one implementation or for all."""

    def case_done(self, case: str, outcomes: Sequence[Outcome], seconds: float) -> None:
        """A case has all its outcomes, `seconds` after it began."""

    def say(self, line: str) -> None:
        """Anything else worth a line: a worker was started again, a lock is waited for."""


@contextmanager
def show_progress(
    cases: int, stream: IO[str] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Progress]:
    """Show how far a run is, for as long as the context is open.

    Args:
        cases: how many there are.
        stream: where to; stderr if not given.
        environment: of the process. `NO_COLOR` takes the colours and leaves the display;
            `FORCE_COLOR` does not make a pipe live.
    """
    stream = stream or sys.stderr
    environment = environment or {}
    look = look_of(stream, environment)
    live = stream.isatty() and environment.get("TERM") != "dumb" and not environment.get("CI")
    if not live:
        yield LineProgress(cases, lambda line: print(line, file=stream, flush=True), look)
        return
    display, console = _display(stream, look)
    with display:
        task = display.add_task("", total=cases)
        yield _LiveProgress(cases, look, display, console, task)


class LineProgress:
    """One line for each finished case.

    Args:
        cases: how many there are.
        write: takes a line.
        look: width and colours.
    """

    def __init__(self, cases: int, write: Callable[[str], None], look: Look) -> None:
        self.cases = cases
        self.done = 0
        self.write = write
        self.look = look

    def stage(self, case: str, implementation: str | None, stage: str) -> None:
        """Stages are not shown: a log is read afterwards."""

    def case_done(self, case: str, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Write the line of a finished case."""
        self.done += 1
        self.write(case_line(self.done, self.cases, case, outcomes, seconds, self.look))

    def say(self, line: str) -> None:
        """Write a line."""
        self.write(text.plain(line))


def case_line(  # noqa: PLR0913 - what a line says
    done: int, cases: int, case: str, outcomes: Sequence[Outcome], seconds: float, look: Look
) -> str:
    """`[ 3/24] rmsnorm/hs4096_bs128  triton 3.412 µs, torch 7.165 µs, liger BASELINE_ERROR  (2.1 s)`."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.row.role)
    parts = [_part(outcome, look) for outcome in ordered]
    number = f"[{done:>{len(str(cases))}}/{cases}]"
    return f"{number} {text.plain(case)}  {', '.join(parts)}  ({seconds:.1f} s)"


def _part(outcome: Outcome, look: Look) -> str:
    name = text.plain(outcome.row.implementation)
    if isinstance(outcome, Timed):
        return f"{name} {text.significant(outcome.estimate.midmean_us)} µs"
    styles = {"wrong": "red", "failed": "red", "skipped": "dim", "verified": "cyan"}
    said = word(outcome)
    return f"{name} {look.paint(said, styles.get(said, 'yellow'))}"


class _LiveProgress(LineProgress):
    """The same lines above a bar that says what happens now."""

    def __init__(
        self, cases: int, look: Look, display: RichProgress, console: Console, task: TaskID
    ) -> None:
        super().__init__(cases, self._print, look)
        self._display = display
        self._console = console
        self._task = task

    def stage(self, case: str, implementation: str | None, stage: str) -> None:
        """Show what a worker does now."""
        now = " ".join(part for part in (case, implementation, stage) if part)
        self._display.update(self._task, description=_escaped(now))

    def case_done(self, case: str, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Write the line of a finished case and move the bar."""
        super().case_done(case, outcomes, seconds)
        self._display.advance(self._task)

    def _print(self, line: str) -> None:
        from rich.text import Text

        self._console.print(Text.from_ansi(line), soft_wrap=True)


def _display(stream: IO[str], look: Look) -> tuple[RichProgress, Console]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(
        file=stream, no_color=not look.color, width=look.width, highlight=False, emoji=False
    )
    columns = (
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    return Progress(*columns, console=console, transient=True), console


def _escaped(name: str) -> str:
    from rich.markup import escape

    return escape(text.plain(name))
