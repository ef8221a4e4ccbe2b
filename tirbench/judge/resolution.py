"""Whether a machine can resolve a threshold, from what its self-test found; and which one it could.

A gate that cannot tell a slowdown of T from nothing passes what it should stop, or stops what it should pass.
It refuses only on evidence: a self-test that tried little says little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tirbench.judge.planning import POWER, PairPlan, minimal_effect
from tirbench.judge.rates import lower_bound, upper_bound
from tirbench.judge.words import share

MOST_FALSE: Final = 0.001
"""Comparisons of equal code that may be called different: more than that, surely, is no gate."""

NEAR: Final = 1.3
"""Slowdowns of up to so many times T tell whether T is found."""

STEP: Final = 0.001
"""Thresholds are proposed in tenths of a per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What a self-test found of kernels of one class of duration on one class of hardware.

    Attributes:
        kernels: the class, as a reader knows it: `2–10 µs`.
        equal: comparisons of equal code.
        flagged: how many of them were called slower or faster.
        planted: comparisons with a slowdown of `size`.
        found: how many of them were called slower.
        size: true size of the slowdowns, relative.
        repeated: standard deviation of one worker's log-ratio measured again; `None` where unknown.
        between: standard deviation between workers beyond that; `None` where unknown.
    """

    kernels: str
    equal: int
    flagged: int
    planted: int
    found: int
    size: float
    repeated: float | None = None
    between: float | None = None

    def resolves(self, slower_than: float) -> float | None:
        """The least slowdown that `ab` finds in 95 % of all runs at this T; `None` where that is unknown."""
        if self.repeated is None:
            return None
        plan = PairPlan(
            quad_sd=self.repeated, quads=1, tau=self.between or 0.0, slower_than=slower_than
        )
        return minimal_effect(plan)


def unresolved(trials: Trials, slower_than: float) -> str:
    """Why T cannot be resolved, with what could; empty where nothing speaks against it.

    Args:
        trials: of the class that a row is in.
        slower_than: T, relative.
    """
    if trials.equal and lower_bound(trials.flagged, trials.equal) > MOST_FALSE:
        return (
            f"the self-test called {trials.flagged} of {trials.equal} comparisons of equal code different "
            f"for kernels {trials.kernels}: `tirbench doctor` says what disturbs this machine"
        )
    why = _misses(trials, slower_than)
    return f"{why} for kernels {trials.kernels}: {_remedy(trials, slower_than)}" if why else ""


def _misses(trials: Trials, slower_than: float) -> str:
    """What is seen to miss slowdowns of T; what was tried speaks before what is computed from the scatter."""
    if trials.planted and trials.size <= NEAR * slower_than:
        if upper_bound(trials.found, trials.planted) >= POWER:
            return ""
        if trials.size >= slower_than:
            missed = trials.planted - trials.found
            return f"the self-test missed {missed} of {trials.planted} slowdowns of {share(trials.size)}"
    least = trials.resolves(slower_than)
    if least is None or least <= slower_than:
        return ""
    return f"by its scatter in the self-test only {share(least)} is found"


def _remedy(trials: Trials, slower_than: float) -> str:
    """The threshold that would be resolved."""
    wanted = slower_than
    while wanted < 1:
        wanted = math.floor(wanted / STEP + 1.5) * STEP
        least = trials.resolves(wanted)
        if least is None:
            break
        if least <= wanted:
            return f"slower_than = {wanted:.3f} would be resolved"
    return "`tirbench ab --resolve` measures with more workers"
