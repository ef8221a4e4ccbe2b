"""Timer `kineto`: the span of everything a launch makes the GPU do, on all streams."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tirbench.errors import AttributionError
from tirbench.timing.kineto import KinetoSession, TorchKineto, attribute_events, span_record
from tirbench.timing.pilots import EventPilot
from tirbench.timing.plan import Call, CallFailed, Pilot, Plan, Record
from tirbench.timing.steps import drain, kept_flags, launch_untimed, walk
from tirbench.timing.timers.common import require_no_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.timing.activity import GpuEvent
    from tirbench.timing.device import Device


@dataclass(slots=True, kw_only=True)
class KinetoTimer:
    """From the first start to the last end of all that a launch puts on any stream of the GPU.

    Copies and fills count, and so do gaps between kernels. The one timer of distributed measurements.
    """

    device: Device
    sleep: Callable[[float], None]
    clock_ns: Callable[[], int]
    open_session: Callable[[], KinetoSession] = TorchKineto
    _pilot: EventPilot = field(init=False)

    def __post_init__(self) -> None:
        """Estimate as the event timer does."""
        self._pilot = EventPilot(device=self.device, clock_ns=self.clock_ns)

    def require(self) -> None:
        """Refuse an active capture."""
        require_no_capture(self.device, "kineto")

    def pilot(self, call: Call) -> Pilot:
        """First call and estimate."""
        return self._pilot.estimate(call)

    def measure(self, plan: Plan) -> list[Record]:
        """Flush outside, launch inside a scope of its own, for every call; once more if records were lost.

        Kineto drops events at the start of a session, more so after idling (pytorch/pytorch#192021).
        """
        walk(plan.warmup, launch_untimed, self.device, self.sleep)
        drain(self.device, plan)
        try:
            return self._session(plan)
        except CallFailed as failed:
            if not isinstance(failed.error, AttributionError):
                raise
            return self._session(plan)

    def facts(self) -> dict[str, object]:
        """What the span is."""
        return {
            "source": "kineto",
            "definition": "first start to last end of all GPU activities of a launch, all streams",
        }

    def _session(self, plan: Plan) -> list[Record]:
        prefix = f"tirbench.{uuid.uuid4().hex}"
        scopes: list[str] = []
        session = self.open_session()

        def launch(call: Call) -> None:
            name = f"{prefix}.{len(scopes):08d}"
            scopes.append(name)
            call.precede()
            with session.scope(name):
                call.launch()

        events: list[GpuEvent] = []
        try:
            # What the session drops at its start shall be this and no launch.
            self.device.fill_one()
            self.device.synchronize()
            walk(plan.timed, launch, self.device, self.sleep)
            drain(self.device, plan)
        finally:
            events = session.finish()
        flags = kept_flags(plan)
        owners = [name for name, _ in flags]
        return [
            span_record(name, spans, work, kept=kept)
            for (name, kept), (spans, work) in zip(
                flags, attribute_events(events, scopes, owners), strict=True
            )
        ]
