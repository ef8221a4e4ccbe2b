"""What a plan can resolve and what it costs, before anything is measured.

Closed forms: an estimate is normal around the true log-ratio with the standard error of the plan, and
screening and confirming are independent. `benchmarks/verdicts.py simulate` holds them against simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

from tirbench.judge.rule import CONFIRM_Z, SCREEN_Z, TAU_FLOOR, WORKERS, Limits

POWER: Final = 0.95
"""How often the minimal detectable effect is found, at least."""

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlan:
    """How a row is going to be measured, and how noisy it is known or expected to be.

    Attributes:
        quad_sd: standard deviation of the log-ratio of one quad.
        quads: of one worker.
        tau: standard deviation between workers beyond the noise of their quads.
        workers: K of one stage.
        slower_than: T, relative.
    """

    quad_sd: float
    quads: int
    tau: float = TAU_FLOOR
    workers: int = WORKERS
    slower_than: float = 0.01

    @property
    def standard_error(self) -> float:
        """Of the log-ratio after one stage."""
        tau = max(self.tau, TAU_FLOOR)
        return math.sqrt((self.quad_sd**2 / self.quads + tau**2) / self.workers)


def power(plan: PairPlan, effect: float) -> float:
    """How often a true difference is flagged by one stage and confirmed by the next.

    A lower bound where T/5 is missed: the extension by more workers is not counted. That the estimate
    over both stages must reach T/2 is implied by each of them reaching its share, but for plans so
    precise that both miss an effect of T/2 anyway.

    Args:
        plan: of the measurement.
        effect: relative, positive for slower (0.01 is +1 %).
    """
    limits, error = Limits.of(plan.slower_than), plan.standard_error
    size = abs(math.log1p(effect))
    flagged = _NORMAL.cdf((size - max(limits.boundary, SCREEN_Z * error)) / error)
    confirmed = _NORMAL.cdf((size - CONFIRM_Z * error) / error)
    return flagged * confirmed


def minimal_effect(plan: PairPlan) -> float:
    """The least slowdown that is found in at least 95 % of all runs, relative.

    max(T/2, 2.58·SE) + 1.96·SE: screening misses it in 2.5 % of all runs, confirming in 0.5 % more.
    """
    limits, error = Limits.of(plan.slower_than), plan.standard_error
    return math.expm1(max(limits.boundary, SCREEN_Z * error) + CONFIRM_Z * error)


def workers_for(plan: PairPlan, effect: float) -> int:
    """How many workers a stage needs so that `effect` is found, at T = `effect`.

    What `--resolve` buys: T is the effect, and K such that the precision T/5 is reached in one stage.
    """
    precision = Limits.of(effect).precision
    one = replace(plan, workers=1).standard_error
    return max(WORKERS, math.ceil((one / precision) ** 2 - 1e-9))


def gpu_seconds(
    plan: PairPlan, launch_us: float, flush_us: float, *, block: tuple[int, int]
) -> float:
    """GPU seconds that one stage takes for one side of a row, flushes included.

    Args:
        plan: of the measurement.
        launch_us: time of one call.
        flush_us: time of what precedes every call: restoring, flushing.
        block: discarded and kept calls of a sub-block; a quad has two of each side.
    """
    calls = 2 * plan.quads * sum(block)
    return plan.workers * calls * (launch_us + flush_us) / 1e6
