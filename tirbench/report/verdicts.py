"""What a paired comparison found, as text, Markdown, JSON, or workflow commands."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from tirbench import codec
from tirbench.model import Failed, Wrong
from tirbench.report import columns, text
from tirbench.report.github import annotate_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.model import Environment, PairPrice, PairReport, Verdict

FORMAT: Final = 1
HEADS: Final = ("row", "verdict", "effect", "95 % interval", "workers", "why")
ORDER: Final = ("slower", "faster", "undecided", "incomparable", "missing", "same")
STYLES: Final = {
    "slower": "red",
    "faster": "green",
    "undecided": "yellow",
    "incomparable": "yellow",
    "missing": "yellow",
    "same": "dim",
}
NOT_VARIED: Final = "torch, Triton and the driver are this machine's on both sides"


def render(report: PairReport, form: str, *, code: int, width: int, color: bool = False) -> str:
    """A comparison in one of the formats, with its last line ended; arguments as `gates.render`."""
    if form == "json":
        data = codec.dump(report)
        assert isinstance(data, dict)  # noqa: S101 - a dataclass is always an object
        document = {"schema": FORMAT, "exit_code": code, **data}
        return json.dumps(document, allow_nan=False, indent=2) + "\n"
    if form == "markdown":
        return _markdown(report, code)
    body = _text(report, code, columns.Look(width=width, color=color))
    return annotate_rows(_annotations(report)) + body if form == "github" else body


def environment_text(environment: Environment, what: str = "placebo") -> str:
    """`placebo 0/24 flagged, environment +0.1 %`."""
    if environment.shift is None:
        return f"{what}: none, so nothing is known of the environment"
    shift = round(100 * math.expm1(environment.shift), 1) + 0.0  # a rounded -0.0 becomes 0.0
    return f"{what} {environment.flagged}/{environment.rows} flagged, environment {shift:+.1f} %"


def summary(report: PairReport, code: int) -> str:
    """`ab main → working tree: 12 rows: 1 slower, 11 same: exit 1`."""
    counts = Counter(verdict.kind for verdict in report.verdicts)
    parts = [f"{counts[kind]} {kind}" for kind in ORDER if counts[kind]]
    rows = text.count(len(report.verdicts), "row")
    return f"ab {report.base} → {report.head}: {rows}: {', '.join(parts) or 'nothing'}: exit {code}"


def prices_text(prices: Sequence[PairPrice], *, width: int, color: bool = False) -> str:
    """What a comparison would find and cost, before it is made."""
    look = columns.Look(width=width, color=color)
    rows = [
        (
            price.row.key,
            f"{100 * price.slower_than:.3g} %",
            str(price.workers),
            "?" if price.minimal_effect is None else f"{100 * price.minimal_effect:.2f} %",
            "?" if price.gpu_s is None else f"{price.gpu_s:.2f}",
            price.known_from or "never measured here: its noise is unknown",
        )
        for price in prices
    ]
    heads = ("row", "T", "workers", "found from", "GPU s", "known from")
    lines = columns.table(heads, rows, look, right=frozenset({1, 2, 3, 4}))
    known = [price.gpu_s for price in prices if price.gpu_s is not None]
    lines += [
        "",
        look.paint("found from: the least slowdown that is found in 95 % of all runs", "dim"),
        look.paint(
            "GPU s: both sides, one stage, flushes included; flagged rows take a second", "dim"
        ),
        look.paint(f"{text.count(len(prices), 'row')}, {sum(known):.1f} GPU s", "bold"),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def prices_json(prices: Sequence[PairPrice]) -> str:
    """The same for programs."""
    data = {"schema": FORMAT, "rows": [codec.dump(price) for price in prices]}
    return json.dumps(data, allow_nan=False, indent=2) + "\n"


def _ordered(report: PairReport) -> list[Verdict]:
    return sorted(report.verdicts, key=lambda one: (ORDER.index(one.kind), one.row.key))


def _cells(verdict: Verdict) -> tuple[str, ...]:
    effect = interval = workers = ""
    if verdict.estimate is not None:
        centre, error = verdict.estimate.log_ratio, verdict.estimate.standard_error
        effect = effect_of(verdict)
        interval = f"{_percent(centre - 1.96 * error)} … {_percent(centre + 1.96 * error)}"
        workers = str(verdict.estimate.workers)
    why = verdict.reason
    if verdict.method != "one worker":
        why += f" ({verdict.method})"
    return verdict.row.key, verdict.kind, effect, interval, workers, why


def effect_of(verdict: Verdict) -> str:
    """`+1.02 %`: how much slower head is; empty where nothing was measured."""
    return "" if verdict.estimate is None else _percent(verdict.estimate.log_ratio)


def _percent(log_ratio: float) -> str:
    return f"{round(100 * math.expm1(log_ratio), 2) + 0.0:+.2f} %"


def _text(report: PairReport, code: int, look: columns.Look) -> str:
    lines: list[str] = []
    if report.verdicts:
        cells = [_cells(one) for one in _ordered(report)]
        lines += columns.table(
            HEADS, cells, look, right=frozenset({2, 3, 4}), style=lambda row: STYLES[row[1]]
        )
        lines.append("")
    for failure in report.failures:
        if isinstance(failure, Wrong | Failed):
            lines.append(look.paint(text.plain(f"{failure.row.key}: {failure.reason}"), "red"))
    lines += [look.paint(text.plain(notice), "dim") for notice in _notices(report)]
    lines.append(look.paint(text.plain(summary(report, code)), "bold"))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _notices(report: PairReport) -> list[str]:
    found = [f"{text.count(count, 'row')} not compared: {why}" for why, count in report.left_out]
    found += report.notes
    if report.environment is not None:
        found.append(environment_text(report.environment))
    found.append(f"effect: head / base - 1; above 0 is slower; {NOT_VARIED}")
    return found


def _markdown(report: PairReport, code: int) -> str:
    lines = [f"**{text.markdown(summary(report, code))}**", ""]
    lines += [f"> {text.markdown(line)}  " for line in _notices(report)]
    if report.verdicts:
        cells = [_cells(one) for one in _ordered(report)]
        lines += ["", *columns.markdown(HEADS, cells, frozenset({2, 3, 4}))]
    return "\n".join(lines) + "\n"


def _annotations(report: PairReport) -> list[tuple[str, str, str, str]]:
    return [
        (
            "error" if verdict.kind == "slower" else "warning",
            dict(report.paths).get(verdict.row.workload, verdict.row.workload),
            f"ab: {verdict.kind}: {verdict.row.key}",
            verdict.reason,
        )
        for verdict in _ordered(report)
        if verdict.kind in {"slower", "undecided", "incomparable"}
    ]
