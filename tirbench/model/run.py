"""What is asked of a worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tirbench.model.measured import Row
from tirbench.model.written import DeadlineChoice, TimerName


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a worker does with a case, the same for every case of a job.

    `timer` is `None` for the default of the device; `placements` is K, the number of placement seeds;
    `rounds` how often each placement is measured.
    """

    device: Literal["cuda", "cpu"]
    timer: TimerName | None = None
    placements: int = 5
    rounds: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseJob:
    """One case of a job: which implementations run, and how far each goes.

    `rows` lists every implementation that must be answered for; `verify` and `time` say what is asked,
    `untimed` why a case is not timed. `configurations` are choices of tuned kernels, by implementation,
    that are used instead of tuning again: `CodeFacts.configuration` of an earlier run.
    On a CPU, Triton kernels are verified in the interpreter and never timed; the worker says so.
    """

    case: str
    rows: tuple[Row, ...]
    verify: bool = True
    time: bool = True
    untimed: str = ""
    configurations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One harness to run in one worker: all cases of one workload that share a plan.

    `deadlines` are those of the workload, with what the command line says instead; `imports` are modules
    that its launches need and that take long to import.
    """

    workload: str
    harness: str
    plan: Plan
    cases: tuple[CaseJob, ...]
    deadlines: DeadlineChoice = field(default_factory=DeadlineChoice)
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTarget:
    """The device that code is compiled for: what expressions of a workload may read of it."""

    arch: str
    sm_count: int
    l2_bytes: int
    smem_bytes: int
    memory_bytes: int
    product: str

    @property
    def capability(self) -> float:
        """9.0 of `sm_90`."""
        number = int(self.arch.removeprefix("sm_"))
        return number // 10 + number % 10 / 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """The rows of one case that are compiled, on one architecture.

    Attributes:
        harness: path of the generated program.
        case: id of the case.
        rows: what is compiled.
        target: the device.
        configurations: pinned choices of tuned kernels, by implementation.
        contents: tensors whose contents decide an argument; they are drawn on the CPU.
        cut: steps of an implementation that are not compiled, as notes.
    """

    harness: str
    case: str
    rows: tuple[Row, ...]
    target: CompileTarget
    configurations: tuple[tuple[str, str], ...] = ()
    contents: tuple[str, ...] = ()
    cut: tuple[tuple[str, str], ...] = ()
