"""Measures trials: calibrates rows, then gives virtual runs of the whole suite to workers, stage by stage."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tirbench.errors import MeasurementError
from tirbench.judge import Policy
from tirbench.launch import imports_of
from tirbench.model import CaseJob, Failed, Job, Machine, MeasureMore, Outcome, Plan, Timed
from tirbench.selftest import lanes
from tirbench.selftest.ask import Asked
from tirbench.selftest.budget import TOGETHER_S, Batch, Budget, Task
from tirbench.selftest.decide import Decision, Evidence, decide
from tirbench.selftest.lanes import STAGES, Lane, Lanes
from tirbench.selftest.learnt import Known, remembered
from tirbench.selftest.readings import (
    BASE,
    PLANTED,
    QUIETS,
    SEPARATOR,
    Record,
    Writer,
    pair_of,
    pairs_of,
    read_logs,
)
from tirbench.selftest.trees import NOT_ASKED, Trees, TrialRow

if TYPE_CHECKING:
    from tirbench.execute.events import Event

FORMAT: Final = 1

CALIBRATED: Final = 0.6
"""Share of the time after which no more workload is calibrated: its rows are tried in a later run."""

OVERTIME: Final = 0.1
"""Share of the time by which confirming may end late, as what was screened would otherwise be lost."""

LEAST_BESIDE_S: Final = 0.1
"""What a workload takes in a worker at least, beside its sequences."""

HOPELESS: Final = 3
"""Workloads one after the other that fail with all their rows: then it is not the rows."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """Runs the trials of an `Asked` until its time is over.

    Attributes:
        writer: where readings go.
        run: what this run is called in them.
        before: records of earlier runs: what they learnt of rows is used again.
        watch: is shown every event.
        say: takes sentences.
        hardware: what it runs on.
        clock: seconds, monotonic.
    """

    asked: Asked
    trees: Trees
    writer: Writer
    run: str
    before: Sequence[Record]
    watch: Callable[[Event], None]
    say: Callable[[str], None]
    hardware: str
    clock: Callable[[], float] = time.monotonic
    budget: Budget = field(init=False)
    _specs: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        self.budget = Budget(asked=self.asked, trees=self.trees)

    def measure(self) -> list[Decision]:
        """Everything that fits into the time; the decisions that came of it."""
        end_s = self.clock() + self.asked.seconds
        policy = Policy(workers=self.asked.workers)
        with ExitStack() as stack:
            opened = lanes.opened(self.asked, self.trees.folder / "logs", stack)
            shared = Lanes(
                lanes=opened,
                do=self._tasks,
                then=self._then,
                say=self.say,
                clock=self.clock,
                together_s=TOGETHER_S,
            )
            self._calibrate(shared, end_s)
            done = 0
            while batch := self.budget.plan((end_s - self.clock()) * len(shared.alive), done):
                self._batch(shared, batch, policy, end_s)
                done += len({number for mine in batch.values() for number, _ in mine})
        return self.decisions(policy)

    def _batch(self, shared: Lanes, batch: Batch, policy: Policy, end_s: float) -> None:
        """Some virtual runs: all of them screened, then what they ask for beyond that."""
        runs = sorted({number for mine in batch.values() for number, _ in mine})
        count = len(shared.alive)
        self.say(
            f"virtual runs {runs[0]} to {runs[-1]}: {sum(map(len, batch.values()))} sequences on "
            f"{policy.workers} placements, about {self.budget.cost(batch) / count:.0f} s"
        )
        shared.homes.clear()
        tasks = self.budget.tasks(batch, range(policy.workers))
        late_s = OVERTIME * self.asked.seconds
        shared.drain(tasks, end_s, late_s=late_s)
        # Each workload was asked by itself, as soon as it was screened; the whole suite pools its τ.
        for _ in range(STAGES):
            more = self._more(self.decisions(policy))
            if more:
                self.say(f"{len(more)} workers are asked for beyond that")
            if not shared.drain(more, end_s + late_s):
                break

    def decisions(self, policy: Policy, workload: str = "") -> list[Decision]:
        """What can be said of this run by now, or of one workload by itself."""
        mine = [
            one
            for one in self.writer.records
            if one.get("run") == self.run and one.get("row", workload).startswith(workload)
        ]
        return decide(Evidence.of(mine), policy)

    def units(self, machine: Machine) -> list[str]:
        """Short ids of the units that the work is given to."""
        from tirbench.execute.machine import unit_of

        return [str(unit_of(uuid)) for uuid in self.asked.gpus] or [str(machine.unit or "")]

    # --- What is learnt first

    def _calibrate(self, shared: Lanes, end_s: float) -> None:
        """Time every row once, verify it by its oracle, find the strength of its delay."""
        known, worker_s = remembered(self.before, self.trees.rows, self.hardware)
        for one in self.trees.rows:
            if one.key in known and known[one.key].wants_strength and not one.unplanted:
                del known[one.key]  # nobody has asked for it yet
        self.budget.known |= known
        self.budget.worker_s |= worker_s
        todo: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for one in self.trees.rows:
            if one.key not in known:
                # The planted side comes first of the two, as what it compiles the other one loads.
                sides = (BASE, PLANTED, QUIETS[0]) if not one.unplanted else self.trees.loads(2)
                row = {"sides": sides, "calibrate": True, "sequences": []}
                todo[one.row.workload][one.key] = row
        tasks = [
            Task(
                workload=workload,
                placements=(0,),
                rows=rows,
                fixed_s=self.budget.start_s + len(rows),
                start_s=self.budget.start_s,
            )
            for workload, rows in todo.items()
        ]
        shared.drain(tasks, end_s - (1 - CALIBRATED) * self.asked.seconds)
        shared.forget_pace()
        for one in self.trees.rows:
            if one.key in self.budget.known:
                self._keep_row(one)
        found = self.budget.known
        slower = sum(one.strength is not None for one in found.values())
        self.say(
            f"{len(found)} of {len(self.trees.rows)} rows are calibrated, {len(todo)} workloads of them "
            f"now; a slowdown is planted in {slower} rows"
        )
        for key, reason in sorted((key, one.unplanted) for key, one in found.items()):
            if reason:
                self.say(f"  none in {key}: {reason}")

    def _keep_row(self, one: TrialRow) -> None:
        known = self.budget.known[one.key]
        self.writer.add(
            {
                "type": "row",
                "run": self.run,
                "row": one.key,
                "source": one.source,
                "slower_than": one.slower_than,
                "worker_s": self.budget.of_worker(one.row.workload),
                **asdict(known),
                "unplanted": known.unplanted or one.unplanted.removeprefix(NOT_ASKED),
            }
        )

    # --- What decisions ask for

    def _more(self, decisions: Iterable[Decision]) -> list[Task]:
        """Sides of several pairs of one sequence are measured together."""
        wanted: dict[tuple[int, int], dict[str, dict[int, list[str]]]] = {}
        for one in decisions:
            if not isinstance(one.answer, MeasureMore) or one.key.row in self.budget.failed:
                continue
            place = (one.answer.placement, one.answer.workers)
            sides = wanted.setdefault(place, {}).setdefault(one.key.row, {})
            mine = sides.setdefault(one.key.sequence, [])
            mine += [side for side in one.key.pair.split(SEPARATOR) if side not in mine]
        tasks: list[Task] = []
        for (placement, workers), rows in sorted(wanted.items()):
            batch = {key: self.budget.together(key, of) for key, of in rows.items()}
            tasks += self.budget.tasks(batch, range(placement, placement + workers))
        return tasks

    # --- Measuring

    def _tasks(self, lane: Lane, tasks: Sequence[Task]) -> None:
        """A worker on each placement, for all of the tasks; no two of them are of one workload."""
        for placement in tasks[0].placements:
            failed = self.budget.failed
            rows = {
                task.workload: {key: row for key, row in task.rows.items() if key not in failed}
                for task in tasks
            }
            if any(rows.values()):
                self._worker(lane, placement, {name: mine for name, mine in rows.items() if mine})

    def _then(self, task: Task) -> list[Task]:
        """What the decisions of a workload ask for once it was screened; nothing where it was calibrated."""
        if not task.runs_s:
            return []
        return self._more(self.decisions(Policy(workers=self.asked.workers), f"{task.workload}/"))

    def _worker(
        self, lane: Lane, placement: int, rows: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ) -> None:
        """One fresh worker: all these rows of each workload on one placement seed."""
        from tirbench.execute.events import Reported, RowDone, StageStarted
        from tirbench.execute.jobs import execute_in

        jobs = [self._job(workload, placement, mine) for workload, mine in rows.items()]
        trials: dict[str, dict[tuple[int, tuple[str, ...]], dict[str, Any]]] = defaultdict(dict)
        done: dict[str, Outcome] = {}
        took = _Took(self.clock)
        with closing(execute_in(lane.surroundings(), jobs)) as events:
            for event in events:
                if isinstance(event, Reported):
                    data = dict(event.data)
                    key = f"{event.workload}/{data.get('case')}/{data.get('implementation')}"
                    spent = data.get("spent_s", data.get("seconds", 0.0)) + data.get("cold_s", 0.0)
                    took.see(event.workload, spent)
                    if data.get("event") == "calibrated":
                        self._learn(key, data)
                    elif data.get("event") == "trial":  # of a row that is run again the later
                        trials[key][data["sequence"], tuple(data["logs"])] = data
                elif isinstance(event, RowDone):
                    key = event.outcome.row.key
                    done[key] = event.outcome
                    took.see(event.outcome.row.workload)
                    if isinstance(event.outcome, Timed):  # now: what comes later may be interrupted
                        for (number, _), data in trials[key].items():
                            self._keep(key, number, data, lane.unit)
                elif isinstance(event, StageStarted):
                    took.see(event.workload)
                with self._lock:
                    self.watch(event)
        self._count(lane, done)
        for key, outcome in done.items():
            if not isinstance(outcome, Timed):
                self._fail(key, outcome)
        self.budget.start_s = took.start_s
        for workload, beside_s in took.beside_s().items():
            built = sum(
                (len(row["sides"]) - 1) * self.budget.known[key].build_s
                for key, row in rows[workload].items()
                if key in self.budget.known
            )
            self.budget.worker_s[workload] = max(LEAST_BESIDE_S, beside_s - built)

    def _count(self, lane: Lane, done: Mapping[str, Outcome]) -> None:
        """A device on which nothing can be timed any more must not be what every row fails on."""
        if len(self.asked.gpus) < 2:
            return
        of_workload: dict[str, dict[str, Outcome]] = defaultdict(dict)
        for key, outcome in done.items():  # in the order in which they were answered
            of_workload[outcome.row.workload][key] = outcome
        reason = ""
        for outcomes in of_workload.values():
            failed = [one for one in outcomes.values() if isinstance(one, Failed)]
            if len(failed) < len(outcomes):
                lane.failures.clear()
            else:
                lane.failures.append(list(outcomes))
                reason = failed[0].reason
        if len(lane.failures) < HOPELESS:
            return
        for key in (key for keys in lane.failures for key in keys):
            self.budget.failed.pop(key, None)
        raise MeasurementError(f"{HOPELESS} workloads had nothing timed: {reason}")

    def _fail(self, key: str, outcome: Outcome) -> None:
        said = getattr(outcome, "reason", "") or getattr(outcome, "untimed", "no answer")
        self.budget.failed[key] = said
        self.writer.add({"type": "failed", "run": self.run, "row": key, "reason": said})

    def _job(self, workload: str, placement: int, rows: Mapping[str, Mapping[str, Any]]) -> Job:
        """A worker's orders; which side is loaded first swaps with the seed."""
        by_key = {one.key: one for one in self.trees.rows}
        mine = [by_key[key] for key in rows]
        sides = list(dict.fromkeys(side for row in rows.values() for side in row["sides"]))
        if placement % 2:
            sides.reverse()
        cases: dict[str, list[TrialRow]] = defaultdict(list)
        for one in mine:
            cases[one.row.case].append(one)
        spec = {
            "schema": FORMAT,
            "placement": placement,
            "sides": {side: str(self.trees.harnesses[side][workload]) for side in sides},
            "trees": {side: str(self.trees.trees[side]) for side in sides},
            "project": str(self.trees.project),
            "twins": [side for side in sides if side != BASE],
            "rows": {
                case: {one.row.implementation: dict(rows[one.key]) for one in of}
                for case, of in cases.items()
            },
            "configurations": self._of_sides(sides, mine, lambda known: known.configuration),
            "outputs": self._of_sides(sides, mine, lambda known: known.outputs),
        }
        with self._lock:
            self._specs += 1
            path = self.trees.folder / f"trial{self._specs}.json"
        path.write_text(json.dumps(spec), encoding="utf-8")
        return Job(
            workload=workload,
            harness=str(path),
            plan=Plan(device=self.asked.device, timer=self.asked.timer, placements=1, rounds=2),
            cases=tuple(
                CaseJob(case=case, rows=tuple(one.row for one in of)) for case, of in cases.items()
            ),
            deadlines=self.trees.workloads[workload].deadlines,
            imports=imports_of(launch for one in mine for launch in one.launches),
        )

    def _of_sides(
        self, sides: Iterable[str], rows: Iterable[TrialRow], what: Callable[[Known], Any]
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """What is known of rows, the same for every side; by side, case and implementation."""
        found: dict[str, dict[str, Any]] = {}
        for one in rows:
            known = self.budget.known.get(one.key)
            if known is not None and (value := what(known)):
                found.setdefault(one.row.case, {})[one.row.implementation] = value
        return dict.fromkeys(sides, found)

    # --- What is kept

    def _learn(self, key: str, data: Mapping[str, Any]) -> None:
        """Keep what a calibrating worker says."""
        self.budget.known[key] = Known.of({**data, "midmean_us": data["midmean_us"]["base"]})
        told = ("strength", "expected", "offset", "seen", "unplanted")
        seen = {name: data.get(name) for name in told}
        self.writer.add({"type": "calibrated", "run": self.run, "row": key, **seen})

    def _keep(self, key: str, number: int, data: Mapping[str, Any], unit: str) -> None:
        """Read the pairs of a sequence and write them down."""
        pairs = {}
        for base, head in pairs_of(tuple(data["logs"])):
            reading = read_logs(data["placement"], data["logs"][base], data["logs"][head])
            pairs[pair_of(base, head)] = [
                float(f"{reading.log_ratio:.6g}"),
                float(f"{reading.quad_variance:.6g}"),
                reading.quads,
            ]
        self.writer.add(
            {
                "type": "reading",
                "run": self.run,
                "unit": unit,
                "row": key,
                "placement": data["placement"],
                "sequence": number,
                "pairs": pairs,
                "midmean_us": {side: float(f"{us:.6g}") for side, us in data["midmean_us"].items()},
                "launches": data["launches"],
                "seconds": data["seconds"],
            }
        )


class _Took:
    """How long a worker took to begin, and each of its workloads beside its sequences."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin now."""
        self._clock = clock
        self._begin_s = clock()
        self._first_s: float | None = None
        self._until_s: dict[str, float] = {}
        self._spent_s: dict[str, float] = defaultdict(float)

    def see(self, workload: str, spent_s: float = 0.0) -> None:
        """Something happened to a workload just now, perhaps the end of a sequence that took so long."""
        now = self._clock()
        if self._first_s is None:
            self._first_s = now
        self._until_s[workload] = now
        self._spent_s[workload] += spent_s

    @property
    def start_s(self) -> float:
        """Until the first event; all of it where there was none."""
        return (self._clock() if self._first_s is None else self._first_s) - self._begin_s

    def beside_s(self) -> dict[str, float]:
        """By workload, of those that anything happened to."""
        found, begin_s = {}, self._begin_s + self.start_s
        for workload, until_s in self._until_s.items():
            found[workload] = max(0.0, until_s - begin_s - self._spent_s[workload])
            begin_s = max(begin_s, until_s)
        return found
