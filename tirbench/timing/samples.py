"""From records to the samples of each implementation: only positive, finite times pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from tirbench.errors import ImpossibleTime
from tirbench.timing.plan import Activity, CallFailed, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

# Events of some drivers go backwards once in a while (ROCm/rocm-systems#9375: -1.78 ms). Such a sample is
# rejected and counted, never clamped to a record; more than one in twenty, and the timer is broken.
REJECTED_SHARE: Final = 0.05

# Timers whose single samples may be rejected; a profiler's impossible record fails at once.
FORGIVEN: Final = frozenset({"event", "wall"})


@dataclass(slots=True, kw_only=True)
class Samples:
    """The kept samples of one implementation, µs, one list per round."""

    rounds_us: list[list[float]] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    replays: list[int] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)

    def extend(self, later: Samples) -> None:
        """Append the rounds of `later`."""
        self.rounds_us += later.rounds_us
        self.rejected += later.rejected
        self.replays += later.replays
        self.activities += later.activities

    def means_us(self) -> list[float]:
        """The mean of each round."""
        return [fmean(samples) for samples in self.rounds_us]

    def add_round(self, name: str, timer: str, records: Sequence[Record]) -> None:
        """Take the kept records of a round of that implementation.

        Raises:
            CallFailed: around an ImpossibleTime: a time is not positive and finite, and the timer is not
                one whose single samples may be rejected, or too many are like that.
        """
        kept = [record for record in records if record.kept and record.name == name]
        possible = [record for record in kept if _is_possible(record.time_us)]
        rejected = len(kept) - len(possible)
        allowed = REJECTED_SHARE * len(kept) if timer in FORGIVEN else 0
        if rejected > allowed or not possible:
            wrong_us = [record.time_us for record in kept if not _is_possible(record.time_us)]
            raise CallFailed(name, ImpossibleTime(_impossible(name, timer, wrong_us, len(kept))))
        self.rounds_us.append([record.time_us for record in possible])
        self.rejected.append(rejected)
        self.replays.append(possible[0].replays)
        self.activities += [record.activity for record in possible if record.activity is not None]

    def activity(self) -> dict[str, object] | None:
        """Medians over calls of what the profiler tells beside the time; None where it tells nothing."""
        if not self.activities:
            return None
        kernels = [activity.kernels for activity in self.activities if activity.kernels is not None]
        return {
            "busy_us": _median([activity.busy_us for activity in self.activities]),
            "span_us": _median([activity.span_us for activity in self.activities]),
            "sum_us": _median([activity.sum_us for activity in self.activities]),
            "kernels": int(median(kernels)) if kernels else None,
            "kernels_vary": len(set(kernels)) > 1,
            "names": list(self.activities[0].names),
            "streams": self.activities[0].streams,
        }


def _is_possible(time_us: float) -> bool:
    return math.isfinite(time_us) and time_us > 0


def _impossible(name: str, timer: str, wrong_us: Sequence[float], samples: int) -> str:
    if not samples:
        return f"timer {timer!r} returned no sample of {name!r}"
    return (
        f"timer {timer!r} returned {wrong_us[0]:g} µs for {name!r}: {len(wrong_us)} of {samples} "
        "samples are not positive and finite"
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
