"""The words of numbers that stand in reasons."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tirbench.model import PairEstimate


def percent(estimate: PairEstimate) -> str:
    """`+1.02 % ± 0.24 %`: head against base, with the 95 % half width."""
    half_width = 1.96 * estimate.standard_error
    return f"{change(estimate.log_ratio)} ± {100 * half_width:.2f} %"


def change(log_ratio: float) -> str:
    """`+1.02 %`: how much longer the new side takes."""
    return f"{100 * math.expm1(log_ratio):+.2f} %"


def share(relative: float) -> str:
    """`1 %`, `0.5 %`: a threshold as one writes it."""
    return f"{100 * relative:.3g} %"
