"""How many calls a threshold of 1 % takes, and in what sub-blocks: what timing does and a plan foretells.

Apart from `timing`, which needs torch.
"""

from __future__ import annotations

from typing import Final

# Calls per implementation and placement for a threshold of 1 % at five placements; (the launch takes at most
# so many µs, calls). Found by simulation on data of an H200 (benchmarks/results/verdicts_simulated.md) and
# corrected by its self-test: with 48 calls a layer norm of 21 µs scattered by 0.74 % per placement, three
# times as much as a matrix product of 25 µs, and 3 of 32 planted slowdowns between 10 and 100 µs were missed.
# What they take of a GPU, flushes included, is 0.25 s a side and below, but for launches of just 10 µs.
CALLS: Final[tuple[tuple[float, int], ...]] = ((10.0, 480), (100.0, 144), (300.0, 48), (2000.0, 24))
CALLS_BEYOND: Final = 8

# A pilot reads a launch with an error of about a tenth, so near a border the larger number is taken.
BORDER: Final = 1.1

# Sub-blocks of at most about 1 ms: below 250 µs one discarded call and four kept ones, above single calls.
SHORT_CALL_US: Final = 250.0
SHORT_BLOCK: Final = (1, 4)
LONG_BLOCK: Final = (0, 1)

FLUSH_US: Final = 71.0
"""What precedes a call on an H200: kept lines of the L2 cache are let go, 256 MiB are zeroed. For plans."""


def calls_for(launch_us: float) -> int:
    """What the table asks for a launch that takes so long, over all rounds."""
    return next(
        (calls for limit_us, calls in CALLS if launch_us <= limit_us * BORDER), CALLS_BEYOND
    )
