"""Time and work → achieved rates, and how far they are from the measured roof."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tirbench.model import Failed, Outcome, Rates, Roofs, Timed

IMPOSSIBLE: Final = 1.05
"""Share of the roof above which a number is refused: bytes expression or timing is wrong."""

L2_SHARE: Final = 4
"""Only cases that move this many times the L2 cache are held to the bandwidth roof.

What a smaller case writes can still lie in the cache when the kernel ends, and costs no bandwidth.
"""


def rates(timed: Timed, roofs: Roofs) -> Rates:
    """Achieved GB/s and TFLOP/s, and the share of the roof: of bandwidth or compute, whichever binds.

    The roof is the larger of bytes / measured copy bandwidth and operations / measured matrix product
    rate of the dtype: no version of the kernel is faster on this device.
    """
    seconds = timed.estimate.midmean_us * 1e-6
    work = timed.work
    ceilings = dict(roofs.tflops)
    least: list[tuple[float, str]] = []
    if work.bytes is not None and roofs.copy_gbytes_per_s is not None:
        least.append((work.bytes / (roofs.copy_gbytes_per_s * 1e9), "bandwidth"))
    if work.flops is not None and work.roof is not None and work.roof in ceilings:
        least.append((work.flops / (ceilings[work.roof] * 1e12), "compute"))
    bound = max(least, default=None)
    return Rates(
        gbytes_per_s=None if work.bytes is None else work.bytes / seconds / 1e9,
        tflops=None if work.flops is None else work.flops / seconds / 1e12,
        roof=None if bound is None else bound[0] / seconds,
        roof_by=None if bound is None else ("bandwidth" if bound[1] == "bandwidth" else "compute"),
    )


def rated(outcome: Outcome, roofs: Roofs, l2_bytes: int) -> Outcome:
    """The outcome with its rates; a time that the device cannot have reached becomes a failure."""
    if not isinstance(outcome, Timed):
        return outcome
    reached = rates(outcome, roofs)
    limit = _limit(outcome, reached, roofs)
    held = reached.roof_by == "compute" or (outcome.work.bytes or 0) >= L2_SHARE * l2_bytes
    if limit is not None and limit > IMPOSSIBLE and held:
        key = "bytes" if reached.roof_by == "bandwidth" else "flops"
        return Failed(
            row=outcome.row,
            stage="time",
            reason=f"{outcome.estimate.midmean_us:.4g} µs would be {limit:.0%} of the measured "
            f"{reached.roof_by} roof: look at [work] {key} and at what the kernel really does",
        )
    return replace(outcome, rates=reached)


def _limit(timed: Timed, reached: Rates, roofs: Roofs) -> float | None:
    """The share of what is possible at all: of a product of zeros where compute binds."""
    zeros = dict(roofs.zeros_tflops).get(timed.work.roof or "")
    if reached.roof_by == "compute" and zeros is not None and reached.tflops is not None:
        return reached.tflops / zeros
    return reached.roof
