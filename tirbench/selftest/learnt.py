"""What is learnt of a row before it is tried, in this run or an earlier one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from tirbench.calls import SHORT_BLOCK, SHORT_CALL_US
from tirbench.digest import PROTOCOL_VERSION
from tirbench.selftest.readings import Record, is_planted, protocol_of
from tirbench.selftest.trees import TrialRow

BURST_US: Final = 15_000.0
"""As `timing.schedule.BURST_WORK_US`: in a longer quad the device rests, and its arms are then unequal."""

REST_US: Final = 20_000.0
"""As `timing.schedule.BURST_REST_S`, after each of them."""

START_S: Final = 1.0
"""How long it takes until a worker says anything, before any was seen: a process, a context on the device."""

WORKER_S: Final = 0.5
"""What a workload costs in a worker beside its sequences, before any was seen."""

COSTLY_S: Final = 0.25
"""A load that takes longer is not taken more often than a pair needs."""

SEQUENCE_S: Final = 0.9
"""How long a sequence of more than the fewest loads should take at most, beside planted sides."""

FEWEST: Final = 5
"""Loads of what takes longer."""

AIM: Final = 0.01
"""What is planted, relative."""

NEAR_ENOUGH: Final = (0.92, 1.09)
"""Shares of that which are left as they are, so that what several runs measured of them adds up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One row.

    Attributes:
        midmean_us: how long a launch takes.
        flush_us: what precedes it.
        sequence_s: how long a sequence takes beside its arms.
        arm_s: how long each arm of it takes.
        strength: of the delay that makes it slower by about 1 %; `None` where none is planted.
        unplanted: why that was looked for in vain; empty otherwise.
        outputs: checksums of outputs that its oracle found right.
        configuration: what its tuner chose.
        build_s: how long one more load takes.
    """

    midmean_us: float
    flush_us: float
    sequence_s: float
    arm_s: float
    strength: int | None
    outputs: dict[str, int]
    configuration: str | None
    build_s: float
    unplanted: str = ""

    @classmethod
    def of(cls, data: Record) -> Known:
        """What a record or a calibrating worker says."""
        given: dict[str, Any] = {
            one.name: data[one.name] for one in fields(cls) if one.name in data
        }
        return cls(**given)

    @property
    def wants_strength(self) -> bool:
        """Whether no strength was looked for."""
        return self.strength is None and not self.unplanted

    def seconds(self, arms: int, sequences: int = 1) -> float:
        """How long sequences with so many arms altogether take."""
        return sequences * self.sequence_s + arms * self.arm_s

    def loads(self, most: int) -> int:
        """How many loads pay.

        Pairs grow with the square of the loads, so that a short sequence should have many of them; where
        each takes long, few of them leave time for other rows. What each compiles for long is
        loaded twice.
        """
        if self.build_s > COSTLY_S:
            return min(2, most)
        fit = (SEQUENCE_S - self.sequence_s) / self.arm_s if self.arm_s > 0 else most
        return min(most, max(FEWEST, int(fit)))

    def arms(self, most: int) -> int:
        """How many arms a sequence may have so that a quad of all of them fits into one burst."""
        return max(2, min(most, int(BURST_US / self._quad_us(1)))) if self._quad_us(1) > 0 else most

    def paying(self, most: int) -> int:
        """Of so many arms, how many give most for their time, where each is paired with every other.

        The device rests after a burst however much of it was used, and a quad is not divided: nine arms
        whose quad takes more than half a burst take longer than twice eight whose quad takes less.
        """

        def pairs_a_second(arms: int) -> float:
            quad_us = self._quad_us(arms)
            in_a_burst = max(1, int(BURST_US / quad_us)) if quad_us > 0 else 1
            return arms * (arms - 1) / (quad_us + REST_US / in_a_burst)

        return max(range(2, self.arms(most) + 1), key=pairs_a_second)

    def _quad_us(self, arms: int) -> float:
        """How long two sub-blocks of each arm take."""
        cycle_us = self.midmean_us + self.flush_us
        block_us = sum(SHORT_BLOCK) * cycle_us if self.midmean_us < SHORT_CALL_US else cycle_us
        return 2 * arms * block_us


OF_KNOWN: Final = {one.name for one in fields(Known)} - {"unplanted"}


def remembered(
    records: Sequence[Record], rows: Iterable[TrialRow], hardware: str
) -> tuple[dict[str, Known], dict[str, float]]:
    """What earlier runs on this hardware learnt of rows that are still written alike.

    Strengths are corrected by what was measured of them since. Runs by another protocol say nothing: where
    a flush takes longer than it did, too many arms would be measured together, and the device would rest
    in the middle of a quad.

    Returns:
        By row what is known, and by workload the seconds of a worker.
    """
    runs = {
        one["run"]
        for one in records
        if one["type"] == "run"
        and one["hardware"] == hardware
        and protocol_of(one) == PROTOCOL_VERSION
    }
    mine = [one for one in records if one["run"] in runs]
    source = {one.key: one.source for one in rows}
    measured = effects_of(mine)
    known: dict[str, Known] = {}
    worker_s: dict[str, float] = {}
    for one in mine:
        if one["type"] != "row" or source.get(one["row"]) != one["source"]:
            continue
        if not one.keys() >= OF_KNOWN:
            continue  # of a version that knew less
        seen = measured.get((one["row"], one["strength"] or 0))
        strength = one["strength"] if seen is None else corrected(one["strength"], seen)
        known[one["row"]] = Known.of({**one, "strength": strength})
        worker_s[one["row"].partition("/")[0]] = one["worker_s"]
    return known, worker_s


def effects_of(records: Iterable[Record]) -> dict[tuple[str, int], float]:
    """The mean log-ratio of every planted row, by row and strength."""
    strengths: dict[tuple[str, str], int] = {}
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for one in records:
        place = (one.get("run", ""), one.get("row", ""))
        if one["type"] == "row" and one["strength"]:
            strengths[place] = one["strength"]
        elif one["type"] == "reading" and place in strengths:
            for pair, values in one["pairs"].items():
                if is_planted(pair):
                    found[one["row"], strengths[place]].append(values[0])
    return {key: math.fsum(values) / len(values) for key, values in found.items() if values}


def corrected(strength: int, effect: float) -> int:
    """A strength that comes nearer to 1 % by what readings say of it; the same where it is near enough.

    Args:
        strength: as in `harness.planting`.
        effect: its mean log-ratio.
    """
    target = math.log1p(AIM)
    if NEAR_ENOUGH[0] <= effect / target <= NEAR_ENOUGH[1]:
        return strength
    factor = min(2.0, max(0.5, target / max(effect, target / 4)))
    wanted = max(1, round(strength * factor))
    return wanted if (wanted + 1) % 16 else wanted + 1  # as `harness.planting.usable`
