"""How often the verdicts of trials were right, by class of duration, with exact bounds."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tirbench.calls import CALLS
from tirbench.judge import lower_bound, upper_bound
from tirbench.selftest.outcomes import Tried

AIMED: Final = (0.0085, 0.0115)
"""True sizes that count as +1 %: one itself is known to a twentieth of that by a few virtual runs."""

AT_LEAST: Final = (0.01, math.inf)
"""What a threshold of 1 % is for."""

BINS: Final = (
    (0.0, 0.007),
    (0.007, AIMED[0]),
    AIMED,
    (AIMED[1], 0.015),
    (0.015, math.inf),
    AT_LEAST,
)
"""True sizes of planted slowdowns, relative; the last one holds parts of others once more."""

ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What became of some decisions, relative where it is no count; `None` where there were none.

    Attributes:
        rows: how many rows they are of.
        decisions: those that came to a verdict.
        unfinished: those that were not measured as far as they asked for; in none of the other numbers.
        same: called the same.
        undecided: called undecided.
        gpu_s: mean GPU seconds of one side, flushes included.
        gpu_s_most: the most of it.
    """

    rows: int
    decisions: int
    unfinished: int
    same: float | None
    undecided: float | None
    gpu_s: float | None
    gpu_s_most: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualShare(Share):
    """Of decisions about equal code.

    Attributes:
        screened: flagged before fresh workers were asked.
        flagged: called slower or faster.
        at_most: the rate of that is no higher, by the one-sided 95 % bound; what was flagged by screening
            and not finished counts as flagged in it.
    """

    screened: float | None
    flagged: int
    at_most: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedShare(Share):
    """Of decisions about planted slowdowns.

    Attributes:
        found: called slower.
        independent: those of them that share no load with each other: two of a sequence's four.
        independent_found: of these, called slower.
        at_least: the rate of that is no lower, by the one-sided 95 % bound of the independent ones.
        truth: mean true size.
    """

    found: int
    independent: int
    independent_found: int
    at_least: float | None
    truth: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Where the scatter of pairs of equal code comes from: standard deviations of one worker's log-ratio.

    Attributes:
        quads: what the quads of a sequence foretell of it.
        again: between sequences of one worker.
        worker: what all sequences of a worker have in common, which repeating in one process never shows.
    """

    quads: float | None
    again: float | None
    worker: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRow:
    """What was found of one row."""

    row: str
    midmean_us: float
    equal: EqualShare
    planted: PlantedShare
    spread: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class OfClass:
    """What was found of the rows of one class of duration; of all rows under the name `all`.

    Attributes:
        name: as a reader knows it: `2–10 µs`.
        limit_us: the longest launch in it; `None` where there is no limit.
        planted: those of about 1 %.
    """

    name: str
    limit_us: float | None
    equal: EqualShare
    planted: PlantedShare
    spread: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Everything that is said of trials.

    Attributes:
        classes: all rows first, then every class of duration that has any.
        disjoint: of equal code, only pairs that share no load.
        bins: planted slowdowns by their true size.
        rows: by key.
        planted_in_all: planted slowdowns of whatever true size.
    """

    classes: tuple[OfClass, ...]
    disjoint: EqualShare
    bins: tuple[tuple[str, PlantedShare], ...]
    rows: tuple[OfRow, ...]
    planted_in_all: PlantedShare

    @property
    def whole(self) -> OfClass:
        """Of all rows."""
        return self.classes[0]


def tally(found: Sequence[Tried]) -> Tally:
    """Count."""
    equal = [one for one in found if not one.key.planted]
    sized = [one for one in found if one.truth is not None]
    return Tally(
        classes=tuple(_classes(found)),
        disjoint=equal_share([one for one in equal if one.disjoint]),
        bins=tuple((_named(bin_), planted_share(_sized(sized, bin_))) for bin_ in BINS),
        rows=tuple(_rows(found)),
        planted_in_all=planted_share(sized),
    )


def _classes(found: Sequence[Tried]) -> Iterator[OfClass]:
    yield _of_class(ALL, None, found)
    for name, low, high in classes():
        mine = [one for one in found if low < one.midmean_us <= high]
        if mine:
            yield _of_class(name, None if math.isinf(high) else high, mine)


def _of_class(name: str, limit_us: float | None, found: Sequence[Tried]) -> OfClass:
    equal = [one for one in found if not one.key.planted]
    sized = [one for one in found if one.truth is not None]
    return OfClass(
        name=name,
        limit_us=limit_us,
        equal=equal_share(equal),
        planted=planted_share(_sized(sized, AIMED)),
        spread=spread(equal),
    )


def classes() -> list[tuple[str, float, float]]:
    """Name and borders in µs of every class of duration: those of the table of calls."""
    found, low = [], 0.0
    for high, _ in CALLS:
        found.append((f"{low:g}–{high:g} µs" if low else f"to {high:g} µs", low, high))
        low = high
    return [*found, (f"from {low:g} µs", low, math.inf)]


def _rows(found: Sequence[Tried]) -> Iterator[OfRow]:
    by_row: dict[str, list[Tried]] = defaultdict(list)
    for one in found:
        by_row[one.key.row].append(one)
    for key, mine in sorted(by_row.items()):
        equal = [one for one in mine if not one.key.planted]
        yield OfRow(
            row=key,
            midmean_us=statistics.fmean(one.midmean_us for one in mine),
            equal=equal_share(equal),
            planted=planted_share([one for one in mine if one.truth is not None]),
            spread=spread(equal),
        )


# --- Shares -----------------------------------------------------------------------------------------


def equal_share(found: Sequence[Tried]) -> EqualShare:
    """How often equal code was called slower or faster."""
    finished = _finished(found)
    flagged = sum(one.kind in {"slower", "faster"} for one in finished)
    # Leaving out what asked for confirmation and had none would leave out the false alarms first.
    doubtful = sum(one.screened for one in found if one.kind == "unfinished")
    trials = len(finished) + doubtful
    return EqualShare(
        **_common(found),
        screened=_mean(found, lambda one: one.screened),
        flagged=flagged,
        at_most=upper_bound(flagged + doubtful, trials) if trials else None,
    )


def planted_share(found: Sequence[Tried]) -> PlantedShare:
    """How often a planted slowdown was found."""
    finished = _finished(found)
    independent = [one.kind == "slower" for one in finished if one.disjoint]
    return PlantedShare(
        **_common(found),
        found=sum(one.kind == "slower" for one in finished),
        independent=len(independent),
        independent_found=sum(independent),
        at_least=lower_bound(sum(independent), len(independent)) if independent else None,
        truth=_mean(finished, lambda one: one.truth or 0.0),
    )


def _finished(found: Sequence[Tried]) -> list[Tried]:
    return [one for one in found if one.kind != "unfinished"]


def _common(found: Sequence[Tried]) -> dict[str, Any]:
    finished = _finished(found)
    return {
        "rows": len({one.key.row for one in finished}),
        "decisions": len(finished),
        "unfinished": len(found) - len(finished),
        "same": _mean(finished, lambda one: one.kind == "same"),
        "undecided": _mean(finished, lambda one: one.kind == "undecided"),
        "gpu_s": _mean(finished, lambda one: one.gpu_s),
        "gpu_s_most": max((one.gpu_s for one in finished), default=None),
    }


def _mean(found: Sequence[Tried], value: Callable[[Tried], float]) -> float | None:
    return statistics.fmean(map(value, found)) if found else None


def _sized(found: Sequence[Tried], limits: tuple[float, float]) -> list[Tried]:
    """Those whose true size lies within limits; what is faster by its readings is below all of them."""
    low, high = limits
    return [one for one in found if low <= max(0.0, one.truth or 0.0) < high]


def _named(limits: tuple[float, float]) -> str:
    low, high = (100 * limit for limit in limits)
    if not low:
        return f"below {high:g} %"
    return f"{low:g}–{high:g} %" if math.isfinite(high) else f"from {low:g} %"


def spread(found: Sequence[Tried]) -> Spread:
    """Where the scatter of decisions about equal code comes from."""
    by_worker: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    foretold: list[float] = []
    for one in found:
        for reading in one.decision.evidence.screening:
            place = (one.key.run, one.key.row, one.key.pair, reading.placement)
            by_worker[place].append(reading.log_ratio)
            foretold.append(reading.quad_variance / reading.quads)
    repeated = [values for values in by_worker.values() if len(values) > 1]
    again = [statistics.variance(values) for values in repeated]
    common = [
        statistics.fmean(values) ** 2 - variance / len(values)
        for values, variance in zip(repeated, again, strict=True)
    ]
    return Spread(quads=_root(foretold), again=_root(again), worker=_root(common))


def _root(variances: Sequence[float]) -> float | None:
    """The standard deviation of a mean variance, which an estimate by difference may make negative."""
    return math.sqrt(max(0.0, statistics.fmean(variances))) if variances else None
