"""The interquartile mean."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def midmean(values: Iterable[float]) -> float:
    """The interquartile mean: the mean of the middle half, with exact fractional weights.

    A quarter of the weight is cut off at each end; where n / 4 is no integer, the values at the cuts
    count with the part of them that lies inside. The profiler's clock ticks at 32 ns, so the median
    of calls jumps between ticks; the midmean answers a true change of 1 % with 0.94 to 1.05 %.

    Raises:
        ValueError: no values, or one that is not finite.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("midmean of no values")
    if not all(math.isfinite(value) for value in ordered):
        raise ValueError("midmean of a value that is not finite")
    cut = len(ordered) / 4
    total = 0.0
    for index, value in enumerate(ordered):
        inside = min(index + 1, len(ordered) - cut) - max(index, cut)
        if inside > 0:
            total += inside * value
    # Rounding must not push the mean out of the range of what it is the mean of.
    return min(max(total / (len(ordered) - 2 * cut), ordered[0]), ordered[-1])
