"""What a self-test would take and bring, by what the pins say of its rows: nothing is measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tirbench import store
from tirbench.calls import FLUSH_US, LONG_BLOCK, SHORT_BLOCK, SHORT_CALL_US, calls_for
from tirbench.selftest.ask import Asked
from tirbench.selftest.budget import PLANNED, Batch, Budget
from tirbench.selftest.learnt import BURST_US, COSTLY_S, REST_US, START_S, WORKER_S, Known
from tirbench.selftest.readings import is_planted, pair_of, pairs_of
from tirbench.selftest.shares import classes
from tirbench.selftest.tables import Table
from tirbench.selftest.trees import Trees, TrialRow, opened

PILOT_CALLS: Final = 11
"""Of an estimate: the first call, then five as they come and five with the host ahead."""

SEQUENCE_S: Final = 0.1
"""What a sequence takes beside its calls and rests (H200)."""

BUILD_S: Final = {"triton": 0.003, "call": 0.003, "build": 0.003}
"""What one more load takes where its compiler finds it on disk; of other kinds it is not known."""

COMPILE_S: Final = 0.5
"""What a kernel takes that is compiled for the first time (H200)."""

CALIBRATED_ARMS: Final = (1, 4)
"""Arms of the sequences that calibrate a row."""

UNPINNED_US: Final = 100.0
"""How long a launch is taken to be that no pin is known of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows: what they take on one device, and what comes of them.

    Attributes:
        unpinned: rows whose duration nothing is known of.
        calibrate_s: once, the first time.
        screen_s: all their sequences, with their workers where all rows are of one workload.
        confirm_s: what is asked for beyond that.
        equal: decisions about equal code.
        planted: decisions about planted slowdowns.
    """

    name: str
    rows: int
    unpinned: int
    calibrate_s: float
    screen_s: float
    confirm_s: float
    equal: int
    planted: int

    @property
    def seconds(self) -> float:
        """All that it takes."""
        return self.calibrate_s + self.screen_s + self.confirm_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """A whole self-test.

    Attributes:
        runs: virtual runs that fit into the time.
        lanes: devices that share the work.
        workloads: the parts of it, in the order in which they are begun.
        durations: the same by class of duration, without what workers cost.
    """

    hardware: str
    runs: int
    lanes: int
    workloads: tuple[Part, ...]
    durations: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """How many are tried."""
        return sum(part.rows for part in self.workloads)

    def markdown(self) -> Iterator[str]:
        """Tables of it."""
        total = _sum("all", self.workloads)
        yield (
            f"{self.rows} rows by the pins of {self.hardware}, {self.runs} virtual runs: about "
            f"{total.seconds / self.lanes:.0f} s on {self.lanes} device{'s' * (self.lanes > 1)}, "
            f"{total.calibrate_s / self.lanes:.0f} s of them to calibrate, which a later run need not."
        )
        for head, parts in (("workload", (*self.workloads, total)), ("launch", self.durations)):
            yield ""
            yield from _table(head, parts).markdown()


def foresee(asked: Asked, hardware: str) -> Foreseen:
    """What would be measured, in the time that is asked for; every pinned row can be calibrated.

    Raises:
        UsageError: nothing to try.
        InputError: a workload is not right.
    """
    lanes = len(asked.gpus) or 1
    with opened(asked, written=False) as trees:
        pinned = _pinned(trees, hardware)
        known = {
            one.key: _known(one, pinned.get(one.key, UNPINNED_US), asked) for one in trees.rows
        }
        budget = Budget(asked=asked, trees=trees, known=known)
        calibrating = {
            workload: START_S + WORKER_S + math.fsum(_calibrate_s(known[key]) for key in keys)
            for workload, keys in _by_workload(known).items()
        }
        seconds = lanes * asked.seconds - math.fsum(calibrating.values())
        runs = _runs(budget, seconds)
        batch = budget.sequences(range(runs))
        parts = {
            task.workload: _part(
                budget, task.workload, {key: batch[key] for key in task.rows}, pinned
            )
            for task in budget.tasks(batch, range(asked.workers))
        }
        return Foreseen(
            hardware=hardware,
            runs=runs,
            lanes=lanes,
            workloads=tuple(
                replace(part, calibrate_s=calibrating[name]) for name, part in parts.items()
            ),
            durations=tuple(_durations(budget, batch, pinned)),
        )


def _runs(budget: Budget, seconds: float) -> int:
    """How many virtual runs fit, one in any case."""
    runs = 1
    while runs < budget.asked.sequences:
        if budget.cost(budget.sequences(range(runs + 1))) > PLANNED * seconds:
            break
        runs += 1
    return runs


def _pinned(trees: Trees, hardware: str) -> dict[str, float]:
    """Duration of every row that has a pin of this hardware, µs."""
    found = {}
    for name, workload in trees.workloads.items():
        path = store.baseline_path(workload, hardware)
        baseline = store.read_baseline(trees.project, path)
        for row in () if baseline is None else baseline.rows:
            found[f"{name}/{row.case}/{row.implementation}"] = row.midmean_us
    return found


def _known(one: TrialRow, midmean_us: float, asked: Asked) -> Known:
    """What a calibrating worker would say, about."""
    flush_us = FLUSH_US if asked.device == "cuda" else 0.0
    discarded, kept = SHORT_BLOCK if midmean_us < SHORT_CALL_US else LONG_BLOCK
    calls = calls_for(midmean_us)
    launches = calls + math.ceil(calls / kept) * discarded + PILOT_CALLS
    work_us = launches * (midmean_us + flush_us)
    built = [BUILD_S.get(launch.kind, 2 * COSTLY_S) for launch in one.launches]
    return Known(
        midmean_us=midmean_us,
        flush_us=flush_us,
        sequence_s=SEQUENCE_S,
        arm_s=work_us * (1 + REST_US / BURST_US) / 1e6,
        strength=None if one.unplanted else 1,
        outputs={},
        configuration=None,
        build_s=max(built, default=0.0),
    )


def _calibrate_s(known: Known) -> float:
    """One row for the first time: its kernels are compiled as they are, and so that they can be delayed."""
    once, more = CALIBRATED_ARMS
    arms = once + (more if known.strength is not None else 2)  # two loads, where none is delayed
    compiled = COMPILE_S * (2 if known.strength is not None else 1)
    return compiled + known.seconds(arms, len(CALIBRATED_ARMS)) + known.build_s


def _part(budget: Budget, name: str, batch: Batch, pinned: dict[str, float]) -> Part:
    pairs = [pair for mine in batch.values() for _, names in mine for pair in pairs_of(names)]
    planted = sum(is_planted(pair_of(*pair)) for pair in pairs)
    confirm_s = budget.confirming(batch)
    return Part(
        name=name,
        rows=len(batch),
        unpinned=sum(key not in pinned for key in batch),
        calibrate_s=0.0,
        screen_s=budget.cost(batch) - confirm_s,
        confirm_s=confirm_s,
        equal=len(pairs) - planted,
        planted=planted,
    )


def _durations(budget: Budget, batch: Batch, pinned: dict[str, float]) -> Iterator[Part]:
    free = dict.fromkeys(_by_workload(budget.known), 0.0)
    workers = replace(budget, worker_s=free, start_s=0.0)
    for name, low, high in classes():
        mine = {
            key: sequences
            for key, sequences in batch.items()
            if low < budget.known[key].midmean_us <= high
        }
        if mine:
            part = _part(workers, name, mine, pinned)
            calibrate_s = math.fsum(_calibrate_s(budget.known[key]) for key in mine)
            yield replace(part, calibrate_s=calibrate_s)


def _by_workload(keys: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        found[key.partition("/")[0]].append(key)
    return found


def _sum(name: str, parts: Iterable[Part]) -> Part:
    parts = tuple(parts)
    return Part(
        name=name,
        rows=sum(part.rows for part in parts),
        unpinned=sum(part.unpinned for part in parts),
        calibrate_s=math.fsum(part.calibrate_s for part in parts),
        screen_s=math.fsum(part.screen_s for part in parts),
        confirm_s=math.fsum(part.confirm_s for part in parts),
        equal=sum(part.equal for part in parts),
        planted=sum(part.planted for part in parts),
    )


def _table(head: str, parts: Iterable[Part]) -> Table:
    return Table(
        head=(
            *(head, "rows", "unpinned", "calibrate s", "screen s", "confirm s", "equal", "planted"),
            "decisions a second",
        ),
        lines=tuple(
            (
                *(part.name, str(part.rows), str(part.unpinned), f"{part.calibrate_s:.1f}"),
                *(f"{part.screen_s:.1f}", f"{part.confirm_s:.1f}"),
                *(str(part.equal), str(part.planted)),
                f"{(part.equal + part.planted) / part.seconds:.1f}",
            )
            for part in parts
        ),
    )
