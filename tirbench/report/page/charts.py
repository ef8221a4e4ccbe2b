"""Charts as SVG text: deterministic, without a library, coloured by the page's style sheet.

Every number that is drawn stands in a `<title>` or beside it, for who cannot see the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from tirbench.report import text

if TYPE_CHECKING:
    from tirbench.report.page.given import Spread

WIDTH: Final = 480


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One row on a roofline: `intensity` in operations a byte, `tflops` achieved."""

    name: str
    anchor: str
    intensity: float
    tflops: float
    reference: bool
    share: float | None


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to positions, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (
            (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        )
        at = math.log10(value) if self.log else value
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


# --- Distribution ---------------------------------------------------------------------------------


def distribution(
    spread: Spread | None, placements_us: Sequence[float], pinned: tuple[float, float] | None
) -> str:
    """The calls of a row: a histogram over all, below it a box for each placement.

    Args:
        spread: of the raw times; without it only the estimates of the placements are drawn.
        placements_us: the interquartile mean of each placement.
        pinned: accepted time in µs and its band, relative.
    """
    ends = [*placements_us]
    if spread is not None:
        ends += [spread.low_us, spread.high_us]
    if pinned is not None:
        ends += [pinned[0] * (1 - pinned[1]), pinned[0] * (1 + pinned[1])]
    low, high = min(ends), max(ends)
    pad = (high - low) * 0.04 or 0.01 * high
    scale = _Scale(max(low - pad, 0), high + pad, 34, WIDTH - 8)
    top = 64 if spread is not None else 6
    count = len(placements_us)
    bottom = top + 12 * count + 4
    parts = list(_pin_band(scale, pinned, bottom))
    if spread is not None:
        parts += _histogram(spread, scale)
    parts += _placements(spread, placements_us, scale, top)
    parts += _axis(scale, bottom)
    label = f"{count} placements from {text.significant(min(placements_us))} to "
    label += f"{text.significant(max(placements_us))} µs"
    return _svg(WIDTH, bottom + 24, parts, label)


def _pin_band(scale: _Scale, pinned: tuple[float, float] | None, bottom: float) -> Iterator[str]:
    if pinned is None:
        return
    middle, band = pinned
    left, right = scale(middle * (1 - band)), scale(middle * (1 + band))
    title = f"pinned {text.significant(middle)} µs ± {100 * band:.2g} %"
    yield (
        f'<rect class="band" x="{_n(left)}" y="0" width="{_n(right - left)}" height="{_n(bottom)}">'
        f"<title>{escape(title)}</title></rect>"
    )
    at = _n(scale(middle))
    yield f'<line class="pin" x1="{at}" x2="{at}" y1="0" y2="{_n(bottom)}"/>'


def _histogram(spread: Spread, scale: _Scale) -> Iterator[str]:
    most = max(spread.counts) or 1
    width = (spread.high_us - spread.low_us) / len(spread.counts)
    path = []
    for index, count in enumerate(spread.counts):
        left, right = (scale(spread.low_us + (index + i) * width) for i in (0, 1))
        height = 52 * count / most
        path.append(f"M{_n(left)} 58v-{_n(height)}H{_n(right)}V58z")
    total = sum(spread.counts) + spread.beyond
    beyond = (
        f", {spread.beyond} beyond {text.significant(spread.high_us)} µs" if spread.beyond else ""
    )
    yield f'<path class="bars" d="{"".join(path)}"><title>{total} calls{beyond}</title></path>'


def _placements(
    spread: Spread | None, placements_us: Sequence[float], scale: _Scale, top: float
) -> Iterator[str]:
    boxes = {box.placement: box for box in spread.placements} if spread is not None else {}
    whiskers, bodies = [], []
    for index in range(len(placements_us)):
        box, y = boxes.get(index), top + 12 * index + 6
        if box is not None:
            whiskers.append(f"M{_n(scale(box.p10))} {_n(y)}H{_n(scale(min(box.p90, scale.high)))}")
            left, right = scale(box.q1), scale(box.q3)
            bodies.append(f"M{_n(left)} {_n(y - 3)}H{_n(max(right, left + 1))}v6H{_n(left)}z")
    if whiskers:
        yield f'<path class="whisker" d="{"".join(whiskers)}"/><path class="box" d="{"".join(bodies)}"/>'
    for index, middle in enumerate(placements_us):
        y = top + 12 * index + 6
        yield (
            f'<text class="tick" x="4" y="{_n(y + 3)}">k={index}</text>'
            f'<circle class="mid" cx="{_n(scale(middle))}" cy="{_n(y)}" r="3">'
            f"<title>placement {index}: {text.significant(middle)} µs</title></circle>"
        )


def _axis(scale: _Scale, bottom: float) -> Iterator[str]:
    y = _n(bottom)
    yield f'<line class="axis" x1="{_n(scale.start)}" x2="{_n(scale.end)}" y1="{y}" y2="{y}"/>'
    for value in _steps(scale.low, scale.high, 5):
        x = _n(scale(value))
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{_n(bottom)}" y2="{_n(bottom + 4)}"/>'
        yield (
            f'<text class="tick" text-anchor="middle" x="{x}" y="{_n(bottom + 16)}">'
            f"{_tick(value)}</text>"
        )
    yield f'<text class="tick" x="4" y="{_n(bottom + 16)}">µs</text>'


# --- History --------------------------------------------------------------------------------------


def history(points: Sequence[tuple[str, str, float]], now_us: float | None, band: float) -> str:
    """The accepted times of a row through git, with the band of the last and the time of this run."""
    times = [time for _, _, time in points] + ([] if now_us is None else [now_us])
    last = points[-1][2]
    low, high = min(*times, last * (1 - band)), max(*times, last * (1 + band))
    across = _Scale(0, max(len(times) - 1, 1), 14, 300)
    up = _Scale(low * 0.995, high * 1.005, 58, 8)
    y1, y2 = up(last * (1 + band)), up(last * (1 - band))
    parts = [f'<rect class="band" x="0" y="{_n(y1)}" width="314" height="{_n(y2 - y1)}"/>']
    line = " ".join(f"{_n(across(i))},{_n(up(time))}" for i, (_, _, time) in enumerate(points))
    parts.append(f'<polyline class="line" points="{line}"/>')
    for index, (date, commit, time) in enumerate(points):
        title = escape(f"{date} {commit}: {text.significant(time)} µs")
        parts.append(
            f'<circle class="mid" cx="{_n(across(index))}" cy="{_n(up(time))}" r="3">'
            f"<title>{title}</title></circle>"
        )
    if now_us is not None:
        x, y = across(len(points)), up(now_us)
        parts.append(
            f'<path class="now" d="M{_n(x)} {_n(y - 5)}l5 5l-5 5l-5 -5z">'
            f"<title>this run: {text.significant(now_us)} µs</title></path>"
        )
    return _svg(
        314, 66, parts, f"{len(points)} accepted times, the last {text.significant(last)} µs"
    )


# --- Roofline -------------------------------------------------------------------------------------


def roofline(dots: Sequence[Dot], copy_gbytes_per_s: float, roof_tflops: float | None) -> str:
    """Achieved rate over operations a byte, both logarithmic, below the measured ceilings.

    Args:
        dots: the rows.
        copy_gbytes_per_s: measured copy bandwidth.
        roof_tflops: measured rate of matrix products of the dtype; `None` where rows name none.
    """
    slope = copy_gbytes_per_s / 1e3  # TFLOP/s at one operation a byte
    ridge = None if roof_tflops is None else roof_tflops / slope
    xs = [dot.intensity for dot in dots] + ([ridge] if ridge is not None else [])
    left, right = min(xs) / 2, max(xs) * 2
    ceiling = roof_tflops or slope * right
    ys = [dot.tflops for dot in dots]
    bottom, top = min(*ys, ceiling) / 2, max(*ys, min(ceiling, slope * right)) * 2
    x = _Scale(left, right, 52, 632, log=True)
    y = _Scale(bottom, top, 312, 12, log=True)
    parts = [*_grid(x, y)]
    start = max(left, bottom / slope)
    end = min(right, top / slope, ridge or right)
    points = [(start, slope * start), (end, slope * end)]
    if roof_tflops is not None and ridge is not None and ridge < right:
        points.append((right, roof_tflops))
    line = " ".join(f"{_n(x(a))},{_n(y(b))}" for a, b in points)
    parts.append(f'<polyline class="roof" points="{line}"/>')
    middle = math.sqrt(start * end)  # above the line, where no row should be
    copy = f"copy {copy_gbytes_per_s:,.0f} GB/s"
    if x(middle) - x.start > 130:
        parts.append(_label(x(middle) - 8, y(slope * middle) - 6, copy, "end"))
    else:
        parts.append(_label(x(middle) + 10, y(slope * middle) + 14, copy))
    if roof_tflops is not None:
        parts.append(_label(x(right) - 6, y(roof_tflops) - 6, f"{roof_tflops:,.0f} TFLOP/s", "end"))
    parts += [_dot(dot, x, y) for dot in sorted(dots, key=lambda one: not one.reference)]
    parts.append(_label(342, 346, "operations a byte", "middle"))
    parts.append(
        '<text class="tick" text-anchor="middle" transform="translate(12 162) rotate(-90)">TFLOP/s</text>'
    )
    return _svg(640, 352, parts, f"roofline with {len(dots)} rows")


def _dot(dot: Dot, x: _Scale, y: _Scale) -> str:
    share = "" if dot.share is None else f", {text.percent(dot.share)} of the roof"
    title = (
        f"{dot.name}: {text.significant(dot.tflops, 3)} TFLOP/s at "
        f"{text.significant(dot.intensity, 3)} operations a byte{share}"
    )
    kind = "dot reference" if dot.reference else "dot"
    return (
        f'<a href="#{escape(dot.anchor)}"><circle class="{kind}" cx="{_n(x(dot.intensity))}" '
        f'cy="{_n(y(dot.tflops))}" r="5"><title>{escape(title)}</title></circle></a>'
    )


def _grid(x: _Scale, y: _Scale) -> Iterator[str]:
    for value in _powers(x.low, x.high):
        at = _n(x(value))
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{_n(y.end)}" y2="{_n(y.start)}"/>'
        yield f'<text class="tick" text-anchor="middle" x="{at}" y="328">{_power(value)}</text>'
    for value in _powers(y.low, y.high):
        at = _n(y(value))
        yield f'<line class="grid" x1="{_n(x.start)}" x2="{_n(x.end)}" y1="{at}" y2="{at}"/>'
        yield f'<text class="tick" text-anchor="end" x="46" y="{_n(y(value) + 3)}">{_power(value)}</text>'


def _label(x: float, y: float, content: str, anchor: str = "start") -> str:
    return f'<text class="label" text-anchor="{anchor}" x="{_n(x)}" y="{_n(y)}">{escape(content)}</text>'


def _powers(low: float, high: float) -> Iterator[float]:
    """Powers of ten between two numbers; with their double and fivefold where they are few."""
    few = high / low < 300
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for factor in (1, 2, 5) if few else (1,):
            value = factor * 10.0**exponent
            if low <= value <= high:
                yield value


def _power(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


# --- Pieces ---------------------------------------------------------------------------------------


def _svg(width: int, height: float, parts: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {_n(height)}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _n(number: float) -> str:
    """A coordinate to a tenth of a unit."""
    return f"{number:.1f}".removesuffix(".0")


def _steps(low: float, high: float, about: int) -> Iterator[float]:
    """Round numbers between two others."""
    raw = (high - low) / about
    base = 10 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next((base * f for f in (1, 2, 5, 10) if base * f >= raw), base * 10)
    value = math.ceil(low / step) * step
    while value <= high:
        yield value
        value += step


def _tick(value: float) -> str:
    return f"{value:.6g}"
