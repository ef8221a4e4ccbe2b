"""A few calls before the measurement: how long does this take?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Final

from tirbench.errors import TimerError
from tirbench.timing.plan import Call, CallFailed, Pilot
from tirbench.timing.steps import blame

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.timing.device import Device, Event

# The public protocol estimates with five calls between two events (triton.testing.do_bench).
ESTIMATE_CALLS: Final = 5

# GPU time of a kernel that writes one element, about 1 µs on any current GPU: what an event pair
# around it reads beyond that is what events add to a short launch.
SMALLEST_KERNEL_US: Final = 1.0

# How often it is looked whether work goes on elsewhere.
JOIN_CHECKS: Final = 3

# The GPU may be waiting for the host where that takes at least this share of a cycle.
HOST_SHARE: Final = 0.5

# How long the GPU waits so that the host gets ahead of it: so many times what the host took, and no longer
# than the longest wait.
HEAD_START: Final = 2.0
LONGEST_WAIT_US: Final = 20_000.0

# Work that outlives the timed stream by more than this, and by more than a tenth of the call, runs on
# another stream. Below it the check cannot tell work from the cost of asking (10 µs on an H200).
UNJOINED_US: Final = 30.0
UNJOINED_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """What `ESTIMATE_CALLS` calls took.

    Attributes:
        cycle_us: mean of a whole cycle: prepare, flush, launch.
        launch_us: median of the launches alone.
        host_us: mean of what a cycle took of the host.
    """

    cycle_us: float
    launch_us: float
    host_us: float


@dataclass(slots=True, kw_only=True)
class EventPilot:
    """Estimates with events on the current stream.

    Args:
        device: the GPU.
        clock_ns: a monotonic clock.
        flushed: whether the estimate that budgets are divided by includes the flush, as in `do_bench`
            (yes) and in `do_bench_cudagraph` (no).
        joined: whether work must be complete on the current stream, as a timer that records events
            there needs.
    """

    device: Device
    clock_ns: Callable[[], int]
    flushed: bool = True
    joined: bool = False
    _event_cost_us: float | None = field(default=None, init=False)

    def estimate(self, call: Call) -> Pilot:
        """Launch once untimed, drain, then estimate with five calls, or with five more."""
        self._first(call)
        if self.joined:
            self._require_joined(call)
        seen = self._estimated(call)
        ahead = self._ahead(call, seen)
        launch_us = max(ahead.launch_us - self.event_cost_us(call), 0.0)
        budget_us = seen.cycle_us if self.flushed else self._bare(replace(call, flush=None))
        estimates = 1 + (ahead is not seen) + (not self.flushed)
        calls = 1 + (JOIN_CHECKS if self.joined else 0) + estimates * ESTIMATE_CALLS
        return Pilot(budget_us=budget_us, cycle_us=ahead.cycle_us, launch_us=launch_us, calls=calls)

    def event_cost_us(self, call: Call) -> float:
        """What a pair of events adds to a short launch after this call's flush; measured once."""
        if self._event_cost_us is None:
            smallest = Call(
                name="the smallest kernel", launch=self.device.fill_one, flush=call.flush
            )
            self._first(smallest)
            launch_us = self._ahead(smallest, self._estimated(smallest)).launch_us
            self._event_cost_us = max(launch_us - SMALLEST_KERNEL_US, 0.0)
        return self._event_cost_us

    def _ahead(self, call: Call, asked: Estimated) -> Estimated:
        """The same with the host ahead of the GPU, where the GPU may have waited for it.

        The public protocol divides its budgets by what host and GPU take together. But a launch that is
        taken to be long for it gets few calls and other implementations to be interleaved with, and a
        device whose cycles are taken to be long rests too often. Where a cycle takes more than a few
        milliseconds of the host, the longest wait gives it no head start of all five, and part of the
        host's time remains in the estimate.
        """
        if not asked.host_us > HOST_SHARE * asked.cycle_us > 0:
            return asked
        wait_us = min(HEAD_START * ESTIMATE_CALLS * asked.host_us, LONGEST_WAIT_US)
        return self._estimated(call, wait_us)

    def _first(self, call: Call) -> None:
        """Compile, load, autotune: the first call is never timed; faults surface here, by name."""

        def launch(call: Call) -> None:
            if call.prepare is not None:
                call.prepare()
            call.launch()
            self.device.synchronize()

        blame(call, launch)

    def _estimated(self, call: Call, wait_us: float = 0.0) -> Estimated:
        """Five calls with events around their launches, after the GPU has waited for so long."""
        pairs: list[tuple[Event, Event]] = []

        def launch(call: Call) -> None:
            start, end = self.device.event(), self.device.event()
            call.precede()
            start.record()
            call.launch()
            end.record()
            pairs.append((start, end))

        if wait_us:
            self.device.wait(wait_us)
        cycle_us, host_us = self._mean(call, launch)
        launch_us = median([start.elapsed_time(end) * 1e3 for start, end in pairs])
        return Estimated(cycle_us=cycle_us, launch_us=launch_us, host_us=host_us)

    def _bare(self, call: Call) -> float:
        """Mean µs of a call with no events around the launch, as `do_bench_cudagraph` estimates.

        Without a flush the host is what takes long of a short call. Events would double or treble its
        part, and the budget would be that many calls too small.
        """

        def launch(call: Call) -> None:
            call.precede()
            call.launch()

        return self._mean(call, launch)[0]

    def _mean(self, call: Call, launch: Callable[[Call], None]) -> tuple[float, float]:
        """Mean µs of a call, and what it takes of the host."""
        begin, finish = self.device.event(), self.device.event()
        started_ns = self.clock_ns()
        begin.record()
        for _ in range(ESTIMATE_CALLS):
            blame(call, launch)
        finish.record()
        host_us = (self.clock_ns() - started_ns) / 1e3 / ESTIMATE_CALLS
        blame(call, lambda _: self.device.synchronize())
        return begin.elapsed_time(finish) * 1e3 / ESTIMATE_CALLS, host_us

    def _require_joined(self, call: Call) -> None:
        """Refuse a closure whose work goes on when the current stream is done.

        Events on the current stream would time nothing of it: 250 µs read as 5 µs
        (pytorch/helion#2994, flashinfer-ai/flashinfer-bench#427).
        """
        outlived_us: list[float] = []
        total_us: list[float] = []

        def launch(call: Call) -> None:
            if call.prepare is not None:
                call.prepare()
            self.device.synchronize()
            begin = self.clock_ns()
            call.launch()
            self.device.synchronize_stream()
            joined = self.clock_ns()
            self.device.synchronize()
            end = self.clock_ns()
            outlived_us.append((end - joined) / 1e3)
            total_us.append((end - begin) / 1e3)

        for _ in range(JOIN_CHECKS):
            blame(call, launch)
        if min(outlived_us) > max(UNJOINED_US, UNJOINED_SHARE * min(total_us)):
            raise CallFailed(
                call.name,
                TimerError(
                    f"{call.name!r} still works for {min(outlived_us):.0f} µs after the current "
                    "stream is done: it launches on another stream. Make the current stream wait "
                    "for that one before the closure returns, or use timer='kineto'"
                ),
            )
