"""What trials cost: launches of an arm, seconds of a sequence, arms of a burst, a flush."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tirbench.calls import LONG_BLOCK, SHORT_BLOCK, SHORT_CALL_US
from tirbench.timing.schedule import BURST_WORK_US


def launches_of(result: Mapping[str, Any], arm: str) -> int:
    """How often an arm was launched with its time taken, discarded calls among them."""
    protocol = result["benchmark_protocol"]
    discarded, kept = protocol["sub_blocks"].get(arm, (0, 1))
    return int(
        sum(-(-count // kept) * discarded + count for count in protocol["repeat_counts"][arm])
    )


def most_arms(launch_us: float, cycle_us: float) -> int:
    """How many arms a sequence may have so that a quad of all of them fits into one burst.

    In a longer quad the device rests between sub-blocks, and arms are then unequal.

    Args:
        launch_us: how long a launch takes.
        cycle_us: with what precedes it.
    """
    block = SHORT_BLOCK if launch_us < SHORT_CALL_US else LONG_BLOCK
    return max(2, int(BURST_WORK_US / (2 * sum(block) * cycle_us)))


def costs(took: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds of a sequence, and of each arm in it: a line through what sequences took (least squares).

    Args:
        took: number of arms and seconds of each, with two different numbers among them.
    """
    arms, seconds = (statistics.fmean(values) for values in zip(*took, strict=True))
    square = sum((count - arms) ** 2 for count, _ in took)
    slope = sum((count - arms) * (s - seconds) for count, s in took) / square if square else 0.0
    arm_s = min(max(slope, 0.0), seconds / arms)
    return round(seconds - arm_s * arms, 5), round(arm_s, 5)


def flush_us(device: str, l2: str) -> float:
    """What flushing before one call takes on this device."""
    if device == "cpu" or l2 == "warm":
        return 0.0
    import torch

    from tirbench.timing.device import open_cuda
    from tirbench.timing.flush import BUFFERS

    flush: Any = BUFFERS.flush(
        open_cuda(None, "event"), "cold-clean" if l2 == "cold-clean" else "cold-dirty"
    )
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush()
    start.record()
    for _ in range(10):
        flush()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 100  # ms of ten
