"""From the intervals that a profiler recorded to sum, busy time and span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from tirbench.errors import ImpossibleTime
from tirbench.timing.plan import Activity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Kind: TypeAlias = Literal["kernel", "memcpy", "memset", "annotation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvent:
    """One interval on a stream of a GPU, in integer nanoseconds of the profiler's clock.

    Nanoseconds are subtracted before they become microseconds: a float of 10¹⁵ ns has no room for a
    launch of 5 µs (pocl/pocl#1094).
    """

    kind: Kind
    name: str
    start_ns: int
    end_ns: int
    stream: tuple[int, int]

    @property
    def label(self) -> str:
        """The name with what it is, unless it is a kernel."""
        return self.name if self.kind == "kernel" else f"{self.kind}: {self.name}"


def summarize(events: Sequence[GpuEvent]) -> Activity:
    """Sum, union and span of the intervals of one launch.

    Raises:
        ImpossibleTime: an interval has no positive start or no positive length.
    """
    for event in events:
        require_interval(event)
    ordered = sorted(events, key=lambda event: event.start_ns)
    return Activity(
        sum_us=sum(event.end_ns - event.start_ns for event in ordered) / 1e3,
        busy_us=_union_ns((event.start_ns, event.end_ns) for event in ordered) / 1e3,
        span_us=span_ns(ordered) / 1e3,
        kernels=sum(event.kind == "kernel" for event in ordered),
        names=tuple(event.label for event in ordered),
        streams=len({event.stream for event in ordered}),
    )


def span_ns(events: Sequence[GpuEvent]) -> int:
    """From the first start to the last end."""
    return max(event.end_ns for event in events) - min(event.start_ns for event in events)


def require_interval(event: GpuEvent) -> None:
    """Refuse what profilers write when they have lost a timestamp (pytorch/kineto#109, #325, #996).

    Raises:
        ImpossibleTime: the interval starts at 0 or before, or is not longer than 0.
    """
    if event.start_ns <= 0 or event.end_ns <= event.start_ns:
        raise ImpossibleTime(
            f"the profiler recorded {event.label!r} from {event.start_ns} ns to {event.end_ns} ns: "
            "it lost a timestamp"
        )


def _union_ns(ordered: Iterable[tuple[int, int]]) -> int:
    """Length of the union of intervals that are sorted by their start."""
    total, reached = 0, 0
    for start, end in ordered:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
