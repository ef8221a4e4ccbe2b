"""The numbers of the decision rule. One knob, T; everything else follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tirbench.model import PairEstimate

WORKERS: Final = 5
"""K: workers of a stage, each on a placement seed of its own."""

SCREEN_Z: Final = 2.58
"""A row is flagged beyond so many standard errors: 1 % of identical pairs, were there no boundary."""

CONFIRM_Z: Final = 1.96
"""Fresh workers must agree beyond so many standard errors."""

EQUAL_Z: Final = 1.645
"""A row is the same when so many standard errors beside its estimate still lie inside T."""

TAU_FLOOR: Final = 0.0005
"""Least standard deviation between workers that is believed: a quiet suite says little of the next."""

OWN_SPREAD: Final = False
"""Whether a row that scatters unlike its suite is judged by its own spread."""

OUTLYING_Z: Final = 3.09
"""A row scatters unlike its suite when so much spread would be seen once in 1,000 rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much is measured. The threshold is each row's own (`PairEvidence.slower_than`).

    Only `workers` is ever set by a person: more of them buy precision for a smaller threshold
    (`planning.workers_for`). The others stand here so that `benchmarks/verdicts.py` can compare rules.

    Attributes:
        workers: K of one stage; a row spends it once or twice on screening, then on confirming.
        equal_z: standard errors beside an estimate that must lie inside T for `same`.
        own_spread: a row whose workers scatter far more than those of the suite is judged by its own
            spread and kept out of the pool.
    """

    workers: int = WORKERS
    equal_z: float = EQUAL_Z
    own_spread: bool = OWN_SPREAD

    def __post_init__(self) -> None:
        """Refuse a stage from which no spread between workers can be told."""
        if self.workers < 2:
            raise ValueError(f"a stage needs at least 2 workers, got {self.workers}")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that follow from T, as logarithms of a ratio.

    In logarithms +1 % and its inverse are equally far from 1, which makes the rule symmetric.
    """

    threshold: float
    equal_z: float = EQUAL_Z

    @classmethod
    def of(cls, slower_than: float, equal_z: float = EQUAL_Z) -> Limits:
        """The limits of T.

        Args:
            slower_than: T, relative (0.01 is 1 %).
            equal_z: as in `Policy`.

        Raises:
            ValueError: T is not positive and finite.
        """
        if not (math.isfinite(slower_than) and slower_than > 0):
            raise ValueError(f"slower_than must be positive, got {slower_than:g}")
        return cls(math.log1p(slower_than), equal_z)

    @property
    def boundary(self) -> float:
        """T/2: the least effect that is worth a name."""
        return self.threshold / 2

    @property
    def precision(self) -> float:
        """T/5: the standard error at which measuring stops."""
        return self.threshold / 5

    def flags(self, estimate: PairEstimate) -> bool:
        """Whether screening suspects a difference."""
        size = abs(estimate.log_ratio)
        return size >= self.boundary and size > SCREEN_Z * estimate.standard_error

    def confirms(self, first: PairEstimate, second: PairEstimate, both: PairEstimate) -> bool:
        """Whether fresh workers see what screening saw."""
        return (
            first.log_ratio * second.log_ratio > 0
            and abs(second.log_ratio) > CONFIRM_Z * second.standard_error
            and abs(both.log_ratio) >= self.boundary
        )

    def equal(self, estimate: PairEstimate) -> bool:
        """Whether a difference of T is excluded."""
        return abs(estimate.log_ratio) + self.equal_z * estimate.standard_error < self.threshold

    def precise(self, estimate: PairEstimate) -> bool:
        """Whether more workers are not needed, whatever the estimate is."""
        return estimate.standard_error <= self.precision
