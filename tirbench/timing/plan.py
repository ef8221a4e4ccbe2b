"""What a timer is asked to do, and what it answers.

A *plan* is an ordered list of blocks and rests. A block is a few consecutive calls of one implementation;
a rest drains the device and idles. Blocked and interleaved order, burst and sustained regime are
different plans: a timer knows none of these words, it only times the calls it is given, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

Closure: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One launch of one implementation and what must precede it, outside of the timed interval.

    `prepare` puts the inputs back, `flush` sets the state of the L2 cache; in this order, so that
    preparing does not warm what flushing has cooled.
    """

    name: str
    launch: Closure
    prepare: Closure | None = None
    flush: Closure | None = None

    def precede(self) -> None:
        """Enqueue what comes before the launch."""
        if self.prepare is not None:
            self.prepare()
        if self.flush is not None:
            self.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive launches of one call; the first `discarded` are timed like the others, then dropped."""

    call: Call
    kept: int
    discarded: int = 0

    @property
    def launches(self) -> int:
        """How often the call is launched in this block."""
        return self.discarded + self.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The device is drained, then the host idles for so many seconds."""

    seconds: float


Step: TypeAlias = "Block | Rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one measurement does: untimed `warmup` steps, then the timed ones.

    `merge_replays` lets a timer that replays graphs answer the mean over all replays for each launch
    of a graph, as the public protocol does; without it every replay has records of its own.
    """

    timed: tuple[Step, ...]
    warmup: tuple[Step, ...] = ()
    merge_replays: bool = False

    def blocks(self) -> Iterator[Block]:
        """The timed blocks in order."""
        return (step for step in self.timed if isinstance(step, Block))


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What the GPU did for one call, as far as the profiler tells.

    `sum_us` adds the durations of all activities, `busy_us` is the length of their union and `span_us`
    reaches from the first start to the last end; what the timer cannot know is None (Proton's tree has
    durations without timestamps, a pair of events has a span alone). `kernels` counts kernels alone;
    `names` lists kernels, copies and fills in order of appearance, the latter two as `memcpy: …` and
    `memset: …`.
    """

    sum_us: float | None = None
    busy_us: float | None = None
    span_us: float | None = None
    kernels: int | None = None
    names: tuple[str, ...] = ()
    streams: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The time of one launch (or the mean over `replays` replays of one launch in a graph), in µs."""

    name: str
    time_us: float
    kept: bool = True
    replays: int = 1
    activity: Activity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """What a few calls before the measurement tell, in µs.

    `budget_us` is the time that budgets are divided by, as the public protocol defines it for the
    timer; `cycle_us` is one whole cycle (prepare, flush, launch) and `launch_us` the launch alone. `calls`
    is how many cycles it took to find out.
    """

    budget_us: float
    cycle_us: float
    launch_us: float
    calls: int = 1


@runtime_checkable
class Timer(Protocol):
    """Times calls in one way, and says what its numbers mean."""

    def require(self) -> None:
        """Raise what keeps this timer from working here, before anything is launched.

        Raises:
            TimerUnavailable: device, build or process do not fit.
            CaptureError: a graph is being captured on the current stream.
        """

    def pilot(self, call: Call) -> Pilot:
        """Launch the call once untimed, drain the device, then estimate its time with a few calls."""

    def measure(self, plan: Plan) -> list[Record]:
        """Run the plan; one record per timed launch, in order.

        Raises:
            CallFailed: a launch failed, or a launch has no time; names the implementation.
            TimerError: the timer itself failed.
        """

    def facts(self) -> dict[str, object]:
        """What the protocol must say about this timer beyond the common keys."""


class CallFailed(Exception):  # never leaves `bench()`: it carries the error that does
    """An error that belongs to one implementation; `error` is the original."""

    def __init__(self, name: str, error: Exception) -> None:
        """Keep whose error it is."""
        super().__init__(f"{name}: {error}")
        self.name = name
        self.error = error
