"""Timer `proton`: GPU time of the kernels of every launch, as Triton's `do_bench_proton`."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tirbench.errors import AttributionError
from tirbench.timing import profilers
from tirbench.timing.pilots import EventPilot
from tirbench.timing.plan import Activity, Call, CallFailed, Pilot, Plan, Record
from tirbench.timing.proton import (
    Attribution,
    ProtonSession,
    ScopeNames,
    ScopeTotals,
    TritonProton,
    attribute,
)
from tirbench.timing.steps import drain, kept_flags, launch_untimed, walk
from tirbench.timing.timers.common import require_no_capture, require_nvidia

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.timing.device import Device


@dataclass(slots=True, kw_only=True)
class ProtonTimer:
    """Adds the durations of the kernels of each launch; gaps, copies and fills do not count.

    One session per plan, opened after the warm-up: starting and finalising it is paid once for all calls.
    """

    device: Device
    sleep: Callable[[float], None]
    clock_ns: Callable[[], int]
    open_session: Callable[[], ProtonSession] = TritonProton
    _pilot: EventPilot = field(init=False)

    def __post_init__(self) -> None:
        """Estimate as the event timer does."""
        self._pilot = EventPilot(device=self.device, clock_ns=self.clock_ns)

    def require(self) -> None:
        """Refuse ROCm and an active capture."""
        require_nvidia(self.device, "proton")
        require_no_capture(self.device, "proton")

    def pilot(self, call: Call) -> Pilot:
        """First call and estimate."""
        return self._pilot.estimate(call)

    def measure(self, plan: Plan) -> list[Record]:
        """Flush outside, launch inside a scope of its own, for every call."""
        walk(plan.warmup, launch_untimed, self.device, self.sleep)
        drain(self.device, plan)
        names = ScopeNames(f"tirbench.{uuid.uuid4().hex}")
        launched = 0
        session = self.open_session()

        def launch(call: Call) -> None:
            nonlocal launched
            call.precede()
            with session.scope(names.launch(launched)):
                call.launch()
            launched += 1

        tree = []
        try:
            self.device.fill_one()  # a sign of life: a profiler that misses even this is dead
            walk(plan.timed, launch, self.device, self.sleep)
            drain(self.device, plan)
        finally:
            tree = session.finish()
        attribution = attribute(tree, names)
        flags = kept_flags(plan)
        require_all_attributed(attribution, [name for name, _ in flags])
        return [
            record(name, attribution.scopes[index], kept=kept)
            for index, (name, kept) in enumerate(flags)
        ]

    def facts(self) -> dict[str, object]:
        """What the sum leaves out."""
        return {
            "source": "proton",
            "definition": "sum of the durations of all kernels; gaps, memcpy and memset excluded",
        }


def record(name: str, totals: ScopeTotals, *, kept: bool, replays: int = 1) -> Record:
    """The record of one scope; with several replays behind it, the mean over them."""
    time_us = totals.total_ns / replays / 1e3
    return Record(
        name=name,
        time_us=time_us,
        kept=kept,
        replays=replays,
        activity=Activity(
            sum_us=time_us, kernels=totals.kernels // replays, names=tuple(totals.names)
        ),
    )


def require_all_attributed(attribution: Attribution, owners: list[str]) -> None:
    """Insist on a positive time for every launch.

    Args:
        attribution: what Proton recorded.
        owners: implementation of each launch, by its number.

    Raises:
        CallFailed: around an AttributionError that says what was seen instead.
    """
    missing = Counter(
        owner for index, owner in enumerate(owners) if index not in attribution.scopes
    )
    if not missing:
        return
    name, lost = next(iter(missing.items()))
    of = owners.count(name)
    raise CallFailed(name, AttributionError(explain_missing(name, of - lost, of, attribution)))


def explain_missing(name: str, found: int, launches: int, attribution: Attribution) -> str:
    """Why launches have no time: nothing works, only this implementation has no kernels, or some are lost."""
    head = f"{name!r}: Proton attributed GPU time to {found} of {launches} launches."
    seen = sorted({*attribution.elsewhere, *_names(attribution)})
    if not seen:
        return (
            f"{head} It recorded no kernel at all, not even the one that asks for a sign "
            "of life: the profiler is dead."
            f"{profilers.other_family('proton')} {profilers.ANOTHER_PROCESS}"
        )
    if found == 0:
        return (
            f"{head} The kernels it saw are {_some(seen)}: this implementation launches none that "
            "Proton can see (copies and fills are invisible to it); use timer='kineto' or 'event'"
        )
    return f"{head} Records were lost; the kernels it saw are {_some(seen)}"


def _names(attribution: Attribution) -> set[str]:
    return {name for totals in attribution.scopes.values() for name in totals.names}


def _some(names: list[str], limit: int = 5) -> str:
    """At most `limit` of the names."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(repr(name) for name in names[:limit]) + more
