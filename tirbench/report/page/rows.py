"""The rows of a run as the page shows them: texts to read, numbers to sort by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tirbench.bands import OTHER_UNIT
from tirbench.model import Failed, Outcome, Skipped, Timed, Verified, Wrong
from tirbench.report import text
from tirbench.report.page import charts
from tirbench.report.table import kind_of, word

if TYPE_CHECKING:
    from tirbench.report.page.given import Page, Pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row. Empty texts are shown as nothing; `sort` are the values of the columns, in their order.

    `deviation` is the change against the pin over what that allows: beyond ±1 the row has moved.
    """

    anchor: str
    workload: str
    case: str
    implementation: str
    role: str
    kind: str
    status: str
    tone: str
    time: str = ""
    ratio: str = ""
    rate: str = ""
    share: float | None = None
    share_text: str = ""
    verdict: str = ""
    verdict_tone: str = ""
    deviation: float | None = None
    note: str = ""
    chart: str = ""
    history: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    detail: str = ""
    harness: str = ""
    sort: tuple[str | float, ...] = field(default=())


def anchor_of(key: str) -> str:
    """The id of a row's element: only characters that need no escape."""
    return "row-" + re.sub(r"[^A-Za-z0-9_.-]", "-", key)


def lines(page: Page) -> list[Line]:
    """Every outcome, in the order of the run: cases together, kernels before references."""
    order = {outcome.row.workload: None for outcome in page.run.outcomes}
    names = {name: index for index, name in enumerate(sorted(order))}
    cases = {
        key: index
        for index, key in enumerate(
            dict.fromkeys((one.row.workload, one.row.case) for one in page.run.outcomes)
        )
    }

    def place(one: Outcome) -> tuple[int, int, str, str]:
        row = one.row
        return names[row.workload], cases[row.workload, row.case], row.role, row.implementation

    return [_line(page, one) for one in sorted(page.run.outcomes, key=place)]


def _line(page: Page, outcome: Outcome) -> Line:
    row = outcome.row
    kind = kind_of(outcome)
    tone = {"timed": "good", "verified": "good", "wrong": "bad", "failed": "bad"}.get(kind, "mute")
    if kind == "failed" and row.role == "reference":
        tone = "warn"
    common = {
        "anchor": anchor_of(row.key),
        "workload": row.workload,
        "case": row.case,
        "implementation": row.implementation,
        "role": row.role,
        "kind": kind,
        "status": word(outcome).replace("_", " ").lower(),
        "tone": tone,
        "harness": f"harness-{row.workload}",
    }
    match outcome:
        case Timed():
            return _timed(page, outcome, common)
        case Verified():
            return Line(**common, note=outcome.untimed)  # type: ignore[arg-type]
        case Wrong():
            return Line(**common, note=outcome.reason)  # type: ignore[arg-type]
        case Failed():
            note = f"{outcome.stage}: {outcome.reason}"
            return Line(**common, note=note, detail=outcome.detail)  # type: ignore[arg-type]
        case Skipped():
            return Line(**common, note=outcome.reason)  # type: ignore[arg-type]


def _timed(page: Page, one: Timed, common: dict[str, str]) -> Line:
    estimate, pinned = one.estimate, page.pins.get(one.row.key)
    verdict, verdict_tone, change, deviation = _verdict(page, one, pinned)
    reference = page.references.get(one.row.workload, "")
    ratio = _ratio(page, one, reference)
    current = pinned is not None and bool(verdict_tone)
    band = (pinned.row.midmean_us, pinned.row.band) if pinned is not None and current else None
    spread = page.spreads.get(one.row.key)
    history = ""
    if pinned is not None and len(pinned.history) > 1:
        now = estimate.midmean_us if current else None
        history = charts.history(pinned.history, now, pinned.row.band)
    bound = {"bandwidth": "of bandwidth", "compute": "of compute"}.get(one.rates.roof_by or "", "")
    return Line(
        **common,
        time=text.microseconds(estimate.midmean_us, estimate.half_width_us),
        ratio="" if ratio is None else text.significant(ratio, 3),
        rate=_rate(one),
        share=one.rates.roof,
        share_text="" if one.rates.roof is None else f"{text.percent(one.rates.roof)} {bound}",
        verdict=verdict,
        verdict_tone=verdict_tone,
        deviation=deviation,
        note="; ".join(one.notes),
        chart=charts.distribution(spread, estimate.placements_us, band),
        history=history,
        facts=tuple(_facts(page, one, pinned)),
        sort=(
            estimate.midmean_us,
            -1.0 if ratio is None else ratio,
            one.rates.tflops or one.rates.gbytes_per_s or -1.0,
            -1.0 if one.rates.roof is None else one.rates.roof,
            change,
        ),
    )


def _verdict(page: Page, one: Timed, pinned: Pinned | None) -> tuple[str, str, float, float | None]:
    """Word and tone of a time against its pin, the relative change to sort by, and the deviation."""
    if pinned is None:
        return "not pinned", "", -9.0, None
    row = pinned.row
    if (row.problem, row.protocol) != (one.problem, one.protocol):
        return "pinned for another problem or protocol", "", -9.0, None
    change = one.estimate.midmean_us / row.midmean_us - 1
    unit = one.unit or page.run.machine.unit or "none"
    allowed = row.band + (0.0 if unit == row.unit else OTHER_UNIT)
    figure = f"{round(100 * change, 1) + 0.0:+.1f} %"  # + 0.0: no -0.0
    if abs(change) <= allowed:
        return f"same {figure}", "good", change, change / allowed
    same = one.code is not None and one.code.digest == row.code
    cause = ", same code" if same else ""
    word, tone = ("slower", "bad") if change > 0 else ("faster", "fast")
    return f"{word} {figure}{cause}", tone, change, change / allowed


def _ratio(page: Page, one: Timed, reference: str) -> float | None:
    if one.row.role != "kernel" or not reference:
        return None
    for other in page.run.outcomes:
        same = (other.row.workload, other.row.case) == (one.row.workload, one.row.case)
        if same and other.row.implementation == reference and isinstance(other, Timed):
            return one.estimate.midmean_us / other.estimate.midmean_us
    return None


def _rate(one: Timed) -> str:
    rates = one.rates
    computes = rates.roof_by == "compute" or (rates.roof_by is None and one.work.roof is not None)
    if rates.tflops is not None and (computes or rates.gbytes_per_s is None):
        return f"{text.significant(rates.tflops, 3)} TFLOP/s"
    return "" if rates.gbytes_per_s is None else f"{text.significant(rates.gbytes_per_s, 3)} GB/s"


def _facts(page: Page, one: Timed, pinned: Pinned | None) -> Iterator[tuple[str, str]]:
    estimate, code = one.estimate, one.code
    yield "timer", estimate.timer
    yield "calls", f"{estimate.calls:,}"
    yield (
        "min / p10 / median / p90",
        " / ".join(
            text.significant(time)
            for time in (estimate.min_us, estimate.p10_us, estimate.median_us, estimate.p90_us)
        )
        + " µs",
    )
    yield "mean, as impls", f"{text.significant(estimate.mean_us)} µs"
    if estimate.half_width_us is not None:  # else nothing was repeated
        yield "a placement again", f"± {100 * estimate.within_sd:.2g} %"
    if estimate.kernels is not None:
        yield "kernels a call", str(estimate.kernels)
    if code is not None:
        yield "code", code.digest
        for name, number in (
            ("registers", code.registers),
            ("spilled registers", code.spills),
            ("shared memory", None if code.shared_bytes is None else text.size(code.shared_bytes)),
            ("instructions", None if code.instructions is None else f"{code.instructions:,}"),
            ("occupancy", None if code.occupancy is None else text.percent(code.occupancy)),
            ("tuned to", code.configuration),
        ):
            if number is not None:
                yield name, str(number)
    verification = one.verification
    worst = (
        ""
        if verification.worst is None
        else f", {text.percent(verification.worst)} of its tolerance"
    )
    yield "verified", f"{verification.method}{worst}"
    if pinned is not None:
        yield (
            "pinned",
            f"{text.significant(pinned.row.midmean_us)} µs ± {100 * pinned.row.band:.2g} %",
        )
        if len(pinned.history) == 1:
            date, commit, _ = pinned.history[0]
            yield "pinned since", f"{date}, commit {commit}"
        if pinned.row.reason:
            yield "reason of the pin", pinned.row.reason
    place = page.places.get(one.row.key)
    if place:
        yield "asked for at", place
