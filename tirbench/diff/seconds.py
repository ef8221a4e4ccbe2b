"""About how long it takes to measure rows, from the times that are known of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tirbench.calls import FLUSH_US, SHORT_BLOCK, SHORT_CALL_US, calls_for

if TYPE_CHECKING:
    from tirbench.diff.side import Key, Side
    from tirbench.model import ToMeasure

PLACEMENTS: Final = 5
"""As `exec` measures on."""

RESTED: Final = (15 + 20) / 15
"""How much longer the burst regime takes than its work: 20 ms of idling after each 15 ms."""

START_S: Final = 15.0
"""Of a run, before its first row: workers, the device's context, its roofs."""

ROW_S: Final = 1.2
"""Of a row beside its calls: building, verifying on every placement.

Both from runs on an H200: 2 rows took 14 to 19 s, 210 rows 253 s with full caches and 335 s with empty ones.
"""


class Times:
    """What is known of how long rows take: by the latest run, by their pins, by rows that are alike."""

    def __init__(
        self, *sides: Side, measured: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        """Collect the times.

        Args:
            sides: whose pins say it, the most trusted last.
            measured: µs by hardware and `workload/case/implementation`, which come before pins.
        """
        self._us: dict[tuple[str, str, Key], float] = {
            (pins.baseline.hardware, pins.baseline.workload, key): row.midmean_us
            for side in sides
            for pins in side.pins.values()
            for key, row in pins.rows.items()
        }
        for (hardware, name), time_us in (measured or {}).items():
            workload, case, implementation = name.split("/", 2)
            self._us[hardware, workload, (case, implementation)] = time_us

    def seconds(self, workload: str, key: Key, hardware: Sequence[str]) -> float | None:
        """Seconds that a row takes on the slowest of these; `None` where nothing alike is known."""
        found = [time_us for name in hardware if (time_us := self._time(name, workload, key))]
        return row_seconds(max(found), on_cpu=hardware[0].startswith("cpu-")) if found else None

    def _time(self, hardware: str, workload: str, key: Key) -> float | None:
        """The row's own time, or the middle one of the same implementation, or of the workload."""
        own = self._us.get((hardware, workload, key))
        if own is not None:
            return own
        beside = [
            (at[1], time_us)
            for (where, name, at), time_us in self._us.items()
            if (where, name) == (hardware, workload)
        ]
        alike = [time_us for name, time_us in beside if name == key[1]] or [t for _, t in beside]
        return statistics.median(alike) if alike else None


def row_seconds(time_us: float, *, on_cpu: bool = False) -> float:
    """Seconds of a row in a run that goes on, by the table of calls.

    Args:
        time_us: of one launch.
        on_cpu: nothing is flushed there, and nothing rests.
    """
    discarded, kept = SHORT_BLOCK if time_us < SHORT_CALL_US else (0, 1)
    calls = PLACEMENTS * calls_for(time_us) * (discarded + kept) / kept
    flush_us, rested = (0.0, 1.0) if on_cpu else (FLUSH_US, RESTED)
    return ROW_S + calls * (time_us + flush_us) * rested / 1e6


def total(rows: Iterable[ToMeasure]) -> float | None:
    """Seconds of a run of these rows; `None` where those of any are not known, 0 where there is none."""
    seconds = [row.seconds for row in rows]
    known = [one for one in seconds if one is not None]
    if len(known) < len(seconds):
        return None
    return START_S + sum(known) if known else 0.0
