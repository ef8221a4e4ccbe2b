"""Both sides of a comparison in one worker: the program that `ab` runs instead of a harness.

Each side is a harness of its own revision with its own kernel files. For one placement seed their cases are
opened on one arena, so that every tensor of one side lies where the other's does and holds the same; both are
built and verified by their own oracle; then their launches are timed in balanced order. What was measured is
reported as the quads that `judge` reads, and the row is answered with the time of its head.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tirbench import codec
from tirbench.errors import MeasurementError, UsageError
from tirbench.harness import settings, timed
from tirbench.harness.case import Shared
from tirbench.harness.device import Device
from tirbench.harness.driver import CaseRun
from tirbench.harness.program import Program, open_program
from tirbench.harness.quads import blocks_of, quads_of, rounds_for
from tirbench.harness.requires import unmet
from tirbench.harness.verify import Accepted, Expected
from tirbench.launch import roots, triton
from tirbench.model import CaseJob, Failed, Outcome, Plan, Row, Skipped, Stage, Timed, Verification
from tirbench.tensors import Arena

if TYPE_CHECKING:
    import torch

    from tirbench.harness.case import Case, Launch
    from tirbench.model import L2Policy

Report: TypeAlias = "Callable[[dict[str, Any]], None]"
Arm: TypeAlias = "tuple[str, str]"
"""A side and an implementation of it: what is timed."""

FORMAT: Final = 1
TWIN: Final = "twin"
"""The side that loads the files of base once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpec:
    """What one worker compares, as the file says that is given in the place of a harness.

    Attributes:
        placement: the placement seed.
        sides: harness of each side, in the order in which they are loaded.
        trees: folder of each side, and of the project whose working tree packages come from.
        rows: by case and name of the row, the arms of base and head. A row with one arm measures that
            arm alone: its sides are in workers of their own.
        configurations: choices of tuned kernels, by side, case and implementation.
        outputs: checksums of outputs that were found right, by side, case, implementation and tensor.
    """

    placement: int
    sides: Mapping[str, str]
    trees: Mapping[str, str]
    project: str
    rows: Mapping[str, Mapping[str, tuple[Arm, ...]]]
    configurations: Mapping[str, Mapping[str, Mapping[str, str]]]
    outputs: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]

    @classmethod
    def read(cls, path: str | Path) -> PairSpec:
        """Read the file that `comparing` writes."""
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data.pop("schema") != FORMAT:
            raise UsageError(f"{Path(path).name} is not of this version")
        data["rows"] = {
            case: {name: tuple((side, one) for side, one in arms) for name, arms in rows.items()}
            for case, rows in data["rows"].items()
        }
        return cls(**data)


class PairProgram:
    """The sides of one workload, opened in the order of the file."""

    def __init__(self, spec: PairSpec) -> None:
        """Isolate the trees from each other, then import the harness of each."""
        self.spec = spec
        for tree in spec.trees.values():
            roots.isolate(Path(tree), Path(spec.project))
        self.programs: dict[str, Program] = {}
        for side, path in spec.sides.items():
            program = open_program(path)
            if not isinstance(program, Program):
                raise UsageError(f"{side}: {Path(path).name} is no harness")
            self.programs[side] = program

    def run(self, job: CaseJob, plan: Plan, report: Report) -> None:
        """Compare the rows of one case; every one of them is answered exactly once."""
        PairCase(self, job, plan, report).run()


def open_pairs(path: str | Path) -> PairProgram:
    """Open what `comparing` asks one worker to compare.

    Raises:
        UsageError: the file is of another version, or a side is no harness.
        Exception: what a side raises when it is imported.
    """
    return PairProgram(PairSpec.read(path))


class _Later(Mapping[str, "torch.Tensor"]):
    """What the oracle says, asked only where an output is not the one that was found right before."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._want: Mapping[str, torch.Tensor] | None = None

    def __getitem__(self, name: str) -> torch.Tensor:
        if self._want is None:
            # The oracle reads initial contents, and never what a kernel has written by now.
            self._want = Expected.of(self._case).want
        return self._want[name]

    def __contains__(self, name: object) -> bool:
        return name in self._case.checked

    def __iter__(self) -> Iterator[str]:
        return iter(self._case.checked)

    def __len__(self) -> int:
        return len(self._case.checked)


@dataclass(slots=True, kw_only=True)
class _Side:
    """One side of a case: its tensors and builders, and what became of its implementations."""

    name: str
    run: CaseRun
    case: Case
    expected: Expected
    launches: dict[str, Launch]


class PairCase:
    """Runs one case on both sides and reports what was measured of every row."""

    def __init__(self, program: PairProgram, job: CaseJob, plan: Plan, report: Report) -> None:
        """Prepare to run; nothing is allocated yet."""
        self.program = program
        self.spec = program.spec
        self.job = job
        self.plan = plan
        self.report = report
        self.pending = {row.implementation: row for row in job.rows}
        self.arms = {name: self.spec.rows[job.case][name] for name in self.pending}
        self.failed: dict[Arm, Outcome] = {}
        self.settings: dict[str, dict[str, str]] = {}

    def run(self) -> None:
        """Run the case; returns when every row is answered."""
        self.stage("allocate")
        with ExitStack() as contexts:
            sides = self._open(contexts)
            if sides is not None:
                self._build(sides)
                self._answer_failed()
                self._time(sides)
        if self.pending:
            raise AssertionError(f"{self.job.case} ended with {', '.join(self.pending)} unanswered")
        self.report({"event": "case_done", "case": self.job.case})

    # --- Opening and building

    def _open(self, contexts: ExitStack) -> dict[str, _Side] | None:
        """Every side's case on one arena; `None` where one cannot be opened, and all rows have failed."""
        if (dynamo := sys.modules.get("torch._dynamo")) is not None:
            dynamo.reset()
        sides: dict[str, _Side] = {}
        needed = {side for arms in self.arms.values() for side, _ in arms}
        side = ""
        try:
            device = Device(self.plan.device)
            arena = Arena(device.torch)
            for side in (name for name in self.program.programs if name in needed):
                sides[side] = self._opened(side, device, arena, sides.get("base"))
                contexts.enter_context(sides[side].case.contexts)
        except Exception as error:  # noqa: BLE001 - tensors are drawn by functions of the workload
            reason = f"{side}: {type(error).__name__}: {error}".removeprefix(": ")
            for name in list(self.pending):
                row = self.pending[name]
                self.answer(Failed(row=row, stage="allocate", reason=reason.splitlines()[0]))
            return None
        return sides

    def _opened(self, side: str, device: Device, arena: Arena, base: _Side | None) -> _Side:
        program, name = self.program.programs[side], self.job.case
        chosen = self.spec.configurations.get(side, {}).get(name, {})
        shared = Shared(arena, chosen=dict(chosen))
        case = program.open(name, device, self.spec.placement, shared)
        mine = sorted({one for arms in self.arms.values() for where, one in arms if where == side})
        rows = tuple(replace(self._row_of((side, one)), implementation=one) for one in mine)
        job = replace(self.job, rows=rows)
        return _Side(
            name=side,
            run=CaseRun(program, job, self.plan, self._listener(side)),
            case=case,
            expected=self._expected(side, case, base),
            launches={},
        )

    def _expected(self, side: str, case: Case, base: _Side | None) -> Expected:
        """What is right: by the oracle in the first worker, by checksums of it in the later ones.

        The twin of base has base's oracle, which need not be asked twice.
        """
        known = self.spec.outputs.get(side, {}).get(self.job.case)
        if not known:
            if side == TWIN and base is not None:
                return Expected(base.expected.want, case.unchecked_reason)
            return Expected.of(case)
        method = Verification(method="digest", worst=None)
        accepted = {one: Accepted(dict(digests), method) for one, digests in known.items()}
        return Expected(_Later(case), case.unchecked_reason, accepted=accepted)

    def _listener(self, side: str) -> Report:
        """Pass the stages of a side on under the name of a row, and keep its bad answers."""

        def listen(event: dict[str, Any]) -> None:
            if event["event"] == "stage":
                one = event["implementation"]
                row = None if one is None else self._row_of((side, one)).implementation
                self.stage(event["stage"], row)
            elif event["event"] == "outcome":
                outcome: Outcome = codec.load(Outcome, event["outcome"])
                self.failed[side, outcome.row.implementation] = outcome

        return listen

    def _row_of(self, arm: Arm) -> Row:
        """A row that an arm belongs to, one without an answer first."""
        names = [name for name, arms in self.arms.items() if arm in arms]
        open_ = [name for name in names if name in self.pending]
        name = (open_ or names)[0]
        return next(row for row in self.job.rows if row.implementation == name)

    def _build(self, sides: Mapping[str, _Side]) -> None:
        """Build and verify every arm; what a side sets for the whole process is held against the other's."""
        before = settings.current()
        operators: dict[str, int] = {}
        for side in sides.values():
            settings.restore(before)
            for one in sorted(side.run.pending):
                self._build_one(side, one)
            self.settings[side.name] = settings.current()
            now = settings.operators()
            self._refuse_overwritten(
                side, [name for name, was in operators.items() if now[name] != was]
            )
            operators = now
        self._share_choices(sides)

    def _refuse_overwritten(self, side: _Side, names: list[str]) -> None:
        """An operator that two sides register is the last one's: the first would run the other's code."""
        if names:
            error = UsageError(
                f"registers {names[0]}, as a side before it did, for the whole process"
            )
            for one in list(side.run.pending):
                side.run.fail(one, "load", error)

    def _build_one(self, side: _Side, one: str) -> None:
        declared = side.case.implementations.get(one)
        if declared is None:
            missing = UsageError(f"the harness declares no implementation {one!r}")
            side.run.fail(one, "load", missing)
            return
        if (reason := unmet(declared.requires, side.case.device)) is not None:
            side.run.answer(Skipped(row=side.run.pending[one], reason=reason))
            return
        launch = side.run.build(side.case, declared)
        if launch is not None and side.run.verify(side.case, declared, launch, side.expected):
            side.launches[one] = launch

    def _share_choices(self, sides: Mapping[str, _Side]) -> None:
        """Have both sides of one space of configurations run the same choice.

        Tuners choose by times, so two of them may settle on different configurations of equal code. A
        space that differs is part of what is compared and keeps its own choice.
        """
        for base, head in {arms for arms in self.arms.values() if len(arms) == 2}:
            if base[0] == head[0] or base[1] != head[1]:
                continue
            first, second = sides[base[0]], sides[head[0]]
            if base[1] not in first.launches or head[1] not in second.launches:
                continue
            kernels = [side.case.implementations[base[1]].tuned for side in (first, second)]
            spaces = [[triton.space(kernel) for kernel in tuned] for tuned in kernels]
            chosen = first.run.facts.get(base[1])
            other = second.run.facts.get(head[1])
            if not kernels[0] or spaces[0] != spaces[1] or chosen is None or other is None:
                continue
            if chosen.configuration == other.configuration or chosen.configuration is None:
                continue
            shared = second.case.shared
            shared.chosen = {**shared.chosen, head[1]: chosen.configuration}
            shared.tuned = {key: k for key, k in shared.tuned.items() if key[0] != head[1]}
            second.case.implementations[head[1]].tuned.clear()
            second.launches.pop(head[1])
            self._build_one(second, head[1])

    def _answer_failed(self) -> None:
        """Answer the rows of arms that could not be built or were wrong."""
        for name, arms in self.arms.items():
            for arm in arms:
                if name in self.pending and arm in self.failed:
                    outcome = self.failed[arm]
                    said = getattr(outcome, "reason", "") or "was not run"
                    reason = _reason(outcome, f"{arm[0]}: {said}")
                    self.answer(replace(outcome, row=self.pending[name], **reason))

    # --- Timing

    def _time(self, sides: Mapping[str, _Side]) -> None:
        """Time the rows, those that share an arm of base together."""
        groups: dict[Arm, list[str]] = {}
        for name in list(self.pending):
            groups.setdefault(self.arms[name][0], []).append(name)
        for names in groups.values():
            self._time_group(sides, names)

    def _time_group(self, sides: Mapping[str, _Side], names: list[str]) -> None:
        arms = list(dict.fromkeys(arm for name in names for arm in self.arms[name]))
        self.stage("time", names[0] if len(names) == 1 else None)
        try:
            result = self._bench(sides, arms)
        except Exception as error:  # noqa: BLE001 - kernels raise what they like
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            for name in names:
                self.answer(Failed(row=self.pending[name], stage="time", reason=message))
            return
        for side, one in arms:
            where = sides[side]
            where.run.verify(
                where.case,
                where.case.implementations[one],
                where.launches[one],
                where.expected,
                "reverify",
            )
        self._answer_failed()
        for name in names:
            if name in self.pending:
                self._answer_timed(sides, name, result)

    def _bench(self, sides: Mapping[str, _Side], arms: list[Arm]) -> dict[str, Any]:
        from tirbench.timing import bench

        program = self.program.programs[arms[0][0]]
        timing = program.timing
        choice = timed.choose(self.plan, timing)
        if choice.refused is not None:
            raise MeasurementError(choice.refused)
        budgets = {
            name: value
            for name in ("warmup", "repeat", "cudagraph_rep")
            if (value := getattr(timing, name)) is not None
        }
        prepare = {
            _name(arm): memory.restore
            for arm in arms
            if (memory := sides[arm[0]].case.memory).restored
        }
        l2: L2Policy = "warm" if self.plan.device == "cpu" else timing.l2
        result: dict[str, Any] = bench(
            {_name(arm): sides[arm[0]].launches[arm[1]] for arm in arms},
            timer=choice.name,
            prepare=prepare or None,
            order="interleaved" if timing.regime == "burst" else "blocked",
            calls=None if budgets else "auto",
            regime=timing.regime,
            l2=l2,
            cooldown_s=timing.cooldown_s or 0.0,
            rounds=rounds_for(timing.regime, timing.rounds or self.plan.rounds),
            **budgets,
        )
        return result

    def _answer_timed(self, sides: Mapping[str, _Side], name: str, result: dict[str, Any]) -> None:
        """Report the quads of a row, then answer it with the time of its head."""
        arms = self.arms[name]
        row = self.pending[name]
        timer = result["timer"]
        head = _name(arms[-1])
        samples = timed.Samples([result["samples"][head]], [result["impls"][head]])
        try:
            blocks = [blocks_of(result, _name(arm), [_name(one) for one in arms]) for arm in arms]
            estimate = timed.estimated(samples, timer)
        except ValueError as error:
            self.answer(Failed(row=row, stage="time", reason=f"ValueError: {error}"))
            return
        where = {side: sides[side] for side, _ in arms}
        facts = {side: where[side].run.facts.get(one) for side, one in arms}
        self.report(
            {
                "event": "pair",
                "case": self.job.case,
                "implementation": name,
                "placement": self.spec.placement,
                "timer": timer,
                "blocks": blocks,
                "quads": quads_of(*blocks) if len(blocks) == 2 else [],
                "code": [codec.dump(found) if (found := facts[side]) else None for side, _ in arms],
                "settings": [self.settings[side] for side, _ in arms],
                "outputs": [_digests(where[side].expected, one) for side, one in arms],
            }
        )
        last = where[arms[-1][0]]
        verification = last.run.verified[arms[-1][1]]
        self.answer(
            Timed(row=row, verification=verification, estimate=estimate, code=facts[arms[-1][0]])
        )

    # --- Reporting

    def stage(self, stage: Stage, implementation: str | None = None) -> None:
        """Announce what comes next, as `driver.CaseRun.stage`."""
        self.report(
            {
                "event": "stage",
                "case": self.job.case,
                "implementation": implementation,
                "stage": stage,
            }
        )

    def answer(self, outcome: Outcome) -> None:
        """Report the outcome of a row; a row is answered once."""
        del self.pending[outcome.row.implementation]
        self.report({"event": "outcome", "outcome": codec.dump(outcome)})


def _name(arm: Arm) -> str:
    """How an arm is called in `bench()`."""
    return f"{arm[0]}:{arm[1]}"


def _reason(outcome: Outcome, reason: str) -> dict[str, Any]:
    """The field that says why, with the side before it."""
    return {"untimed" if hasattr(outcome, "untimed") else "reason": reason}


def _digests(expected: Expected, one: str) -> dict[str, int]:
    """Checksums of the outputs that were found right."""
    accepted = expected.accepted.get(one)
    return {} if accepted is None else dict(accepted.digests)
