"""How much fits into the time, and in what portions it is given to workers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from tirbench.selftest.ask import Asked
from tirbench.selftest.learnt import START_S, WORKER_S, Known
from tirbench.selftest.readings import BASE, DELAYED, FEW_DELAYED, PLANTED, pairs_of
from tirbench.selftest.trees import Trees

PLANNED: Final = 0.95
"""Share of the time that is planned for."""

FIRST: Final = 3
"""Virtual runs that are finished on all rows before more are begun: a true size takes more than one."""

TOGETHER_S: Final = 200.0
"""Workloads are tried in the same workers as long as these take no longer: what time ends in the middle of
is lost."""

AT_ONCE: Final = 0.25
"""Share of the time left that tasks may take which are done together."""

EXTENDED: Final = {"cuda": 0.1, "cpu": 1.0}
"""What equal code asks for beyond screening, as a share of it: on a CPU nearly every row is too noisy."""

BASE_SEED: Final = 0
"""Placement seeds from here on screen; what is asked for beyond that has later ones."""

Sequences: TypeAlias = "list[tuple[int, tuple[str, ...]]]"
"""Number of the virtual run, and the sides that are measured together."""

Batch: TypeAlias = "dict[str, Sequences]"
"""Sequences by row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One workload on consecutive placements, one fresh worker each.

    Attributes:
        rows: what each row's trial says, as `harness.trials.Trial` has it.
        fixed_s: about how long it takes beside its sequences.
        start_s: how much of that is the beginning of its workers.
        runs_s: about how long the sequences of each virtual run take.
        then_s: about how long what its decisions ask for takes beyond that.
        pairs: that are measured in it.
    """

    workload: str
    placements: tuple[int, ...]
    rows: Mapping[str, Mapping[str, Any]]
    fixed_s: float
    runs_s: Mapping[int, float] = field(default_factory=dict)
    then_s: float = 0.0
    pairs: int = 0
    start_s: float = 0.0

    def begun(self) -> Task:
        """The same in workers that are there already."""
        return replace(self, fixed_s=self.fixed_s - self.start_s, start_s=0.0)

    @property
    def expected_s(self) -> float:
        """About how long it takes."""
        return self.fixed_s + math.fsum(self.runs_s.values())

    @property
    def pairs_per_s(self) -> float:
        """What it brings, and what it costs with all that it asks for."""
        return self.pairs / (self.expected_s + self.then_s)

    def within(self, seconds: float) -> Task | None:
        """As many of its first virtual runs as fit; `None` if none does."""
        if self.expected_s <= seconds:
            return self
        kept: dict[int, float] = {}
        for number, run_s in sorted(self.runs_s.items()):
            if self.fixed_s + math.fsum(kept.values()) + run_s > seconds:
                break
            kept[number] = run_s
        if not kept:
            return None
        rows = {
            key: {**row, "sequences": mine}
            for key, row in self.rows.items()
            if (mine := [one for one in row["sequences"] if one[0] in kept])
        }
        share = len(kept) / len(self.runs_s)
        return replace(self, rows=rows, runs_s=kept, then_s=share * self.then_s)


@dataclass(slots=True, kw_only=True)
class Budget:
    """What rows take, and what can be had of them.

    Attributes:
        known: by row.
        failed: rows that cannot be tried, with the reason.
        worker_s: by workload, seconds that a worker takes beside beginning, building and measuring.
        start_s: seconds until a worker says anything.
    """

    asked: Asked
    trees: Trees
    known: dict[str, Known] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    worker_s: dict[str, float] = field(default_factory=dict)
    start_s: float = START_S

    def plan(self, seconds: float, done: int) -> Batch:
        """Sequences of every row: as many more virtual runs as fit, the first in any case.

        Where there is time for many, a few come before all others: what is stopped later than that has
        something of every row.

        Args:
            seconds: of one device.
            done: virtual runs that were made already.
        """
        best: Batch = {} if done else self.sequences(range(1))
        for count in range(1, self.asked.sequences - done + 1):
            found = self.sequences(range(done, done + count))
            if self.cost(found) > PLANNED * seconds:
                break
            best = found
            if not done and count >= 2 * FIRST:
                return self.sequences(range(FIRST))
        return best

    def sequences(self, numbers: Iterable[int]) -> Batch:
        """The sequences of these virtual runs."""
        numbers = tuple(numbers)
        return {
            one.key: [sides for number in numbers for sides in self._of_run(known, number)]
            for one in self.trees.rows
            if one.key not in self.failed and (known := self.known.get(one.key)) is not None
        }

    def _of_run(self, known: Known, number: int) -> Sequences:
        wanted = known.loads(self.asked.loads)
        loads = self.trees.loads(wanted)
        if known.strength is None or number >= self.asked.planted:
            return [(number, loads[: known.paying(wanted)])]
        most = known.paying(wanted + len(DELAYED))
        for slower in reversed(FEW_DELAYED[1:]):
            if most >= len(slower) + 2:
                return [(number, (*loads[: most - len(slower)], *slower))]
        slower = FEW_DELAYED[min(most, len(DELAYED)) - 2]
        return [(number, loads[:2]), (number, slower)]  # all do not fit into one burst

    def _most(self, known: Known) -> int:
        """Sides of one sequence."""
        return known.arms(known.loads(self.asked.loads) + len(DELAYED))

    def together(self, key: str, of: Mapping[int, Sequence[str]]) -> Sequences:
        """Sequences with so many of these sides as fit; base comes first, the planted sides last.

        Where not all fit, loads as they are and those that can be delayed: no pair is of either kind.

        Args:
            key: of the row.
            of: sides by virtual run.
        """
        order = [*self.trees.loads(self.asked.loads), *DELAYED]
        most = self._most(self.known[key])
        found: Sequences = []
        for number, sides in sorted(of.items()):
            ordered = tuple(sorted(sides, key=order.index))
            if len(ordered) <= most:
                found.append((number, ordered))
                continue
            of_pairs = (
                tuple(side for side in ordered if side not in DELAYED),
                tuple(side for side in ordered if side in DELAYED),
            )
            for part in of_pairs:
                if len(part) <= most:
                    found += [(number, part)] if len(part) > 1 else []
                else:
                    found += [(number, pair) for pair in pairs_of(part)]
        return found

    # --- Seconds

    def cost(self, batch: Batch) -> float:
        """Seconds of one device that a batch takes."""
        return self._screening(batch) + self.confirming(batch)

    def _screening(self, batch: Batch) -> float:
        total = self._beside(batch)
        for key, mine in batch.items():
            known = self.known[key]
            sides = len({side for _, names in mine for side in names})
            arms = sum(len(names) for _, names in mine)
            one_s = known.seconds(arms, len(mine)) + (sides - 1) * known.build_s
            total += self.asked.workers * one_s
        return total + self._starts(total)

    def confirming(self, batch: Batch) -> float:
        """Seconds of one device that fresh workers take: every planted slowdown asks for them."""
        planted = {
            key: count
            for key, mine in batch.items()
            if (count := sum(PLANTED in names for _, names in mine))
        }
        delayed = {
            key: sum(side in DELAYED for _, names in batch[key] for side in names)
            for key in planted
        }
        total = self._beside(planted)
        for key, count in planted.items():
            known = self.known[key]
            arms = delayed[key] // count
            one_s = known.seconds(delayed[key], count) + (arms - 1) * known.build_s
            total += self.asked.workers * one_s
        extended = EXTENDED[self.asked.device] * self._screening(batch)
        return extended + total + self._starts(total)

    def _beside(self, keys: Iterable[str]) -> float:
        workloads = {key.partition("/")[0] for key in keys}
        return self.asked.workers * sum(map(self.of_worker, workloads))

    def _starts(self, work_s: float) -> float:
        """How long workers take to begin that do so much: what is done together shares them."""
        together_s = min(TOGETHER_S, AT_ONCE * self.asked.seconds)
        bundles = math.ceil(work_s / together_s) if together_s > 0 else 1
        return self.asked.workers * self.start_s * bundles

    def of_worker(self, workload: str) -> float:
        """Seconds that a worker of it takes beside beginning, building and measuring."""
        return self.worker_s.get(workload, WORKER_S)

    # --- Portions

    def tasks(self, batch: Batch, placements: Iterable[int]) -> list[Task]:
        """One task for each workload; those first that bring the most decisions a second."""
        seeds = tuple(placements)
        by_workload: dict[str, Batch] = defaultdict(dict)
        for key, mine in batch.items():
            by_workload[key.partition("/")[0]][key] = mine
        tasks = [self._task(workload, mine, seeds) for workload, mine in by_workload.items()]
        return sorted(tasks, key=lambda task: -task.pairs_per_s)

    def _task(self, workload: str, batch: Batch, seeds: tuple[int, ...]) -> Task:
        rows: dict[str, dict[str, Any]] = {}
        each_s = self.start_s + self.of_worker(workload)
        runs_s: dict[int, float] = defaultdict(float)
        for key, mine in batch.items():
            known = self.known[key]
            sides = dict.fromkeys(side for _, names in mine for side in names)
            rows[key] = {
                "sides": (BASE, *(side for side in sides if side != BASE)),
                "sequences": mine,
                "strength": known.strength or 0,
            }
            each_s += len(sides) * known.build_s
            for number, names in mine:
                runs_s[number] += len(seeds) * known.seconds(len(names))
        return Task(
            workload=workload,
            placements=seeds,
            rows=rows,
            fixed_s=len(seeds) * each_s,
            runs_s=dict(runs_s),
            start_s=len(seeds) * self.start_s,
            then_s=self.confirming(batch) if BASE_SEED in seeds else 0.0,
            pairs=sum(len(pairs_of(names)) for mine in batch.values() for _, names in mine),
        )
