"""From calls in µs to a log-ratio with its standard error.

Midmean of a sub-block; log-ratio of a quad; mean over quads, then over workers. Drift that is linear over
a quad cancels in it, placement cancels in a worker, and what remains between workers beyond the noise of
their quads is τ: too few workers see one row to know it, so it is pooled over the suite.

Source: MEASURING, section 2.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirbench.averages import midmean
from tirbench.judge.rule import OUTLYING_Z, OWN_SPREAD, SCREEN_Z, TAU_FLOOR
from tirbench.model import PairEstimate, PairReading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tirbench.model import Block, PairEvidence, PairQuad, PairWorker


def read_worker(worker: PairWorker) -> PairReading:
    """What one worker says: mean and variance of log(head / base) over its quads.

    Raises:
        ValueError: fewer than two quads, which tell nothing of their spread, or a call whose time is
            not positive and finite.
    """
    if len(worker.quads) < 2:
        raise ValueError(f"a worker must measure at least 2 quads, got {len(worker.quads)}")
    ratios = [log_ratio(quad) for quad in worker.quads]
    return PairReading(
        placement=worker.placement,
        log_ratio=statistics.fmean(ratios),
        quad_variance=_variance(ratios),
        quads=len(ratios),
    )


def log_ratio(quad: PairQuad) -> float:
    """log(head / base) of a quad, each side by the midmeans of its two sub-blocks."""
    head, base = (
        math.fsum(math.log(midmean_us(block)) for block in side) / 2
        for side in (quad.head, quad.base)
    )
    return head - base


def midmean_us(block: Block) -> float:
    """The interquartile mean of the calls of a sub-block.

    Raises:
        ValueError: no calls, or one that is not positive and finite.
    """
    if not block or not all(0 < call < math.inf for call in block):
        raise ValueError(f"{len(block)} calls, not all of them positive and finite")
    return midmean(block)


def tau_squared(pairs: Iterable[PairEvidence], *, own_spread: bool = OWN_SPREAD) -> float:
    """τ²: variance between workers beyond what the noise of their quads explains, over the suite.

    Each row weighs with its degrees of freedom, also where its own share comes out negative: cutting
    those off would bias the mean upwards. The floor is `TAU_FLOOR`².

    Args:
        pairs: every row of the suite.
        own_spread: leave out rows that scatter unlike the others, beginning from the median row; one
            of them would otherwise make every verdict of the suite imprecise.
    """
    spreads = [
        spread for pair in pairs if (spread := _Spread.of((*pair.screening, *pair.confirming)))
    ]
    if not spreads:
        return TAU_FLOOR**2
    if not own_spread:
        return _pooled(spreads)
    tau_sq = max(statistics.median(spread.median_share for spread in spreads), TAU_FLOOR**2)
    return _pooled([spread for spread in spreads if not spread.outlying(tau_sq)])


def row_tau_squared(pair: PairEvidence, tau_sq: float) -> float:
    """The τ² of a row: the suite's, or its own where its workers scatter unlike the suite's.

    Memory that an implementation allocates itself is an example: both sides have addresses of their
    own there, and no placement seed makes them equal.
    """
    spread = _Spread.of((*pair.screening, *pair.confirming))
    return spread.cautious if spread and spread.outlying(tau_sq) else tau_sq


@dataclass(frozen=True, slots=True)
class _Spread:
    """How the workers of a row scatter: variance between them, and what their quads explain of it."""

    between: float
    noise: float
    freedom: int

    @classmethod
    def of(cls, readings: Sequence[PairReading]) -> _Spread | None:
        """The spread of a row; `None` of fewer than two workers."""
        if len(readings) < 2:
            return None
        between = _variance([reading.log_ratio for reading in readings])
        return cls(between, noise(readings), len(readings) - 1)

    @property
    def own(self) -> float:
        """The row's own share of τ²; may be negative."""
        return self.between - self.noise

    @property
    def cautious(self) -> float:
        """The same, widened as Student's t is against the normal: few workers tell little of spread."""
        wider = 1 + (SCREEN_Z**2 + 1) / (4 * self.freedom)  # t ≈ z + (z³ + z) / 4ν
        return self.between * wider**2 - self.noise

    @property
    def median_share(self) -> float:
        """The same, such that half of all rows of equal spread lie below its true value."""
        return self.between / _chi_squared_share(0.0, self.freedom) - self.noise

    def outlying(self, tau_sq: float) -> bool:
        """Whether so much spread would hardly ever be seen, were τ² that of the suite."""
        limit = _chi_squared_share(OUTLYING_Z, self.freedom)
        return self.between > limit * (self.noise + tau_sq)


def _pooled(spreads: Sequence[_Spread]) -> float:
    freedom = sum(spread.freedom for spread in spreads)
    total = math.fsum(spread.freedom * spread.own for spread in spreads)
    return max(total / freedom if freedom else 0.0, TAU_FLOOR**2)


def _chi_squared_share(z: float, freedom: int) -> float:
    """Quantile of χ² over its degrees of freedom (Wilson and Hilferty, 1931)."""
    part = 2 / (9 * freedom)
    return (1 - part + z * math.sqrt(part)) ** 3


def estimate(readings: Sequence[PairReading], tau_sq: float) -> PairEstimate:
    """The log-ratio over workers, each of equal weight: SE² = (quad variance / quads + τ²) / K.

    Raises:
        ValueError: no workers.
    """
    if not readings:
        raise ValueError("an estimate of no workers")
    return PairEstimate(
        log_ratio=statistics.fmean(reading.log_ratio for reading in readings),
        standard_error=math.sqrt((noise(readings) + tau_sq) / len(readings)),
        workers=len(readings),
    )


def noise(readings: Sequence[PairReading]) -> float:
    """Variance of a worker's mean by the noise of its quads, pooled over the workers of a row."""
    freedom = sum(reading.quads - 1 for reading in readings)
    variance = (
        math.fsum((reading.quads - 1) * reading.quad_variance for reading in readings) / freedom
    )
    return variance * statistics.fmean(1 / reading.quads for reading in readings)


def _variance(values: Sequence[float]) -> float:
    """Sample variance; `statistics.variance` computes in fractions, at thirty times the cost."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
