"""What a gate decided, as text, Markdown, JSON, or workflow commands."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from tirbench import codec
from tirbench.report import columns, text
from tirbench.report.github import annotate_rows
from tirbench.report.verdicts import environment_text

if TYPE_CHECKING:
    from tirbench.model import GateDecision, GateReport, GateRow

FORMAT: Final = 1

STYLES: Final = {"pass": "green", "fail": "red", "could not": "yellow"}
QUIET: Final = frozenset({"same", "current", "remeasured"})
"""Rules of rows that a reader need not see one by one."""

HEADS: Final = ("row", "gate", "rule", "pinned µs", "now µs", "ratio", "why")


def render(report: GateReport, form: str, *, code: int, width: int, color: bool = False) -> str:
    """A gate's report in one of the formats, with its last line ended.

    Args:
        report: what was decided.
        form: `text`, `markdown`, `json` or `github`.
        code: what the command will answer.
        width: columns of the text.
        color: whether the text has colours.
    """
    if form == "json":
        return _json(report, code)
    if form == "markdown":
        return _markdown(report, code)
    body = _text(report, code, columns.Look(width=width, color=color))
    return annotate_rows(_annotations(report)) + body if form == "github" else body


def _shown(report: GateReport) -> list[GateRow]:
    return [row for row in report.rows if row.decision.rule not in QUIET]


def _cells(row: GateRow) -> tuple[str, ...]:
    decision = row.decision
    return (
        _name(row),
        decision.kind,
        decision.rule,
        "" if row.pinned_us is None else text.significant(row.pinned_us),
        "" if row.midmean_us is None else text.significant(row.midmean_us),
        "" if decision.ratio is None else f"{decision.ratio:.4f}",
        decision.reason,
    )


def _name(row: GateRow) -> str:
    return f"{row.workload}/{row.decision.case}/{row.decision.implementation}"


def summary(report: GateReport, code: int) -> str:
    """`gate of run …: 12 rows: 10 pass, 1 fail, 1 could not: exit 1`."""
    counts = Counter(row.decision.kind for row in report.rows)
    parts = [f"{counts[kind]} {kind}" for kind in ("pass", "fail", "could not") if counts[kind]]
    rows = text.count(len(report.rows), "row")
    return f"gate of {report.judged}: {rows}: {', '.join(parts) or 'nothing pinned'}: exit {code}"


def _text(report: GateReport, code: int, look: columns.Look) -> str:
    lines: list[str] = []
    shown = _shown(report)
    if shown:
        lines += columns.table(
            HEADS,
            [_cells(row) for row in shown],
            look,
            right=frozenset({3, 4, 5}),
            style=lambda cells: STYLES[cells[1]],
        )
        lines.append("")
    for notice in _notices(report):
        lines.append(look.paint(text.plain(notice), "dim"))
    for broken in report.unreadable:
        lines.append(look.paint(text.plain(broken, lines=True), "red"))
    lines.append(look.paint(text.plain(summary(report, code)), "bold"))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _notices(report: GateReport) -> list[str]:
    found = list(report.notes)
    quiet = len(report.rows) - len(_shown(report))
    if quiet:
        found.append(f"{text.count(quiet, 'row')} as pinned, not shown")
    if report.environment is not None:
        found.append(environment_text(report.environment, "rows of unchanged code"))
    if any(row.decision.ratio is not None for row in report.rows):
        found.append("ratio: new / pinned; below 1 is faster")
    return found


def _markdown(report: GateReport, code: int) -> str:
    lines = [f"**{text.markdown(summary(report, code))}**", ""]
    lines += [f"> {text.markdown(line)}" for line in _notices(report)]
    lines += ["> " + text.markdown(line) for one in report.unreadable for line in one.splitlines()]
    shown = _shown(report)
    if shown:
        lines += [
            "",
            *columns.markdown(HEADS, [_cells(row) for row in shown], frozenset({3, 4, 5})),
        ]
    return "\n".join(lines) + "\n"


def _json(report: GateReport, code: int) -> str:
    data = codec.dump(report)
    assert isinstance(data, dict)  # noqa: S101 - a dataclass is always an object
    document = {"schema": FORMAT, "exit_code": code, **data}
    return json.dumps(document, allow_nan=False, indent=2) + "\n"


def _annotations(report: GateReport) -> list[tuple[str, str, str, str]]:
    found = [
        (_command(row.decision), row.path, f"gate: {_name(row)}", row.decision.reason)
        for row in report.rows
        if row.decision.exit_code
    ]
    for broken in report.unreadable:
        path = broken.partition(":")[0]
        found.append(("error", path, "gate: baseline", broken))
    return found


def _command(decision: GateDecision) -> str:
    """What an author can mend is an error; what needs a machine a warning."""
    return "error" if decision.exit_code == 1 else "warning"
