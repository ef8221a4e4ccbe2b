"""A run as one HTML file: no network, no library, readable by keyboard, on a phone, in the dark.

Whatever the page shows was escaped by the template engine; the only text that is not are the charts, which
escape what they are given themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench.model import Timed
from tirbench.report import table, text
from tirbench.report.page import charts
from tirbench.report.page.given import Page, Pinned, Quantiles, Spread, spread
from tirbench.report.page.rows import Line, anchor_of, lines

if TYPE_CHECKING:
    import jinja2

    from tirbench.model import Roofs

HARNESS_BYTES: Final = 64 << 10
"""Of one harness that the page holds; a longer one is cut, and says so and where it lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """One chart: the rows that are held to one ceiling."""

    title: str
    chart: str
    note: str = ""


def render(page: Page) -> str:
    """The page; the same input gives the same bytes."""
    from markupsafe import Markup

    shown = lines(page)
    counts = Counter(line.kind for line in shown)
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            run=page.run,
            headline=table.headline(page.run).removeprefix(f"{page.run.machine.device} · "),
            summary=table.summary(page.run.outcomes),
            verdict=verdict(page),
            notes=page.notes,
            lines=shown,
            kinds=[(kind, counts[kind]) for kind in table.KINDS if counts[kind]],
            chips=list(chips(shown)),
            glance=list(glance(page, shown)),
            workloads=sorted({line.workload for line in shown}),
            rooflines=list(rooflines(page)),
            machine=list(_machine(page)),
            harnesses=[_harness(page, name, content) for name, content in page.harnesses],
            svg=Markup,
        )
    )


def verdict(page: Page) -> str:
    """The one line that a reader needs: what is wrong, and what moved against its pin."""
    words = Counter(line.verdict.partition(" ")[0] for line in lines(page) if line.verdict_tone)
    bad = Counter(line.kind for line in lines(page) if line.tone == "bad")
    parts = [f"{bad[kind]} {kind}" for kind in ("wrong", "failed") if bad[kind]]
    broken = sum(line.tone == "warn" for line in lines(page))
    parts += [f"{words[word]} {word}" for word in ("slower", "faster", "same") if words[word]]
    parts += [f"{text.count(broken, 'reference')} failed"] if broken else []
    timed = [line for line in lines(page) if line.kind == "timed"]
    loose = sum(not line.verdict_tone for line in timed)
    if loose:
        parts.append(f"{loose} without a pin to compare with")
    return " · ".join(parts) or "nothing was timed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A count on top that filters the rows: `208 same`; `field` and `value` are of the filter."""

    count: int
    word: str
    tone: str
    field: str
    value: str


def chips(shown: Sequence[Line]) -> Iterator[Chip]:
    """What there is of each verdict and outcome, the worst first; what there is none of is left out."""
    kinds = Counter(line.kind for line in shown)
    moved = Counter(line.verdict.partition(" ")[0] for line in shown if line.verdict_tone)
    for word, tone, field, counts in (
        ("wrong", "bad", "kind", kinds),
        ("failed", "bad", "kind", kinds),
        ("slower", "bad", "moved", moved),
        ("faster", "fast", "moved", moved),
        ("same", "good", "moved", moved),
        ("verified", "good", "kind", kinds),
        ("skipped", "mute", "kind", kinds),
    ):
        if counts[word]:
            only = all(line.tone == "warn" for line in shown if line.kind == word)
            toned = "warn" if word == "failed" and only else tone
            yield Chip(count=counts[word], word=word, tone=toned, field=field, value=word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One row on the line of its workload; `left` in percent of the line."""

    title: str
    anchor: str
    left: float
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """One workload in a line: where its rows stand below their roofs, and its best kernel."""

    workload: str
    marks: tuple[Mark, ...]
    best: str


GLANCE_END: Final = 1.1
"""The share where a line ends; rows that work in the cache are beyond, and drawn at its end."""


def glance(page: Page, shown: Sequence[Line]) -> Iterator[Glance]:
    """Every workload of which a share of a roof is known, in the order of the table."""
    names = {anchor_of(one.row.key): one.row.key for one in page.run.outcomes}
    for workload in sorted({line.workload for line in shown if line.share is not None}):
        marks, best = [], 0.0
        for line in shown:
            if line.workload != workload or line.share is None:
                continue
            best = max(best, line.share if line.role == "kernel" else 0.0)
            marks.append(
                Mark(
                    title=f"{names[line.anchor]}: {line.share_text}, {line.time} µs",
                    anchor=line.anchor,
                    left=round(100 * min(line.share, GLANCE_END) / GLANCE_END, 1),
                    role=line.role,
                )
            )
        marks.sort(key=lambda mark: mark.role == "kernel")  # drawn last: above the references
        yield Glance(workload=workload, marks=tuple(marks), best=text.percent(best) if best else "")


# --- Rooflines ------------------------------------------------------------------------------------


def rooflines(page: Page) -> Iterator[Roofline]:
    """One chart for each dtype that rows name as their ceiling, and one for those that name none."""
    roofs = page.run.roofs
    if roofs.copy_gbytes_per_s is None:
        return
    groups: dict[str | None, list[Timed]] = {}
    left = 0
    for one in page.run.outcomes:
        if isinstance(one, Timed):
            if one.work.flops and one.work.bytes:
                groups.setdefault(one.work.roof, []).append(one)
            else:
                left += 1
    for dtype in sorted(groups, key=lambda name: (name is None, name or "")):
        yield _roofline(dtype, groups[dtype], roofs, left if dtype is None else 0)
    if left and None not in groups:
        yield Roofline(title="no place on a roofline", chart="", note=_left(left))


def _roofline(dtype: str | None, rows: list[Timed], roofs: Roofs, left: int) -> Roofline:
    ceiling = dict(roofs.tflops).get(dtype) if dtype is not None else None
    dots = [
        charts.Dot(
            name=one.row.key,
            anchor=anchor_of(one.row.key),
            intensity=(one.work.flops or 0) / (one.work.bytes or 1),
            tflops=(one.work.flops or 0) / one.estimate.midmean_us / 1e6,
            reference=one.row.role == "reference",
            share=one.rates.roof,
        )
        for one in rows
    ]
    assert roofs.copy_gbytes_per_s is not None  # noqa: S101 - asked by the caller
    title = f"{dtype} matrix products" if dtype else "bandwidth alone: no compute roof is named"
    notes = [_left(left)] if left else []
    if dtype is not None and ceiling is None:
        notes.append(f"the rate of {dtype} matrix products was not measured in this run")
    if dtype is None:
        notes.append("rows above the line work in the L2 cache")
    return Roofline(
        title=f"{title} ({len(rows)} rows)",
        chart=charts.roofline(dots, roofs.copy_gbytes_per_s, ceiling),
        note="; ".join(notes),
    )


def _left(count: int) -> str:
    return f"{count} timed rows say nothing of operations or bytes and have no place here"


# --- Environment and harnesses --------------------------------------------------------------------


def _machine(page: Page) -> Iterator[tuple[str, str]]:
    run = page.run
    yield "device", run.machine.device
    yield "hardware", run.machine.hardware
    if run.machine.unit:
        yield "unit", run.machine.unit
    yield "run", run.id
    dirty = f", with {len(run.dirty)} uncommitted files" if run.dirty else ""
    yield "commit", f"{run.commit or 'none'}{dirty}"
    for name, version in run.machine.versions:
        yield name, version
    for name, fact in run.machine.facts:
        yield name.replace("_", " "), fact
    for name, why in run.machine.missing:
        yield name.replace("_", " "), f"unknown: {why}"
    if run.roofs.copy_gbytes_per_s is not None:
        yield "copy bandwidth, measured", f"{run.roofs.copy_gbytes_per_s:,.0f} GB/s"
    for dtype, rate in run.roofs.tflops:
        yield f"{dtype} matrix product, measured", f"{rate:,.0f} TFLOP/s"


def _harness(page: Page, name: str, content: str) -> dict[str, Any]:
    """A program by parts: the head, and each case under the id that its rows link to."""
    stem = name.removesuffix(".py")
    cut = len(content.encode()) > HARNESS_BYTES
    if cut:
        content = content.encode()[:HARNESS_BYTES].decode(errors="ignore")
    marker = re.compile(r"(?m)^(?=@program\.case\()")
    return {
        "id": f"harness-{stem}",
        "name": name,
        "lines": content.count("\n"),
        "text": content,
        "cases": len(marker.findall(content)),
        "cut": f".tirbench/runs/{page.run.id}/harness/{name}" if cut else "",
    }


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    package = Path(__file__).parents[2]
    inside = package / "templates"  # in a wheel; beside the package in a checkout or sdist
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(inside if inside.is_dir() else package.parent / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


__all__ = [
    "Page",
    "Pinned",
    "Quantiles",
    "Spread",
    "chips",
    "glance",
    "render",
    "rooflines",
    "spread",
    "verdict",
]
