"""Several sides of one case in one worker: opened on one arena, built, and verified by their own oracles.

A side is a harness of a tree of its own with the kernel files of that tree. Every tensor of one side lies
where the others' do and holds the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tirbench import codec
from tirbench.errors import UsageError
from tirbench.harness import settings
from tirbench.harness.case import Shared
from tirbench.harness.device import Device
from tirbench.harness.driver import CaseRun
from tirbench.harness.program import Program, open_program
from tirbench.harness.requires import unmet
from tirbench.harness.verify import Accepted, Expected
from tirbench.launch import roots, triton
from tirbench.model import CaseJob, Failed, Outcome, Plan, Row, Skipped, Stage, Verification
from tirbench.tensors import Arena, home

if TYPE_CHECKING:
    import torch

    from tirbench.harness.case import Case, Launch

Report: TypeAlias = "Callable[[dict[str, Any]], None]"
Arm: TypeAlias = "tuple[str, str]"
"""A side and an implementation of it: what is timed."""

FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSpec:
    """What a worker holds, as the file says that is given in the place of a harness.

    Attributes:
        placement: the placement seed.
        sides: harness of each side, in the order in which they are loaded.
        trees: folder of each side, and of the project whose working tree packages come from.
        twins: sides whose oracle is base's, which need not be asked twice.
        configurations: choices of tuned kernels, by side, case and implementation.
        outputs: checksums of outputs that were found right, by side, case, implementation and tensor.
    """

    placement: int
    sides: Mapping[str, str]
    trees: Mapping[str, str]
    project: str
    twins: tuple[str, ...] = ()
    configurations: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]] = field(
        default_factory=dict
    )


def read_spec(path: str | Path) -> dict[str, Any]:
    """What a spec's file says.

    Raises:
        UsageError: it is of another version.
    """
    data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if data.pop("schema") != FORMAT:
        raise UsageError(f"{Path(path).name} is not of this version")
    return data


def open_sides(spec: SideSpec) -> dict[str, Program]:
    """Isolate the trees from each other, then import the harness of each side.

    What another workload has set for the whole process is put back first.

    Raises:
        UsageError: a side is no harness.
        Exception: what a side raises when it is imported.
    """
    settings.anew()
    for tree in spec.trees.values():
        roots.isolate(Path(tree), Path(spec.project))
    programs: dict[str, Program] = {}
    for side, path in spec.sides.items():
        program = open_program(path)
        if not isinstance(program, Program):
            raise UsageError(f"{side}: {Path(path).name} is no harness")
        programs[side] = program
    return programs


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
class Side:
    """One side of a case: its tensors and builders, and what became of its implementations."""

    name: str
    run: CaseRun
    case: Case
    expected: Expected
    launches: dict[str, Launch]


class SidesOfCase:
    """One case on every side that its rows need: opens, builds and verifies; who inherits times.

    `arms` are those of each row, base first.
    """

    def __init__(
        self,
        programs: Mapping[str, Program],
        spec: SideSpec,
        arms: Mapping[str, tuple[Arm, ...]],
        job: CaseJob,
        plan: Plan,
        report: Report,
    ) -> None:
        """Prepare to run; nothing is allocated yet."""
        self.programs = programs
        self.spec = spec
        self.job = job
        self.plan = plan
        self.report = report
        self.pending = {row.implementation: row for row in job.rows}
        self.arms = {name: arms[name] for name in self.pending}
        self.failed: dict[Arm, Outcome] = {}
        self.settings: dict[str, dict[str, str]] = {}

    def run(self) -> None:
        """Run the case; returns when every row is answered."""
        self.stage("allocate")
        with ExitStack() as contexts:
            sides = self._open(contexts)
            if sides is not None:
                self._build(sides)
                self.answer_failed()
                self.time(sides)
        if self.pending:
            raise AssertionError(f"{self.job.case} ended with {', '.join(self.pending)} unanswered")
        self.report({"event": "case_done", "case": self.job.case})

    def time(self, sides: Mapping[str, Side]) -> None:
        """Time and answer what is pending."""
        raise NotImplementedError

    # --- Opening and building

    def _open(self, contexts: ExitStack) -> dict[str, Side] | None:
        """Every side's case on one arena; `None` where one cannot be opened, and all rows have failed."""
        if (dynamo := sys.modules.get("torch._dynamo")) is not None:
            dynamo.reset()
        sides: dict[str, Side] = {}
        needed = {side for arms in self.arms.values() for side, _ in arms}
        side = ""
        try:
            device = Device(self.plan.device)
            arena = home(device.torch)
            for side in self.in_order([name for name in self.programs if name in needed]):
                sides[side] = self.opened(side, device, arena, sides.get("base"))
                contexts.enter_context(sides[side].case.contexts)
        except Exception as error:  # noqa: BLE001 - tensors are drawn by functions of the workload
            reason = f"{side}: {type(error).__name__}: {error}".removeprefix(": ")
            for name in list(self.pending):
                row = self.pending[name]
                self.answer(Failed(row=row, stage="allocate", reason=reason.splitlines()[0]))
            return None
        return {name: sides[name] for name in self.programs if name in sides}

    def in_order(self, names: list[str]) -> list[str]:
        """The sides in the order in which they are opened; they are built in that of the file."""
        return names

    def opened(self, side: str, device: Device, arena: Arena, base: Side | None) -> Side:
        """One side, with its case laid out and filled."""
        program, name = self.programs[side], self.job.case
        chosen = self.spec.configurations.get(side, {}).get(name, {})
        shared = Shared(arena, chosen=dict(chosen))
        case = self.open_case(side, device, shared, base)
        mine = sorted({one for arms in self.arms.values() for where, one in arms if where == side})
        rows = tuple(replace(self._row_of((side, one)), implementation=one) for one in mine)
        job = replace(self.job, rows=rows)
        return Side(
            name=side,
            run=CaseRun(program, job, self.plan, self._listener(side)),
            case=case,
            expected=self.expected(side, case, base),
            launches={},
        )

    def open_case(self, side: str, device: Device, shared: Shared, base: Side | None) -> Case:
        """The case of a side; `base` is the side of that name where it is open already."""
        del base
        return self.programs[side].open(self.job.case, device, self.spec.placement, shared)

    def expected(self, side: str, case: Case, base: Side | None) -> Expected:
        """What is right: by the oracle in the first worker, by checksums of it in the later ones.

        A twin of base has base's oracle, which need not be asked twice.
        """
        known = self.spec.outputs.get(side, {}).get(self.job.case)
        if not known:
            if side in self.spec.twins and base is not None:
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

    def _build(self, sides: Mapping[str, Side]) -> None:
        """Build and verify every arm; what a side sets for the whole process is held against the other's."""
        before = settings.current()
        operators: dict[str, int] = {}
        for side in sides.values():
            settings.restore(before)
            for one in sorted(side.run.pending):
                self.build_one(side, one)
            self.settings[side.name] = settings.current()
            now = settings.operators()
            self._refuse_overwritten(
                side, [name for name, was in operators.items() if now[name] != was]
            )
            operators = now
        self._share_choices(sides)

    def _refuse_overwritten(self, side: Side, names: list[str]) -> None:
        """An operator that two sides register is the last one's: the first would run the other's code."""
        if names:
            error = UsageError(
                f"registers {names[0]}, as a side before it did, for the whole process"
            )
            for one in list(side.run.pending):
                side.run.fail(one, "load", error)

    def build_one(self, side: Side, one: str) -> None:
        """Build and verify an arm; its launch is kept where it is right."""
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

    def _share_choices(self, sides: Mapping[str, Side]) -> None:
        """Have sides of one space of configurations run the same choice, that of base.

        Tuners choose by times, so two of them may settle on different configurations of equal code. A
        space that differs is part of what is compared and keeps its own choice.
        """
        for base, head in {(arms[0], arm) for arms in self.arms.values() for arm in arms[1:]}:
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
            self.build_one(second, head[1])

    def answer_failed(self) -> None:
        """Answer the rows of arms that could not be built or were wrong."""
        for name, arms in self.arms.items():
            for arm in arms:
                if name in self.pending and arm in self.failed:
                    outcome = self.failed[arm]
                    said = getattr(outcome, "reason", "") or "was not run"
                    reason = _reason(outcome, f"{arm[0]}: {said}")
                    self.answer(replace(outcome, row=self.pending[name], **reason))

    def verify_again(self, sides: Mapping[str, Side], arms: Iterable[Arm]) -> None:
        """Verify what was timed once more; what is wrong by now has failed with its row."""
        for side, one in arms:
            where = sides[side]
            where.run.verify(
                where.case,
                where.case.implementations[one],
                where.launches[one],
                where.expected,
                "reverify",
            )
        self.answer_failed()

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


def _reason(outcome: Outcome, reason: str) -> dict[str, Any]:
    """The field that says why, with the side before it."""
    return {"untimed" if hasattr(outcome, "untimed") else "reason": reason}
