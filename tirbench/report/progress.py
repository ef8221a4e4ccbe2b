"""What a person watches while a run goes on: on stderr, live where that is a terminal.

Where it is none (a pipe, a log of CI) there is one line for each finished case and nothing else.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from tirbench.model import Outcome, Timed
from tirbench.report import text
from tirbench.report.table import word
from tirbench.report.terminal import Look, look_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.progress import Progress, TaskID


@contextmanager
def progress(
    stream: IO[str], *, total: int, environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[Any], None]]:
    """Show how far a run is, for as long as the context is open.

    Args:
        stream: where to, as a rule stderr.
        total: how many rows are asked for; 0 where that shows only as it goes on.
        environment: the process's own if not given. `NO_COLOR` takes the colours and leaves the
            display; `FORCE_COLOR` does not make a pipe live.

    Yields:
        A function that is shown every event of `tirbench.execute`.
    """
    environment = os.environ if environment is None else environment
    look = look_of(stream, environment)
    live = stream.isatty() and environment.get("TERM") != "dumb" and not environment.get("CI")
    if not live:
        yield Watch(total, lambda line: print(line, file=stream, flush=True), look)
        return
    display = _display(stream, look)
    with display:
        yield _LiveWatch(total, look, display, display.add_task("", total=total or None))


class Watch:
    """Turns events into one line for each finished case.

    Events are told apart by what they carry, since stages do not import each other: `outcome` (a row is
    answered), `elapsed_s` (a case is done), `stage` (one begins), `reason` (a worker was replaced).

    Args:
        total: how many rows are asked for.
        write: takes a line.
        look: width and colours.
    """

    def __init__(self, total: int, write: Callable[[str], None], look: Look) -> None:
        self.total = total
        self.answered = 0
        self.write = write
        self.look = look
        self._outcomes: dict[tuple[str, str], list[Outcome]] = {}

    def __call__(self, event: Any) -> None:
        """Show an event, or keep it for the line of its case."""
        if hasattr(event, "outcome"):
            self.answered += 1
            row = event.outcome.row
            self._outcomes.setdefault((row.workload, row.case), []).append(event.outcome)
            self.row_done()
        elif hasattr(event, "elapsed_s"):
            outcomes = self._outcomes.pop((event.workload, event.case), [])
            case = f"{event.workload}/{event.case}"
            whole = f"/{self.total}" if self.total else ""
            count = f"[{self.answered:>{len(str(self.total))}}{whole}]"
            self.write(f"{count} {case_line(case, outcomes, event.elapsed_s, self.look)}")
        elif hasattr(event, "stage"):
            self.stage(f"{event.workload}/{event.case}", event.implementation, event.stage)
        elif hasattr(event, "reason"):
            line = f"{event.workload}/{event.case}: a fresh worker, because {event.reason}"
            self.write(self.look.paint(text.plain(line), "yellow"))

    def row_done(self) -> None:
        """A row is answered: nothing to show before its case is done."""

    def stage(self, case: str, implementation: str | None, stage: str) -> None:
        """A stage begins: nothing to show in a log that is read afterwards."""


def case_line(case: str, outcomes: Sequence[Outcome], seconds: float, look: Look) -> str:
    """`rmsnorm/hs4096_bs128  triton 3.412 µs, torch 7.165 µs, liger BASELINE_ERROR  (2.1 s)`."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.row.role)
    parts = ", ".join(_part(outcome, look) for outcome in ordered)
    return f"{text.plain(case)}  {parts}  ({seconds:.1f} s)"


def _part(outcome: Outcome, look: Look) -> str:
    name = text.plain(outcome.row.implementation)
    if isinstance(outcome, Timed):
        return f"{name} {text.significant(outcome.estimate.midmean_us)} µs"
    styles = {"wrong": "red", "failed": "red", "skipped": "dim", "verified": "cyan"}
    said = word(outcome)
    return f"{name} {look.paint(said, styles.get(said, 'yellow'))}"


class _LiveWatch(Watch):
    """The same lines above a bar that says what happens now."""

    def __init__(self, total: int, look: Look, display: Progress, task: TaskID) -> None:
        super().__init__(total, self._print, look)
        self._display = display
        self._task = task

    def row_done(self) -> None:
        """Move the bar."""
        self._display.advance(self._task)

    def stage(self, case: str, implementation: str | None, stage: str) -> None:
        """Show what a worker does now."""
        from rich.markup import escape

        now = " ".join(part for part in (case, implementation, stage) if part)
        self._display.update(self._task, description=escape(text.plain(now)))

    def _print(self, line: str) -> None:
        from rich.text import Text

        self._display.console.print(Text.from_ansi(line), soft_wrap=True)


def _display(stream: IO[str], look: Look) -> Progress:
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
    return Progress(*columns, console=console, transient=True)
