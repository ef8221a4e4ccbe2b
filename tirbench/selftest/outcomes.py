"""Every decision that was tried, with what it cost and, for a planted slowdown, how large that truly is."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tirbench.judge import Limits, Policy, estimate, tau_squared
from tirbench.selftest.decide import Decision, Evidence, Key, decide
from tirbench.selftest.readings import BASE, PLANTEDS, QUIETS, SEPARATOR, Record, pair_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One row-decision with what it cost, and for a planted one how large the slowdown truly is.

    Attributes:
        truth: relative, from all other readings of the row; `None` for equal code, or where there
            were none.
        gpu_s: GPU seconds of one side, flushes included.
        screened: whether screening alone flagged it.
    """

    decision: Decision
    midmean_us: float
    truth: float | None
    gpu_s: float
    screened: bool

    @property
    def key(self) -> Key:
        """Which decision it is."""
        return self.decision.key

    @property
    def kind(self) -> str:
        """The kind of the verdict, or `unfinished`."""
        return self.decision.kind

    @property
    def flagged(self) -> bool:
        """Whether it was called slower or faster."""
        return self.kind in {"slower", "faster"}

    @property
    def disjoint(self) -> bool:
        """Whether it is one of those of its kind that share no load with each other."""
        if self.key.planted:
            return self.key.pair in {pair_of(*pair) for pair in zip(QUIETS, PLANTEDS, strict=True)}
        if self.key.pair in {pair_of(*QUIETS), pair_of(*PLANTEDS)}:
            return True
        sides = self.key.pair.split(SEPARATOR)
        numbers = [0 if side == BASE else int(side.removeprefix("twin")) for side in sides]
        return numbers[0] % 2 == 0 and numbers[1] == numbers[0] + 1


def tried(records: Sequence[Record], policy: Policy) -> list[Tried]:
    """Every decision that the readings of all runs allow."""
    rows = {(one["run"], one["row"]): one for one in records if one["type"] == "row"}
    costs = _costs(records, rows)
    truths = _truths(records, rows)
    taus: dict[str, float] = {}
    found = []
    decisions = decide(Evidence.of(records), policy)
    for run in {one.key.run for one in decisions}:
        equal = [one.evidence for one in decisions if one.key.run == run and not one.key.planted]
        taus[run] = tau_squared(equal)
    for one in decisions:
        row = rows.get((one.key.run, one.key.row))
        if row is None:
            continue
        limits = Limits.of(one.evidence.slower_than, policy.equal_z)
        screening = estimate(one.evidence.screening, taus[one.key.run])
        found.append(
            Tried(
                decision=one,
                midmean_us=row["midmean_us"],
                truth=truths.get(one.key),
                gpu_s=_gpu_s(one, costs),
                screened=limits.flags(screening),
            )
        )
    return found


def _costs(
    records: Iterable[Record], rows: Mapping[tuple[str, str], Record]
) -> dict[tuple[str, str, int, int, str], float]:
    """GPU seconds of a side, by run, row, sequence, placement and side."""
    found: dict[tuple[str, str, int, int, str], float] = {}
    for one in records:
        if one["type"] != "reading" or (one["run"], one["row"]) not in rows:
            continue
        flush_us = rows[one["run"], one["row"]]["flush_us"]
        for side, count in one["launches"].items():
            place = (one["run"], one["row"], one["sequence"], one["placement"], side)
            found[place] = count * (one["midmean_us"][side] + flush_us) / 1e6
    return found


def _gpu_s(one: Decision, costs: Mapping[tuple[str, str, int, int, str], float]) -> float:
    key = one.key
    readings = (*one.evidence.screening, *one.evidence.confirming)
    sides = key.pair.split(SEPARATOR)
    total = math.fsum(
        costs.get((key.run, key.row, key.sequence, reading.placement, side), 0.0)
        for reading in readings
        for side in sides
    )
    return total / len(sides)


def _truths(records: Iterable[Record], rows: Mapping[tuple[str, str], Record]) -> dict[Key, float]:
    """How much slower a planted row is, by everything else that was measured of it.

    A decision's own readings must not say what it should have found, nor those of the same sequence that
    share a side with them. Runs in which the row had the same strength count together, each placement
    alike.
    """
    found: dict[tuple[str, int], dict[Key, dict[int, float]]] = {}
    for one in records:
        if one["type"] != "reading" or (row := rows.get((one["run"], one["row"]))) is None:
            continue
        for pair, values in one["pairs"].items():
            key = Key(one["run"], one["row"], one["sequence"], pair)
            if key.planted:
                alike = found.setdefault((one["row"], row["strength"]), {})
                alike.setdefault(key, {})[one["placement"]] = values[0]
    return {
        key: math.expm1(effect)
        for alike in found.values()
        for key in alike
        if (effect := _without(alike, key)) is not None
    }


def _without(alike: Mapping[Key, Mapping[int, float]], own: Key) -> float | None:
    """The mean log-ratio of all pairs that share no side of the same sequence with this one."""
    others: dict[int, list[float]] = defaultdict(list)
    mine = set(own.pair.split(SEPARATOR))
    for key, placements in alike.items():
        together = (key.run, key.sequence) == (own.run, own.sequence)
        if together and not mine.isdisjoint(key.pair.split(SEPARATOR)):
            continue
        for placement, value in placements.items():
            others[placement].append(value)
    return statistics.fmean(map(statistics.fmean, others.values())) if others else None
