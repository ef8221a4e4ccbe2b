"""Timer `event`: two events around every launch, as `triton.testing.do_bench`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tirbench.timing.pilots import EventPilot
from tirbench.timing.plan import Activity, Call, Pilot, Plan, Record
from tirbench.timing.steps import drain, kept_flags, launch_untimed, walk
from tirbench.timing.timers.common import require_no_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.timing.device import Device, Event


@dataclass(slots=True, kw_only=True)
class EventTimer:
    """Times what lies between two events on the current stream: the wall of each call on the GPU.

    Gaps between kernels count, and so does the host where it cannot keep up. The flush is before the
    first event.
    """

    device: Device
    sleep: Callable[[float], None]
    clock_ns: Callable[[], int]
    _pilot: EventPilot = field(init=False)

    def __post_init__(self) -> None:
        """Estimate with events too, and insist on the current stream."""
        self._pilot = EventPilot(device=self.device, clock_ns=self.clock_ns, joined=True)

    def require(self) -> None:
        """Refuse to work inside a capture: an event that is captured has no time."""
        require_no_capture(self.device, "event")

    def pilot(self, call: Call) -> Pilot:
        """First call and estimate."""
        return self._pilot.estimate(call)

    def measure(self, plan: Plan) -> list[Record]:
        """Flush, event, launch, event for every call; the device is drained at rests and at the end."""
        pairs: list[tuple[Event, Event]] = []

        def launch(call: Call) -> None:
            start, end = self.device.event(), self.device.event()
            call.precede()
            start.record()
            call.launch()
            end.record()
            pairs.append((start, end))

        walk(plan.warmup, launch_untimed, self.device, self.sleep)
        walk(plan.timed, launch, self.device, self.sleep)
        drain(self.device, plan)
        return [
            Record(name=name, kept=kept, time_us=span_us, activity=Activity(span_us=span_us))
            for (name, kept), (start, end) in zip(kept_flags(plan), pairs, strict=True)
            for span_us in [start.elapsed_time(end) * 1e3]
        ]

    def facts(self) -> dict[str, object]:
        """Where the events are."""
        return {"source": "events on the current stream", "definition": "start to end of each call"}
