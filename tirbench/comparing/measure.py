"""Workers of a comparison: what each is told, and what of it the next ones can use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench import codec
from tirbench.comparing.ask import Asked
from tirbench.comparing.pairing import Arm, Pair
from tirbench.comparing.sides import Sides
from tirbench.judge import read_worker
from tirbench.launch import imports_of
from tirbench.model import (
    BoundLaunch,
    CaseJob,
    CodeFacts,
    Failed,
    Job,
    MeasureMore,
    Outcome,
    PairQuad,
    PairReading,
    PairWorker,
    Plan,
    Timed,
)
from tirbench.store.files import scrubber

if TYPE_CHECKING:
    from tirbench.execute import Workers
    from tirbench.execute.events import Event

OPENER: Final = "tirbench.harness.pairs:open_pairs"
FORMAT: Final = 1

Nested = dict[str, dict[str, dict[str, Any]]]
"""By side, case and implementation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one worker measured of a row, and what it learnt of both sides."""

    reading: PairReading
    code: tuple[CodeFacts | None, CodeFacts | None]
    settings: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


@dataclass(slots=True, kw_only=True)
class Bench:
    """Runs workers for the pairs of a comparison, one placement seed a worker.

    Attributes:
        seen: what each worker says, by row, in order.
        failed: rows that could not be measured, with what became of them.
        apart: rows whose sides cannot be in one process: workers of one side each take turns.
    """

    sides: Sides
    asked: Asked
    workers: Workers
    watch: Callable[[Event], None]
    say: Callable[[str], None]
    seen: dict[str, list[Seen]] = field(default_factory=dict)
    failed: dict[str, Outcome] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)
    _configurations: dict[str, Nested] = field(default_factory=dict)
    _outputs: dict[str, Nested] = field(default_factory=dict)
    _harnesses: dict[tuple[str, str], Path] = field(default_factory=dict)
    _number: int = 0

    @property
    def logs(self) -> Path:
        """Where workers write."""
        return self.sides.folder / "logs"

    def measure(
        self, pairs: Mapping[str, Pair], wanted: Sequence[MeasureMore]
    ) -> dict[str, list[PairReading]]:
        """Fresh workers for every row, each on the next placement seed; what they read, by row.

        Placement by placement over all workloads, so that what one worker learns the next one has. On one
        placement they share a worker: what a process does to a time it does to both sides of it.
        """
        found: dict[str, list[PairReading]] = {}
        for placement, rows in _placements(wanted):
            alive = [pairs[key] for key in rows if key not in self.failed]
            together = [pair for pair in alive if pair.key not in self.apart]
            apart = [pair for pair in alive if pair.key in self.apart]
            both = [("base", "head")]
            for key, data in (
                *self._run(placement, together, both),
                *self._run(placement, apart, _turns(placement)),
            ):
                try:
                    seen = _seen(data)
                except ValueError as error:
                    row = pairs[key].row
                    self.failed[key] = Failed(row=row, stage="time", reason=str(error))
                    continue
                self.seen.setdefault(key, []).append(seen)
                found.setdefault(key, []).append(seen.reading)
        return found

    def _run(
        self, placement: int, pairs: Sequence[Pair], turns: Sequence[tuple[str, ...]]
    ) -> list[tuple[str, dict[str, Any]]]:
        """One worker for each turn; what all of them say of a row, together."""
        said: dict[str, list[tuple[tuple[str, ...], dict[str, Any]]]] = {}
        for turn in turns:
            alive = [pair for pair in pairs if pair.key not in self.failed]
            for key, data in self._worker(placement, alive, turn) if alive else ():
                said.setdefault(key, []).append((turn, data))
        whole = {key: of_row for key, of_row in said.items() if key not in self.failed}
        joined = [
            (key, of_row[0][1] if len(turns) == 1 else _joined(of_row))
            for key, of_row in whole.items()
        ]
        for key, data in joined:
            self._write(key, data)
        return joined

    def _worker(
        self, placement: int, pairs: Sequence[Pair], turn: tuple[str, ...]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """One worker: all of these rows on one placement seed, workload after workload, both sides or one."""
        from tirbench.execute import execute
        from tirbench.execute.events import Reported, RowDone

        of: dict[str, list[Pair]] = {}
        for pair in pairs:
            of.setdefault(pair.row.workload, []).append(pair)
        jobs = [self._job(workload, placement, mine, turn) for workload, mine in of.items()]
        last: dict[str, dict[str, Any]] = {}
        done: dict[str, Outcome] = {}
        events = execute(
            jobs,
            log_dir=self.logs,
            workers=self.workers,
            on_wait=self.say,
            opener=OPENER,
            shared=True,
        )
        with closing(events):
            for event in events:
                if isinstance(event, Reported) and event.data.get("event") == "pair":
                    data = dict(event.data)
                    last[f"{event.workload}/{data['case']}/{data['implementation']}"] = data
                elif isinstance(event, RowDone):
                    done[event.outcome.row.key] = event.outcome
                self.watch(event)
        for pair in pairs:
            outcome = done[pair.key]
            if isinstance(outcome, Timed) and pair.key in last:
                self._keep(last[pair.key], _arms(pair, turn), pair.place)
                yield pair.key, last[pair.key]
            else:
                self.failed[pair.key] = self._scrubbed(outcome)

    def _scrubbed(self, outcome: Outcome) -> Outcome:
        """The outcome without this machine in its texts; files are named from the folder of their side."""
        scrub = scrubber(self.sides.project)
        below = f"./{self.sides.folder.relative_to(self.sides.project).as_posix()}/"
        texts = {
            name: scrub(text).replace(below, "")
            for name in ("reason", "detail", "untimed")
            if isinstance(text := getattr(outcome, name, None), str)
        }
        changed: Outcome = replace(outcome, **texts)  # type: ignore[arg-type]
        return changed

    # --- What a worker is told

    def _job(
        self, workload: str, placement: int, pairs: Sequence[Pair], turn: tuple[str, ...]
    ) -> Job:
        self._number += 1
        path = self.sides.head.folder / ".tirbench" / "jobs" / f"{self._number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(self._spec(workload, placement, pairs, turn)), encoding="utf-8")
        cases: dict[str, list[Pair]] = {}
        for pair in pairs:
            cases.setdefault(pair.row.case, []).append(pair)
        side = self.sides.head if workload in self.sides.head.workloads else self.sides.base
        return Job(
            workload=workload,
            harness=str(path),
            plan=Plan(device=self.asked.device, timer=self.asked.timer, placements=1, rounds=2),
            cases=tuple(
                CaseJob(case=case, rows=tuple(pair.row for pair in mine))
                for case, mine in cases.items()
            ),
            deadlines=side.workloads[workload].deadlines,
            imports=self._imports(pairs, turn),
        )

    def _imports(self, pairs: Sequence[Pair], turn: tuple[str, ...]) -> tuple[str, ...]:
        """What the arms of these rows import."""
        launches: list[BoundLaunch] = []
        for pair in pairs:
            for side, name in _arms(pair, turn):
                tree = self.sides.head if side == "head" else self.sides.base
                case = tree.case(*pair.place)
                ours = () if case is None else case.implementations
                launches += (step for one in ours if one.name == name for step in one.steps)
        return imports_of(launches)

    def _spec(
        self, workload: str, placement: int, pairs: Sequence[Pair], turn: tuple[str, ...]
    ) -> dict[str, Any]:
        """As `harness.pairs.PairSpec` reads it; which side is loaded first swaps with the seed."""
        needed = {arm[0] for pair in pairs for arm in _arms(pair, turn)}
        order = [name for name in ("base", "head", "twin") if name in needed]
        if placement % 2:
            order.reverse()
        rows: dict[str, dict[str, list[Arm]]] = {}
        for pair in pairs:
            arms = _arms(pair, turn)
            rows.setdefault(pair.row.case, {})[pair.row.implementation] = arms
        trees = self.sides.all()
        return {
            "schema": FORMAT,
            "placement": placement,
            "sides": {name: str(self._harness(name, workload)) for name in order},
            "trees": {name: str(trees[name].folder) for name in order},
            "project": str(self.sides.project),
            "rows": rows,
            "configurations": self._configurations.get(workload, {}),
            "outputs": self._outputs.get(workload, {}),
        }

    def _harness(self, side: str, workload: str) -> Path:
        key = (side, workload)
        if key not in self._harnesses:
            self._harnesses[key] = self.sides.all()[side].harness(workload)
        return self._harnesses[key]

    # --- What is kept of it

    def _keep(self, data: dict[str, Any], arms: Sequence[Arm], place: tuple[str, str]) -> None:
        """Remember choices and checksums for the workers to come."""
        workload, case = place
        for (side, one), code, outputs in zip(arms, data["code"], data["outputs"], strict=True):
            for store, value in (
                (self._configurations, (code or {}).get("configuration")),
                (self._outputs, outputs),
            ):
                if value:
                    of_side = store.setdefault(workload, {}).setdefault(side, {})
                    of_side.setdefault(case, {}).setdefault(one, value)

    def _write(self, key: str, data: dict[str, Any]) -> None:
        """Keep the raw times."""
        line = {"row": key, **{name: data[name] for name in ("placement", "timer", "quads")}}
        with (self.sides.folder / "pairs.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _arms(pair: Pair, turn: tuple[str, ...]) -> list[Arm]:
    """The arms that a worker measures of a row: both, or that of one side."""
    return [{"base": pair.base_arm, "head": pair.head_arm}[side] for side in turn]


def _turns(placement: int) -> list[tuple[str, ...]]:
    """Workers that hold one side each, in balanced order: A B B A, or B A A B on every second seed."""
    outer, inner = ("base", "head") if placement % 2 == 0 else ("head", "base")
    return [(outer,), (inner,), (inner,), (outer,)]


def _joined(said: Sequence[tuple[tuple[str, ...], dict[str, Any]]]) -> dict[str, Any]:
    """What four workers of one side each say, as if one had held both."""
    of = {side: [data for turn, data in said if turn == (side,)] for side in ("base", "head")}
    blocks = {side: [data["blocks"][0] for data in found] for side, found in of.items()}
    count = min((len(one) for found in blocks.values() for one in found), default=0)
    complete = all(len(found) == 2 for found in of.values())
    quads = [
        tuple([one[index] for one in blocks[side]] for side in ("base", "head"))
        for index in range(count if complete else 0)
    ]
    first = said[0][1]
    firsts = [found[0] if found else first for found in of.values()]
    return {
        **first,
        "quads": quads,
        "code": [data["code"][0] for data in firsts],
        "settings": [data["settings"][0] for data in firsts],
    }


def _placements(wanted: Sequence[MeasureMore]) -> Iterator[tuple[int, list[str]]]:
    """Placement seed and rows of each worker, those of a workload beside each other."""
    rows: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for more in wanted:
        for index in range(more.workers):
            place = (index, more.placement + index)
            rows.setdefault(place, []).append((more.row.workload, more.row.key))
    for (_, placement), found in sorted(rows.items()):
        yield placement, [key for _, key in sorted(found, key=lambda one: one[0])]


def _seen(data: dict[str, Any]) -> Seen:
    quads = tuple(
        PairQuad(base=(tuple(base[0]), tuple(base[1])), head=(tuple(head[0]), tuple(head[1])))
        for base, head in data["quads"]
    )
    base, head = (None if code is None else codec.load(CodeFacts, code) for code in data["code"])
    first, second = (tuple(sorted(found.items())) for found in data["settings"])
    return Seen(
        reading=read_worker(PairWorker(placement=data["placement"], quads=quads)),
        code=(base, head),
        settings=(first, second),
    )
