"""What a run says of one implementation of one case, and what is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from tirbench.model.written import ImplementationRole, TimerName

Stage: TypeAlias = Literal["load", "allocate", "build", "verify", "time", "reverify"]
"""Where something failed. `allocate`: tensors; `reverify`: the check after timing."""

Cause: TypeAlias = Literal[
    "raised", "crashed", "hung", "out_of_memory", "interfered", "throttled", "unavailable"
]
"""Why something failed.

`raised`: an exception, or an answer that is none. `crashed`: its process ended (`Failed.signal` says by
which signal). `hung`: it passed the deadline of the stage. `out_of_memory`: of the device or the host.
`interfered`, `throttled`: others used the device, or it slowed down for heat or power, in every repetition.
`unavailable`: no worker, or the device stayed taken.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was compared, once before and (for timed rows) once after timing.

    `worst` is the largest share of its tolerance that any output used: 1 is the limit.
    """

    method: Literal["oracle", "interpreter", "digest", "unchecked"]
    worst: float | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The time of one implementation of one case, over all placements.

    `midmean_us` is the mean over placements of the interquartile mean of the calls; `half_width_us` is
    the 95 % half width of what a repetition on the same placement seeds would give, `None` where nothing was
    repeated; `mean_us` is what `bench()` puts into `impls`. `busy_us`, `span_us` and `sum_us` are medians
    over calls where the profiler gives them.
    """

    timer: TimerName
    midmean_us: float
    half_width_us: float | None
    mean_us: float
    median_us: float
    min_us: float
    p10_us: float
    p90_us: float
    calls: int
    placements_us: tuple[float, ...]
    within_sd: float
    """s_w: relative standard deviation of one placement's midmean when measured again."""
    busy_us: float | None = None
    span_us: float | None = None
    sum_us: float | None = None
    kernels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """What the case had to do at least: operations, bytes, and the dtype whose compute roof applies."""

    flops: float | None = None
    bytes: float | None = None
    roof: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What the time means: achieved rates and how much of the measured roof they are (0 … 1)."""

    gbytes_per_s: float | None = None
    tflops: float | None = None
    roof: float | None = None
    roof_by: Literal["bandwidth", "compute"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFacts:
    """What ran: a digest with its kind (`sass:…`, `src:…`, `names:…`) and the compiler's resources.

    Of a sequence of kernels: the largest of each, the instructions together, the least occupancy (the share
    of a multiprocessor's warps that can be resident, 0 … 1). `spills` counts 32-bit registers.
    """

    digest: str
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    configuration: str | None = None
    stack_bytes: int | None = None
    instructions: int | None = None
    occupancy: float | None = None

    @property
    def resources(self) -> tuple[tuple[str, int], ...]:
        """What the compiler says, as a baseline holds it: whole numbers by name, sorted."""
        share = self.occupancy
        numbers = {
            "instructions": self.instructions,
            "occupancy_percent": None if share is None else round(100 * share),
            "registers": self.registers,
            "shared_bytes": self.shared_bytes,
            "spills": self.spills,
            "stack_bytes": self.stack_bytes,
        }
        return tuple((name, number) for name, number in numbers.items() if number is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Which implementation of which case an outcome is about."""

    workload: str
    case: str
    implementation: str
    role: ImplementationRole

    @property
    def key(self) -> str:
        """`workload/case/implementation`."""
        return f"{self.workload}/{self.case}/{self.implementation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCode:
    """What the compiler says of one kernel of a sequence, without a device.

    `spills` counts 32-bit registers, as Triton does: `stack_bytes` of a thread by four. `threads` are
    those of a block, `None` where the code does not fix them; without them there is no `occupancy`: the
    largest share of a multiprocessor's warps that can be resident at once (0 … 1), and what bounds it.
    """

    name: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    instructions: int
    threads: int | None = None
    occupancy: float | None = None
    limited_by: Literal["warps", "blocks", "registers", "shared memory"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One implementation of one case compiled for an architecture, with the case's specialisation.

    Exactly one of `code` and `failure` is there. `kernels` are those of one launch, in order; empty where
    only source is generated. `notes` say what the digest assumes or leaves out. `problem` and `source` are
    the digests of the row that was compiled: what is said here holds of no other.
    """

    row: Row
    arch: str
    code: CodeFacts | None = None
    kernels: tuple[MachineCode, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    problem: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSuite:
    """What `aot` found, with the versions of the compilers: digests compare only under equal ones."""

    compilers: tuple[tuple[str, str], ...]
    compilations: tuple[Compilation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSides:
    """What the same compilers make of two revisions."""

    base: CompiledSuite
    head: CompiledSuite


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Right, and how fast."""

    row: Row
    verification: Verification
    estimate: Estimate
    work: WorkDone = WorkDone()
    rates: Rates = Rates()
    code: CodeFacts | None = None
    problem: str = ""
    protocol: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    unit: str | None = None
    """Salted short id of the unit it was measured on, where that may not be the run's (`--gpus`)."""

    @property
    def ran(self) -> CodeFacts:
        """The code that ran; without facts of its own it is known by its source."""
        return self.code or CodeFacts(digest=f"src:{self.source}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Right, but not timed, with the reason."""

    row: Row
    verification: Verification
    untimed: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """Ran and gave a wrong result: which tensor, how far off, where."""

    row: Row
    reason: str
    stage: Literal["verify", "reverify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Could not be built, launched or measured.

    `reason` is one line (`ImportError: no module named deep_gemm`); `place` is the line of the TOML
    that asked for it (`workloads/x.toml:12`); a reference that fails is a BASELINE_ERROR and no fault of
    the workload. `signal` is the name of the signal that ended a process (`SIGSEGV`), where one did.
    """

    row: Row
    stage: Stage
    reason: str
    detail: str = ""
    place: str = ""
    cause: Cause = "raised"
    signal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Not run, with the sentence that says why and what to do about it."""

    row: Row
    reason: str


Outcome: TypeAlias = "Timed | Verified | Wrong | Failed | Skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts of the machine a run was made on: nothing in it names a host, a user or a path.

    `hardware` is the folder name of baselines (`nvidia-h200`); `unit` a salted short digest of the
    device's UUID. Fields that could not be read hold the reason in `missing`.
    """

    hardware: str
    device: str
    kind: Literal["cuda", "cpu"]
    unit: str | None = None
    memory_bytes: int | None = None
    versions: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that this machine can measure, or cannot, or only with less trust, and what to do.

    Without an `optional` one a machine still measures everything that is asked of most.
    """

    name: str
    status: Literal["yes", "limited", "no"]
    detail: str
    remedy: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """Measured ceilings of a device: copy bandwidth and matrix product rate by dtype name.

    `tflops` is of random values and what a rate is compared to; `zeros_tflops` is of zeros, which draw
    the least power: faster than that is no product at all.
    """

    copy_gbytes_per_s: float | None = None
    tflops: tuple[tuple[str, float], ...] = ()
    zeros_tflops: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltAhead:
    """What was compiled beside the measuring of a run, on other cores.

    Attributes:
        cases: how many were built before the worker came to them.
        kernels: how many kernels these launch, and configurations of tuned ones.
        compiled: how many of them were not in the cache before.
        failed: rows that could not be built ahead; the worker says what is wrong with them, if anything.
        seconds: how long building took, all builders together.
        replaced: how often a builder hung or died.
        found: kernels that workers found in the cache, from whenever.
        late: those that they had to compile themselves.
        late_seconds: how long that took, while nothing was measured.
    """

    cases: int = 0
    kernels: int = 0
    compiled: int = 0
    failed: int = 0
    seconds: float = 0.0
    replaced: int = 0
    found: int = 0
    late: int = 0
    late_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Where the time of a run went.

    Attributes:
        elapsed_s: how long its cases took from the first to the last.
        devices: that shared them.
        stages: by workload, seconds of all devices in each stage; `load` is what a case took beside the
            stages that its worker announced: starting it and opening the harness.
    """

    elapsed_s: float
    devices: int
    stages: tuple[tuple[str, tuple[tuple[Stage, float], ...]], ...]

    def by_stage(self) -> dict[Stage, float]:
        """Seconds of all workloads in each stage, in the order of the stages."""
        found: dict[Stage, float] = {}
        for stage in get_args(Stage):
            seconds = [s for _, stages in self.stages for name, s in stages if name == stage]
            if seconds:
                found[stage] = math.fsum(seconds)
        return found

    def plus(self, later: Spent) -> Spent:
        """With what a later part of the same run took."""
        found = {workload: dict(stages) for workload, stages in self.stages}
        for workload, stages in later.stages:
            mine = found.setdefault(workload, {})
            for stage, seconds in stages:
                mine[stage] = mine.get(stage, 0.0) + seconds
        return Spent(
            elapsed_s=self.elapsed_s + later.elapsed_s,
            devices=max(self.devices, later.devices),
            stages=tuple((workload, tuple(stages.items())) for workload, stages in found.items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything one `exec` measured. Outcomes are cases × implementations, each exactly once."""

    id: str
    machine: Machine
    commit: str | None
    dirty: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    roofs: Roofs = Roofs()
    complete: bool = True
    ahead: BuiltAhead | None = None
    spent: Spent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRow:
    """One accepted number of a baseline file (MEASURING, section 4)."""

    case: str
    implementation: str
    midmean_us: float
    band: float
    anchor_us: float
    problem: str
    protocol: str
    code: str
    source: str
    env: str
    unit: str
    session_sd: float | None = None
    """s_session as it is in `band`, where history taught it."""
    ratio: float | None = None
    ratio_band: float | None = None
    resources: tuple[tuple[str, int], ...] = ()
    configuration: str | None = None
    reason: str | None = None
    seal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The pinned rows of one workload on one class of hardware, sorted by case and implementation."""

    workload: str
    hardware: str
    rows: tuple[PinnedRow, ...]
