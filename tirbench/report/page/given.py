"""What a page is made of, and how raw times become what it draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from tirbench.model import PinnedRow, Run

BINS: Final = 48
"""Of a histogram: what a chart of 480 units shows without neighbours running together."""

RowKey: TypeAlias = str
"""`workload/case/implementation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """The calls on one placement, in µs."""

    placement: int
    p10: float
    q1: float
    median: float
    q3: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How the calls of a row are distributed: by placement, and over all of them.

    `counts` are the calls in equal bins from `low_us` to `high_us`; `beyond` those above (rare long calls
    would press everything else into one bin).
    """

    placements: tuple[Quantiles, ...]
    low_us: float
    high_us: float
    counts: tuple[int, ...]
    beyond: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The accepted number of a row, and the numbers before it, oldest first: date, commit and µs."""

    row: PinnedRow
    history: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Everything that one page shows.

    Attributes:
        run: what was measured.
        notes: what is missing from it.
        spreads: distributions by row, where raw times were kept.
        pins: accepted numbers by row, of the run's hardware.
        places: where a workload asks for a row, `workloads/x.toml:12`.
        harnesses: file name and text of the programs that ran.
        references: the reference that each workload's ratio is pinned to.
    """

    run: Run
    notes: tuple[str, ...] = ()
    spreads: Mapping[RowKey, Spread] = field(default_factory=dict)
    pins: Mapping[RowKey, Pinned] = field(default_factory=dict)
    places: Mapping[RowKey, str] = field(default_factory=dict)
    harnesses: tuple[tuple[str, str], ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)


def spread(samples: Iterable[tuple[int, tuple[float, ...]]]) -> Spread | None:
    """The distribution of a row's calls.

    Args:
        samples: placement and µs of each call; the rounds of a placement one after another.

    Returns:
        `None` where there is no call.
    """
    by_placement: dict[int, list[float]] = {}
    for placement, times in samples:
        by_placement.setdefault(placement, []).extend(times)
    ordered = {k: sorted(times) for k, times in sorted(by_placement.items()) if times}
    every = sorted(time for times in ordered.values() for time in times)
    if not every:
        return None
    low, high = every[0], _at(every, 0.99) * 1.02
    width = (high - low) / BINS or 1.0
    counts = [0] * BINS
    for time in every:
        if time < high:
            counts[min(int((time - low) / width), BINS - 1)] += 1
    return Spread(
        placements=tuple(
            Quantiles(
                placement=k,
                **{
                    name: _at(times, share)
                    for name, share in (
                        ("p10", 0.1),
                        ("q1", 0.25),
                        ("median", 0.5),
                        ("q3", 0.75),
                        ("p90", 0.9),
                    )
                },
            )
            for k, times in ordered.items()
        ),
        low_us=low,
        high_us=high,
        counts=tuple(counts),
        beyond=len(every) - sum(counts),
    )


def _at(ordered: list[float], share: float) -> float:
    """A quantile, between the two nearest."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
