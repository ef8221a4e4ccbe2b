"""What the rows whose code did not change say: the placebo of every run."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tirbench.model import Environment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tirbench.model import Estimate, PinnedRow, Verdict


def placebo(verdicts: Iterable[Verdict]) -> Environment:
    """The environment of an `ab`: its rows of the same code, placebo arms among them."""
    rows = [verdict for verdict in verdicts if verdict.same_code and verdict.estimate is not None]
    shifts = [row.estimate.log_ratio for row in rows if row.estimate is not None]
    return Environment(
        rows=len(rows),
        flagged=sum(row.flagged for row in rows),
        shift=statistics.median(shifts) if shifts else None,
    )


def shift_since_pins(unchanged: Iterable[tuple[PinnedRow, Estimate]]) -> Environment:
    """The environment of a gate: pinned rows whose code is still the same, with their new times.

    `flagged` counts those outside their own band.
    """
    moves = [(row.band, math.log(new.midmean_us / row.midmean_us)) for row, new in unchanged]
    return Environment(
        rows=len(moves),
        flagged=sum(abs(math.expm1(move)) > band for band, move in moves),
        shift=statistics.median(move for _, move in moves) if moves else None,
    )


def environment_text(environment: Environment) -> str:
    """`placebo 0/24 flagged, environment +0.1 %`."""
    if environment.shift is None:
        return "no placebo: every row has changed code"
    shift = 100 * math.expm1(environment.shift)
    # Adding zero turns a rounded -0.0 into 0.0.
    return (
        f"placebo {environment.flagged}/{environment.rows} flagged, "
        f"environment {round(shift, 1) + 0.0:+.1f} %"
    )
