"""Where the time of a run goes: which stages its devices were busy with, told from events."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final, get_args

from tirbench.execute.events import CaseDone, StageStarted
from tirbench.model import Spent, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.execute.events import Event

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)

NOTHING_S: Final = 0.001
"""What is shorter is the way of an event from its worker to here."""


class Spending:
    """Adds up how long the stages of each workload take."""

    def __init__(self, *, devices: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin now.

        Args:
            devices: that cases are spread over.
            clock: seconds, monotonic.
        """
        self._devices = devices
        self._clock = clock
        self._begin = self._end = clock()
        self._open: dict[tuple[str, str], tuple[Stage, float]] = {}
        self._of_case: dict[tuple[str, str], dict[Stage, float]] = defaultdict(dict)
        self._found: dict[str, dict[Stage, float]] = {}

    def look(self, event: Event) -> None:
        """See what has begun or ended."""
        self._end = self._clock()
        if isinstance(event, StageStarted):
            self._leave((event.workload, event.case))
            self._open[event.workload, event.case] = (event.stage, self._end)
        elif isinstance(event, CaseDone):
            self._leave((event.workload, event.case))
            stages = self._of_case.pop((event.workload, event.case), {})
            # Nothing is announced of a worker's beginning: it is what the case took beside its stages.
            loading = event.elapsed_s - math.fsum(stages.values())
            if loading > NOTHING_S:
                stages["load"] = stages.get("load", 0.0) + loading
            mine = self._found.setdefault(event.workload, {})
            for stage, seconds in stages.items():
                mine[stage] = mine.get(stage, 0.0) + seconds

    def spent(self) -> Spent:
        """Everything by now; of a case that has not ended nothing."""
        return Spent(
            elapsed_s=round(self._end - self._begin, 3),
            devices=self._devices,
            stages=tuple(
                (
                    workload,
                    tuple((stage, round(found[stage], 3)) for stage in STAGES if stage in found),
                )
                for workload, found in self._found.items()
            ),
        )

    def _leave(self, case: tuple[str, str]) -> None:
        """End the stage that a case is in."""
        if case in self._open:
            stage, since = self._open.pop(case)
            stages = self._of_case[case]
            stages[stage] = stages.get(stage, 0.0) + self._end - since
