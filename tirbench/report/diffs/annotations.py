"""Workflow commands for a comparison: errors at the lines that must change, within GitHub's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirbench.report.diffs.sections import weakening_line
from tirbench.report.github import limited, message, property_

if TYPE_CHECKING:
    from tirbench.model import Diff, Weakening


def annotate(diff: Diff) -> tuple[str, ...]:
    """Errors at the lines that must change, warnings at explained weakening, within GitHub's limits."""
    errors = [
        _annotation("error", one.place, "weakening", weakening_line(one)) for one in _bare(diff)
    ]
    errors += [
        _annotation("error", one.path, one.kind, f"{one.subject}: {one.text}")
        for one in diff.problems
    ]
    errors += [
        _annotation("error", line.partition(": ")[0], "unreadable", line) for line in diff.invalid
    ]
    warnings = [
        _annotation("warning", one.place, "weakening", weakening_line(one))
        for one in diff.weakenings
        if one.reason
    ]
    warnings += [f"::warning title=notice::{message(line)}" for line in diff.notices]
    return (*limited(errors, "error", "finding"), *limited(warnings, "warning", "finding"))


def _bare(diff: Diff) -> list[Weakening]:
    return [one for one in diff.weakenings if not one.reason]


def _annotation(command: str, place: str, title: str, content: str) -> str:
    file, _, line = place.rpartition(":")
    at = [f"file={property_(file)}", f"line={line}"] if line.isdecimal() else []
    if not at and place:
        at = [f"file={property_(place)}"]
    return f"::{command} {','.join([*at, f'title={property_(title)}'])}::{message(content)}"
