"""How others decide whether two samples of call times differ: 1 slower, -1 faster, 0 the same."""

from __future__ import annotations

from math import erfc, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.verdicts_synthetic import Array


def nvbench_legacy(base: Array, head: Array) -> int:
    """Means differ by more than the smaller of the two noises.

    Source: NVIDIA/nvbench, scripts/nvbench_compare.py: `abs(frac_diff) <= min_noise` is SAME; noise is
    the standard deviation of the samples over their mean.
    """
    before, after = float(base.mean()), float(head.mean())
    change = (after - before) / before
    noise = min(float(base.std(ddof=1)) / before, float(head.std(ddof=1)) / after)
    return 0 if abs(change) <= noise else int(np.sign(change))


def mann_whitney(base: Array, head: Array) -> int:
    """The rank test of Google Benchmark, benchstat and asv, two-sided, p < 0.01."""
    p, sign = mann_whitney_p(base, head)
    return sign if p < 0.01 else 0


def mann_whitney_p(base: Array, head: Array) -> tuple[float, int]:
    """The p value of the Mann-Whitney U test, and the sign of the difference.

    Normal approximation with correction for ties and continuity, as
    `scipy.stats.mannwhitneyu(method="asymptotic")`.
    """
    n, m = len(base), len(head)
    _, index, counts = np.unique(
        np.concatenate([base, head]), return_inverse=True, return_counts=True
    )
    # The mean rank of a group of ties: the ranks before it, and the middle of its own.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[index]
    u = float(ranks[n:].sum()) - m * (m + 1) / 2
    total = n + m
    ties = float((counts.astype(float) ** 3 - counts).sum())
    spread = sqrt(n * m / 12 * (total + 1 - ties / (total * (total - 1))))
    off = u - n * m / 2
    if spread == 0:
        return 1.0, 0
    return erfc(max(abs(off) - 0.5, 0.0) / spread / sqrt(2)), int(np.sign(off))


def fixed_percent(base: Array, head: Array) -> int:
    """Medians differ by more than 1 %."""
    ratio = float(np.median(head) / np.median(base))
    return 1 if ratio > 1.01 else -1 if ratio < 1 / 1.01 else 0


RULES: Final[Mapping[str, Callable[[Array, Array], int]]] = {
    "nvbench legacy": nvbench_legacy,
    "Mann-Whitney p < 0.01": mann_whitney,
    "1 % on medians": fixed_percent,
}
