"""Workflow commands that put what is wrong beside the lines of a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tirbench.model import Failed, Row, Run
from tirbench.report import text
from tirbench.report.table import BASELINE_ERROR, Trouble, troubles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tirbench.diagnostics import Diagnostic

LIMIT: Final = 10
"""Annotations of a kind that GitHub shows of one step; it drops the others in silence."""


def annotate(run: Run, place: Callable[[Row], str | None]) -> tuple[str, ...]:
    """An `::error` for each wrong or failed kernel, a `::warning` for each failed reference.

    The last of a kind says how many did not fit.

    Args:
        run: what was measured.
        place: where the workload asks for a row, `workloads/x.toml:12`; `None` if that is unknown.
    """
    places = {
        (f"{outcome.row.workload}/{outcome.row.implementation}"): (
            outcome.place if isinstance(outcome, Failed) and outcome.place else place(outcome.row)
        )
        for outcome in run.outcomes
    }
    errors: list[str] = []
    warnings: list[str] = []
    for trouble in troubles(run.outcomes):
        reference = trouble.word == BASELINE_ERROR
        command = "warning" if reference else "error"
        line = _command(command, trouble, places.get(trouble.implementation))
        (warnings if reference else errors).append(line)
    return (*limited(errors, "error"), *limited(warnings, "warning"))


def annotate_problems(problems: Sequence[Diagnostic]) -> tuple[str, ...]:
    """An `::error` or `::warning` at the place of each problem of a workload file."""
    lines: dict[str, list[str]] = {"error": [], "warning": []}
    for one in problems:
        place = f"file={property_(one.file)},line={one.line},col={one.column}"
        end = f"endColumn={one.column + one.length}"
        said = message(f"{one.message}. {one.hint}" if one.hint else one.message)
        line = f"::{one.severity} {place},title={property_(one.code)},{end}::{said}"
        lines[one.severity].append(line)
    return (*limited(lines["error"], "error"), *limited(lines["warning"], "warning"))


def _command(command: str, trouble: Trouble, place: str | None) -> str:
    file, _, line = (place or "").rpartition(":")
    properties = [f"title={property_(f'{trouble.word}: {trouble.implementation}')}"]
    if file and line.isdecimal():
        properties = [f"file={property_(file)}", f"line={line}", *properties]
    cases = ", ".join(trouble.cases)
    return f"::{command} {','.join(properties)}::{message(f'{trouble.reason} ({cases})')}"


def limited(lines: list[str], command: str, word: str = "problem") -> list[str]:
    """As many lines of one kind as are shown, the last of which counts those that are not."""
    if len(lines) <= LIMIT:
        return lines
    rest = len(lines) - LIMIT + 1
    return [*lines[: LIMIT - 1], f"::{command}::{text.count(rest, f'more {word}')} in the summary"]


def message(content: str) -> str:
    """A message as workflow commands escape it; `%` first, since it begins the others."""
    return text.plain(content).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_(content: str) -> str:
    """The value of a property as workflow commands escape it."""
    return message(content).replace(":", "%3A").replace(",", "%2C")


def annotate_rows(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Lines with one command a row: (`error` or `warning`, file, title, message), both kinds limited."""
    lines: dict[str, list[str]] = {"error": [], "warning": []}
    for command, file, title, said in rows:
        place = f"file={property_(file)},title={property_(title)}"
        lines[command].append(f"::{command} {place}::{message(said)}")
    kept = [line for command, found in lines.items() for line in limited(found, command)]
    return "".join(f"{line}\n" for line in kept)
