"""How far a time may lie from a pinned one and still be the same.

Source: MEASURING, section 4; `OTHER_UNIT` is larger than written there.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

SESSION_SD: Final = 0.003
"""s_session: relative standard deviation between sessions, until history teaches a row's own."""

LIMITS: Final = (0.005, 0.05)

OTHER_UNIT: Final = 0.015
"""What another unit of the same product adds to a band, relative.

The suite on another H200 than it was pinned on, twice: 0.65 % slower in the median of 208 rows, one row of
twenty slower by 1.9 % and more. With 1 %, six rows of unchanged code left their band; with this, two.
"""


def band(within_sds: Collection[float], placements: int) -> float:
    """Relative half width within which a time, or a ratio of several, counts as the same.

    Args:
        within_sds: s_w of each time: relative standard deviation of one placement measured again.
        placements: K, the number of placement seeds.

    Returns:
        clip(3·√(2·Σs_w²/K + s_session²), 0.5 %, 5 %).
    """
    repeat = 2 * sum(sd * sd for sd in within_sds) / placements
    return min(max(3 * math.sqrt(repeat + SESSION_SD**2), LIMITS[0]), LIMITS[1])
