"""One case, from its tensors to its outcomes: allocate, build, verify, time, verify again.

Everything asked for is answered: each row of the job gets exactly one outcome. Foreign code (kernels,
builders, oracles) may raise anything; that becomes a `Failed` of its row and costs no other row.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from tirbench import codec, tensors
from tirbench.errors import UsageError
from tirbench.harness import timed
from tirbench.harness.device import Device
from tirbench.harness.ranks import Ranks
from tirbench.harness.requires import unmet
from tirbench.harness.verify import Expected, bounds, verify
from tirbench.launch import inductor, tirx, triton
from tirbench.launch.counting import Counts, counting
from tirbench.launch.facts import together
from tirbench.model import (
    CaseJob,
    CodeFacts,
    Failed,
    Outcome,
    Plan,
    Row,
    Skipped,
    Stage,
    Verification,
    Verified,
    WorkDone,
    Wrong,
)

if TYPE_CHECKING:
    from tirbench.harness.case import Case, Declared, Launch, Shared
    from tirbench.harness.program import Program

Report = Callable[[dict[str, Any]], None]


class CaseRun:
    """Runs one case of a program and reports what happened to every row of the job."""

    def __init__(
        self,
        program: Program,
        job: CaseJob,
        plan: Plan,
        report: Report,
        ranks: Ranks | None = None,
    ) -> None:
        """Prepare to run; nothing is allocated yet."""
        self.program = program
        self.job = job
        self.plan = plan
        self.report = report
        self.ranks = Ranks() if ranks is None else ranks
        self.pending: dict[str, Row] = {row.implementation: row for row in job.rows}
        self.verified: dict[str, Verification] = {}
        self.facts: dict[str, CodeFacts] = {}
        self.notes: dict[str, list[str]] = {name: [] for name in self.pending}
        self.counts = Counts()

    def run(self) -> None:
        """Run the case; returns when every row is answered.

        What is no `Exception` (a kernel that calls `sys.exit`) escapes, with the rows that are left: who
        watches blames the implementation announced last and runs the others in a fresh worker.
        """
        self._run()
        if self.counts.found or self.counts.compiled:
            self.report({"event": "kernels", "case": self.job.case, **asdict(self.counts)})
        if self.pending:
            raise AssertionError(f"{self.job.case} ended with {', '.join(self.pending)} unanswered")
        self.report({"event": "case_done", "case": self.job.case})

    def _run(self) -> None:
        from tirbench.harness.case import Shared

        self.stage("allocate")
        try:
            # One case's shapes must not make another's dynamic; nothing to forget where nothing compiled.
            if (dynamo := sys.modules.get("torch._dynamo")) is not None:
                dynamo.reset()
            home = tensors.home(Device(self.plan.device).torch)
            shared = Shared(home, chosen=dict(self.job.configurations))
            case = self.open(0, shared)
        except Exception as error:  # noqa: BLE001 - tensors are drawn by functions of the workload
            return self.fail_all("allocate", error)
        with case.contexts:
            expected = self.expect(case)
            if expected is None:
                return None
            launches = self.build_and_verify(case, expected)
            timer = timed.choose(self.plan, self.program.timing, self.ranks.world_size)
            launches = self.keep_timed(case, launches, timer)
            if not launches:
                return None
            try:
                work = self.ranks.agree(lambda: self.work_of(case))
            except Exception as error:  # noqa: BLE001 - code of the workload on the tensors' contents
                return self.fail_all("time", error)
        return timed.time_rows(self, shared, expected, tuple(launches), timer, work)

    def open(self, placement: int, shared: Shared) -> Case:
        """The case on one placement, opened by every rank or by none.

        Raises:
            UsageError: a symmetric tensor has another shape on another rank.
            Exception: functions of the workload that compute tensors raise what they like.
        """
        device = Device(self.plan.device, self.ranks)
        case = self.ranks.agree(lambda: self.program.open(self.job.case, device, placement, shared))
        self.ranks.require_same("symmetric tensors", case.symmetric)
        return case

    def work_of(self, case: Case) -> WorkDone:
        """Least work of the case, read from the tensors where it depends on them."""
        declared = case.declared_work
        flops, moved = (
            float(value()) if callable(value) else (None if value is None else float(value))
            for value in (declared.flops, declared.bytes)
        )
        return WorkDone(flops=flops, bytes=moved, roof=declared.roof)

    def expect(self, case: Case) -> Expected | None:
        """What the oracle says; `None` where that failed, with every row answered."""
        self.stage("verify")
        try:
            return self.ranks.agree(lambda: Expected.of(case))
        except Exception as error:  # noqa: BLE001 - the oracle is a function of the workload
            oracle = case.declared_oracle
            place = self.program.place_of_function(oracle.function) if oracle is not None else ""
            self.fail_all("verify", error, place)
            return None

    def build_and_verify(self, case: Case, expected: Expected) -> dict[str, Launch]:
        """Build every pending implementation and verify it once; what is right can be timed."""
        launches: dict[str, Launch] = {}
        first = bounds(case)  # their outputs bound the error of kernels
        for name in sorted(self.pending, key=lambda name: name not in first):
            declared = case.implementations.get(name)
            if declared is None:
                self.fail(
                    name, "load", UsageError(f"the harness declares no implementation {name!r}")
                )
                continue
            if reason := self.ranks.first(unmet(declared.requires, case.device)):
                self.answer(Skipped(row=self.pending[name], reason=reason))
                continue
            launch = self.build(case, declared)
            if launch is None:
                continue
            if reason := self.ranks.first(_untrusted(case, declared)):
                self.answer(Skipped(row=self.pending[name], reason=reason))
            elif not self.job.verify or self.verify(case, declared, launch, expected):
                launches[name] = launch
        return launches

    def build(self, case: Case, declared: Declared) -> Launch | None:
        """The launch closure of one implementation; `None` where building failed."""
        self.stage("build", declared.name)
        try:
            with triton.own_compiler(compiled_by_torch=False), counting(self.counts):
                return self.ranks.agree(lambda: _built(case, declared))
        except Exception as error:  # noqa: BLE001 - builders import and compile foreign code
            self.fail(declared.name, "build", error)
            return None

    def verify(
        self,
        case: Case,
        declared: Declared,
        launch: Launch,
        expected: Expected,
        stage: Stage = "verify",
    ) -> bool:
        """One restored, poisoned call, compared with the oracle; answers the row where it is not right."""
        self.stage(stage, declared.name)
        try:
            with (
                triton.own_compiler(compiled_by_torch=declared.compiled_by_torch),
                nullcontext() if declared.compiled_by_torch else counting(self.counts),
                triton.recorded(declared.launches_triton) as kernels,
                inductor.recorded(
                    declared.compiled_by_torch, _chosen_by_torch(case, declared)
                ) as made_by_torch,
            ):
                verification = self.ranks.agree(lambda: verify(case, declared, launch, expected))
        except Exception as error:  # noqa: BLE001 - kernels raise what they like
            self.fail(declared.name, stage, error)
            return False
        if wrong := self.ranks.first(verification if isinstance(verification, str) else None):
            after = "after timing: " if stage == "reverify" else ""
            self.answer(
                Wrong(
                    row=self.pending[declared.name],
                    reason=after + wrong,
                    stage="reverify" if after else "verify",
                )
            )
            return False
        assert isinstance(verification, Verification)  # noqa: S101 - nothing was wrong, here or elsewhere
        self.verified[declared.name] = verification
        if stage == "verify":
            self.notes[declared.name] += expected.notes(case, declared)
            self.learn(declared, kernels, inductor.code_facts(made_by_torch, case.device.arch))
        return True

    def learn(self, declared: Declared, kernels: list[Any], compiled: CodeFacts | None) -> None:
        """Keep the digest and resources of what was launched, and what tuners chose."""
        facts = together(
            triton.code_facts(kernels),
            compiled,
            tirx.code_facts(declared.executables),
            *(read() for read in declared.facts),
        )
        chosen = [triton.chosen_configuration(kernel) for kernel in declared.tuned]
        chosen += [] if compiled is None else [compiled.configuration]
        if facts is not None:
            text = triton.NEXT_KERNEL.join(filter(None, chosen)) or None
            self.facts[declared.name] = replace(facts, configuration=text)

    def keep_timed(
        self, case: Case, launches: Mapping[str, Launch], timer: timed.Choice
    ) -> dict[str, Launch]:
        """Those that will be timed; the others are answered with the reason why they are not."""
        kept: dict[str, Launch] = {}
        for name, launch in launches.items():
            declared = case.implementations[name]
            reason = timer.refused if self.job.time else self.job.untimed
            if self.job.time and declared.launches_triton and triton.interpreted():
                reason = "not timed: Triton's interpreter"
            if reason is None:
                kept[name] = launch
            else:
                verification = self.verified.get(name) or Verification(
                    method="unchecked", worst=None
                )
                self.answer(
                    Verified(
                        row=self.pending[name],
                        verification=verification,
                        untimed=reason,
                        notes=tuple(self.notes[name]),
                    )
                )
        return kept

    # --- Reporting

    def stage(self, stage: Stage, implementation: str | None = None) -> None:
        """Announce what comes next: whoever watches restarts its deadline and knows whom to blame."""
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

    def fail(self, name: str, stage: Stage, error: BaseException, blame: str = "") -> None:
        """Answer a row with an error, the line of the TOML it comes from, and the traceback.

        `blame` is that line where the traceback does not pass the harness; without it, the row's own.
        """
        place = self.program.place(error.__traceback__)
        if place == self.program.workload:
            place = blame or self.program.place_of(name)
        message = str(error).strip().splitlines()
        self.answer(
            Failed(
                row=self.pending[name],
                stage=stage,
                reason=f"{type(error).__name__}: {message[0]}" if message else type(error).__name__,
                detail="".join(traceback.format_exception(error)),
                place=place,
                cause="out_of_memory" if _ran_out_of_memory(error) else "raised",
            )
        )

    def fail_all(self, stage: Stage, error: BaseException, blame: str = "") -> None:
        """Answer every pending row with the same error."""
        for name in list(self.pending):
            self.fail(name, stage, error, blame)


OUT_OF_MEMORY: Final = ("out of memory", "OUT_OF_MEMORY", "bad_alloc", "can't allocate memory")
"""How CUDA, the C++ library and torch's CPU allocator say it, where the type of the error does not."""


def _ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device or the host had no memory left."""
    import torch

    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or any(words in str(error) for words in OUT_OF_MEMORY)


def _chosen_by_torch(case: Case, declared: Declared) -> list[str]:
    """What inductor chose in an earlier run: `learn` writes it behind what tuners of the kernels chose."""
    text = case.shared.chosen.get(declared.name, "")
    return [one for one in text.split(triton.NEXT_KERNEL)[len(declared.tuned) :] if one]


def _built(case: Case, declared: Declared) -> Launch:
    launch = case.build(declared)
    if not callable(launch):
        raise TypeError(f"the builder returned {type(launch).__name__}, not a closure to launch")
    return launch


def _untrusted(case: Case, declared: Declared) -> str | None:
    """Why Triton's interpreter cannot verify this kernel, where it cannot.

    Seen with Triton 3.7.1: `tl.dot` on bfloat16 returns garbage without a message, bfloat16 sums are NaN.
    """
    import torch

    if not (declared.launches_triton and triton.interpreted()):
        return None
    used = [name for name in case.memory.names if case.memory[name].dtype == torch.bfloat16]
    if not used:
        return None
    return f"Triton's interpreter computes bfloat16 wrongly ({', '.join(used)}): give the smoke case float16"
