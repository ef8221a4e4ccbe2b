"""The types that pass between the stages: as written, as bound, as measured.

`Workload` is one file as written, with its expressions parsed. `Case` is the same with every axis
bound: nothing in it is unknown but what only a device or the tensors' contents can tell. `Outcome`
is what a run says of one implementation of one case; `Run` and `Baseline` are what is kept.

Every type is frozen and holds tuples, so a value can be a key, cross a process and be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tirbench.expression import Expression
from tirbench.values import Bound, Dtype, Value

Path: TypeAlias = "tuple[str | int, ...]"
"""Where something stands in a TOML document: `("tensors", "x", "shape", 0)`."""

Argument: TypeAlias = "Expression | bool | int | float | tuple[Argument, ...]"
"""A value in a position typed *expr*, as written: a string is an expression, a number itself."""

TensorRole: TypeAlias = Literal["in", "out", "inout", "scratch"]
ImplementationRole: TypeAlias = Literal["kernel", "reference"]
TIMERS: Final = ("event", "proton", "cudagraph_proton", "kineto", "wall")
TimerName: TypeAlias = Literal["event", "proton", "cudagraph_proton", "kineto", "wall"]
L2Policy: TypeAlias = Literal["cold-dirty", "cold-clean", "warm"]
Regime: TypeAlias = Literal["burst", "sustained"]


# --- As written -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A TOML file: where it lies and what it says.

    `root` is the project's folder on this machine and never leaves it; `path` is relative to it, with
    forward slashes, and is how the file is named in every output.
    """

    root: str = field(compare=False, repr=False)
    path: str
    text: str = field(repr=False)

    @property
    def folder(self) -> str:
        """The folder of the file, relative to the root; targets are looked up from here."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """How a tensor gets its contents: one initialiser and its parameters, by name."""

    kind: str
    parameters: tuple[tuple[str, Argument], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor as written; `like` is already followed (shape, strides and dtype are copied)."""

    name: str
    path: Path
    role: TensorRole = "in"
    like: str | None = None
    shape: tuple[Argument, ...] | None = None
    strides: tuple[Argument, ...] | None = None
    offset: Argument | None = None
    dtype: Expression | None = None
    init: Init | None = None
    reset: Literal["restore", "none"] | None = None
    reason: str | None = None
    view: str | None = None
    permute: tuple[Argument, ...] | None = None
    memory: Literal["device", "symmetric"] = "device"
    replicated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of a call as written: by position or by name, never both."""

    positional: tuple[Argument, ...] = ()
    named: tuple[tuple[str, Argument], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A named Python function and how it is called: an oracle, an `[[init]]`, a `through`."""

    target: str
    path: Path
    args: Arguments = Arguments()
    returns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch as written. `options` holds the keys of its kind (`grid`, `num_warps`, `compile` …)."""

    kind: str
    target: str
    path: Path
    args: Arguments = Arguments()
    options: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a machine must have: empty fields ask for nothing."""

    device: Literal["cuda", "cpu"] | None = None
    capability: str | None = None
    memory: Argument | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """Something timed: a kernel of ours or a reference of someone else's.

    `looser` is what the tolerances of a reference's outputs are multiplied by, `reason` why.
    """

    name: str
    role: ImplementationRole
    path: Path
    steps: tuple[Launch, ...]
    returns: tuple[str, ...] = ()
    context: Function | None = None
    requires: Requirements = Requirements()
    unchecked: str | None = None
    looser: Argument | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCheck:
    """How one output is compared; numbers are as written, case expressions among them."""

    tensor: str
    path: Path
    exact: bool = False
    rtol: Argument | None = None
    atol: Argument | None = None
    matched: Argument | None = None
    relative_l2: Argument | None = None
    cosine: Argument | None = None
    not_worse_than: str | None = None
    rows: str | None = None
    lengths: str | None = None
    mask: str | None = None
    through: Function | None = None
    allow_nan: bool = False
    allow_inf: bool = False
    unchecked: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The oracle and the rules of each output. `disabled` is the reason why nothing is checked."""

    oracle: Function | None = None
    dtype: str = "float64"
    grad: tuple[str, ...] = ()
    grad_seed: Argument | None = None
    outputs: tuple[OutputCheck, ...] = ()
    disabled: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Cases left out, with the reason; empty `implementations` means all of them."""

    when: Expression
    reason: str
    path: Path
    implementations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a case must do at least, for rates and the distance to the roof."""

    flops: Argument | None = None
    bytes: Argument | None = None
    roof: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerChoice:
    """How a workload asks to be timed; `None` defers to the one place that decides it."""

    name: TimerName | None = None
    rounds: int | None = None
    warmup: float | None = None
    repeat: float | None = None
    cudagraph_rep: float | None = None
    cooldown_s: float | None = None
    l2: L2Policy = "cold-dirty"
    regime: Regime = "burst"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineChoice:
    """Seconds that a stage may go on without a word; `None` leaves the default of `execute` in place.

    The fields are the stages. Each is of one implementation (or of the whole case, where a stage is),
    and says nothing about what is measured: a case that was ended has no number.
    """

    load: float | None = None
    allocate: float | None = None
    build: float | None = None
    verify: float | None = None
    time: float | None = None
    reverify: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """When a change is a regression: the one threshold, and the reference whose ratio is pinned."""

    slower_than: Argument = 0.01
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """A distributed workload: how many ranks, and what runs on each before every launch."""

    world_size: Argument
    prepare: Function | None = None


Axis: TypeAlias = "tuple[tuple[tuple[str, Value], ...], ...]"
"""The points of one axis; each binds one name or, for row tables, several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload file as written: complete, checked by the schema, its expressions parsed.

    Not every valid `Workload` expands: shapes, assertions and conditions are known only per case.
    """

    name: str
    source: Source
    description: str
    id: str | None = None
    seed: int = 0
    asserts: tuple[Expression, ...] = ()
    params: tuple[tuple[str, Value], ...] = ()
    matrix: tuple[tuple[str, Axis], ...] = ()
    cases: tuple[tuple[tuple[str, Value], ...], ...] = ()
    skips: tuple[Skip, ...] = ()
    select: tuple[tuple[str, tuple[str, ...]], ...] = ()
    derive: tuple[tuple[str, Argument], ...] = ()
    tensors: tuple[Tensor, ...] = ()
    inits: tuple[Function, ...] = ()
    kernels: tuple[Implementation, ...] = ()
    references: tuple[Implementation, ...] = ()
    check: Check = Check()
    work: Work = Work()
    timer: TimerChoice = TimerChoice()
    deadlines: DeadlineChoice = DeadlineChoice()
    gate: Gate = Gate()
    requires: Requirements = Requirements()
    ranks: Ranks | None = None


# --- As bound: one case ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundInit:
    """An initialiser with its parameters bound; data phase is allowed (`lengths` is a tensor)."""

    kind: str
    parameters: tuple[tuple[str, Bound], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTensor:
    """One tensor that the case uses. `shape` and `strides` are integers but for scratch tensors.

    `strides` and `offset` are in elements. A view (`view` names its base) owns no memory.
    """

    name: str
    path: Path
    role: TensorRole
    dtype: Dtype
    shape: tuple[Bound, ...]
    strides: tuple[Bound, ...] | None = None
    offset: Bound = 0
    init: BoundInit | None = None
    reset: Literal["restore", "none"] = "none"
    view: str | None = None
    permute: tuple[int, ...] | None = None
    memory: Literal["device", "symmetric"] = "device"
    replicated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundArguments:
    """The arguments of a call with `omit` already dropped."""

    positional: tuple[Bound, ...] = ()
    named: tuple[tuple[str, Bound], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundFunction:
    """A named Python function and its bound arguments."""

    target: str
    path: Path
    args: BoundArguments = BoundArguments()
    returns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundLaunch:
    """One launch with its arguments and the options of its kind bound."""

    kind: str
    target: str
    path: Path
    args: BoundArguments = BoundArguments()
    options: tuple[tuple[str, Bound], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundImplementation:
    """One implementation of the case; `skipped` is the reason of the `[[skip]]` that names it."""

    name: str
    role: ImplementationRole
    path: Path
    steps: tuple[BoundLaunch, ...]
    returns: tuple[str, ...] = ()
    context: BoundFunction | None = None
    requires: Requirements = Requirements()
    unchecked: str | None = None
    skipped: str | None = None
    looser: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOutput:
    """The rule of one output with its numbers bound; every condition given must hold.

    Where no number is given the scale-free default of the dtype applies (LANGUAGE, default tolerance).
    """

    tensor: str
    path: Path
    exact: bool = False
    rtol: float | None = None
    atol: float | None = None
    matched: float | None = None
    relative_l2: float | None = None
    cosine: float | None = None
    not_worse_than: str | None = None
    rows: str | None = None
    lengths: str | None = None
    mask: str | None = None
    through: BoundFunction | None = None
    allow_nan: bool = False
    allow_inf: bool = False
    unchecked: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCheck:
    """The oracle of the case and one rule for each checked tensor, in definition order."""

    oracle: BoundFunction | None = None
    dtype: str = "float64"
    grad: tuple[str, ...] = ()
    grad_seed: Bound = None
    outputs: tuple[BoundOutput, ...] = ()
    disabled: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundWork:
    """Least work of the case; data phase is allowed."""

    flops: Bound = None
    bytes: Bound = None
    roof: Dtype | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload with every axis bound.

    `id` is without the workload's name (`hs4096_bs128`); `key` has both. `selected_by` are the names of
    the `[select]` lists that match, `default`, `smoke` and `cpu` with their defaults filled in.
    """

    workload: Workload = field(repr=False)
    id: str
    values: tuple[tuple[str, Value], ...]
    tensors: tuple[BoundTensor, ...]
    inits: tuple[BoundFunction, ...]
    implementations: tuple[BoundImplementation, ...]
    check: BoundCheck
    work: BoundWork
    slower_than: float
    selected_by: frozenset[str] = frozenset()
    world_size: int | None = None
    prepare: BoundFunction | None = None
    skipped: str | None = None

    @property
    def key(self) -> str:
        """`workload/id`: how the case is named in every output and on the command line."""
        return f"{self.workload.name}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """A generated program: its file name, its text, and its lines against those of the TOML."""

    name: str
    text: str = field(repr=False)
    cases: tuple[str, ...]
    source_map: tuple[tuple[int, int], ...] = field(repr=False)


# --- As run ---------------------------------------------------------------------------------------


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

    `deadlines` are those of the workload, with what the command line says instead.
    """

    workload: str
    harness: str
    plan: Plan
    cases: tuple[CaseJob, ...]
    deadlines: DeadlineChoice = DeadlineChoice()


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


# --- As measured ----------------------------------------------------------------------------------

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
    repeated; `mean_us` is what `bench()` puts into `impls`. `busy_us`, `span_us` and `sum_us` are medians over calls where the
    profiler gives them.
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


# --- As judged ------------------------------------------------------------------------------------

VerdictKind: TypeAlias = Literal["faster", "slower", "same", "undecided", "incomparable", "missing"]

VerdictRule: TypeAlias = Literal[
    "confirmed",
    "within-band",
    "same-code",
    "unconfirmed",
    "imprecise",
    "interrupted",
    "incomparable",
    "missing",
]
"""Which rule gave a verdict.

`confirmed`: flagged, and again by fresh workers. `within-band`: the whole interval lies inside T.
`same-code`: machine code and launch are the same, so time cannot be the code's. `unconfirmed`: flagged
once, not again, and too far off to call the same. `imprecise`: every worker allowed was spent.
`interrupted`: no more could be measured, though the rule asked for more.
"""

PairMethod: TypeAlias = Literal["one worker", "paired workers"]
"""Both sides loaded into one process, or two processes that take turns on one placement seed."""

Block: TypeAlias = "tuple[float, ...]"
"""The kept calls of one sub-block, µs per call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairQuad:
    """Four sub-blocks measured in balanced order, two of each side (`A B B A` or `B A A B`)."""

    base: tuple[Block, Block]
    head: tuple[Block, Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWorker:
    """What one worker measured of both sides of a row, on one placement seed, in order."""

    placement: int
    quads: tuple[PairQuad, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReading:
    """What one worker says of a row: the mean log(head / base) over its quads, and their variance."""

    placement: int
    log_ratio: float
    quad_variance: float
    quads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """What must be equal on both sides for a comparison to mean something, and what was compared.

    `settings` are the process-global ones (TF32, inductor flags). `code` is `CodeFacts.digest`; `launch`
    digests what the code is launched with (grid, arguments, attributes).
    """

    problem: str
    timer: TimerName
    l2: L2Policy
    regime: Regime
    hardware: str
    settings: tuple[tuple[str, str], ...] = ()
    code: str = ""
    launch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEvidence:
    """Everything measured so far of one row on both sides.

    `screening` are the workers that may flag a row; `confirming` the fresh ones that only a flagged
    row gets. `slower_than` is T, relative. `same_code` says that the sides differ in nothing that the
    timer can see.
    """

    row: Row
    slower_than: float = 0.01
    same_code: bool = False
    method: PairMethod = "one worker"
    screening: tuple[PairReading, ...] = ()
    confirming: tuple[PairReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEstimate:
    """log(head / base) over workers, with its standard error."""

    log_ratio: float
    standard_error: float
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureMore:
    """What to measure before a row can be judged: so many workers, from this placement seed on.

    `screen` workers join those that may flag the row; `confirm` workers are fresh and judged alone.
    """

    row: Row
    stage: Literal["screen", "confirm"]
    workers: int
    placement: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How head compares with base, with the rule that fired and a sentence that says why.

    `estimate` is over all workers, `screening` and `confirmation` over those of each stage. `flagged`:
    the times alone would have been called slower or faster, whatever the code says. `price_workers`:
    how many more workers an undecided row would need; `None` where more would not help.
    """

    row: Row
    kind: VerdictKind
    rule: VerdictRule
    reason: str
    estimate: PairEstimate | None = None
    screening: PairEstimate | None = None
    confirmation: PairEstimate | None = None
    flagged: bool = False
    same_code: bool = False
    method: PairMethod = "one worker"
    price_workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the rows whose code did not change say of everything else.

    `shift` is the median of their log(new / old), `None` where there is no such row; `flagged` counts
    those whose times alone would have been called slower or faster.
    """

    rows: int
    flagged: int
    shift: float | None


GateRule: TypeAlias = Literal[
    "missing",
    "orphan",
    "seal",
    "stale",
    "wrong",
    "unmeasured",
    "hardware",
    "unresolved",
    "same",
    "within-gate",
    "faster",
    "environment",
    "recovered",
    "confirmed",
    "not-code",
    "undecided",
    "unpaired",
    "current",
    "remeasured",
    "remeasure",
    "weakened",
    "slower-row",
]
"""Which rule of the gate fired; the sentence beside it says what it means for the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """What the gate says of one row: 1 is what an author can fix without a GPU, 3 needs one."""

    case: str
    implementation: str
    exit_code: Literal[0, 1, 3]
    rule: GateRule
    reason: str
    ratio: float | None = None

    @property
    def kind(self) -> Literal["pass", "fail", "could not"]:
        """The exit code in words."""
        return "pass" if self.exit_code == 0 else "fail" if self.exit_code == 1 else "could not"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStep:
    """What must be measured before the gate can say anything of a row that tripped.

    `again`: this revision once more, by fresh workers. `confirm`: `ab` against the code at the row's
    last pin, or against that of its anchor. `unpaired`: this revision alone, on ten placements.
    """

    case: str
    implementation: str
    step: Literal["again", "confirm", "unpaired"]
    reason: str
    against: Literal["pin", "anchor"] = "pin"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """A decision of the gate with what a reader needs beside it.

    `path` is the workload's file; `pinned_us` and `midmean_us` are what was accepted and what is measured
    now, `None` where there is no such number.
    """

    workload: str
    path: str
    decision: GateDecision
    pinned_us: float | None = None
    midmean_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """What a gate says of every row it was asked about.

    `judged` names what was: a run, or HEAD against a revision. `unreadable` are baselines that could not be
    read, each with what to do; `notes` what a reader must know of all rows.
    """

    judged: str
    rows: tuple[GateRow, ...]
    environment: Environment | None = None
    unreadable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPrice:
    """What a row of an `ab` costs and what it can find, before it is measured.

    `minimal_effect` is the least slowdown found in 95 % of all runs, relative; `gpu_s` the seconds of both
    sides for one stage, flushes included. Both are `None` where nothing is known of the row's noise.
    """

    row: Row
    slower_than: float
    workers: int
    minimal_effect: float | None = None
    gpu_s: float | None = None
    known_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """What an `ab` says of every row, and of everything that is not the code.

    `base` and `head` are the sides as they were asked for. `placebos` are the arms that load the code of
    base twice; `left_out` are rows that this machine does not run, by reason.
    """

    id: str
    base: str
    head: str
    hardware: str
    verdicts: tuple[Verdict, ...]
    placebos: tuple[Verdict, ...] = ()
    environment: Environment | None = None
    failures: tuple[Outcome, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
    """Files of the workloads, by name."""


# --- As reviewed ----------------------------------------------------------------------------------

FieldClass: TypeAlias = Literal["identity", "implementation", "contract", "evidence", "cosmetic"]
"""What a change of a field means for the numbers: another question, another answer, another promise,
another measurement, or nothing (MEASURING, section 7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is written otherwise: `kernel triton`, `num_warps`, 4 → 8.

    `old` or `new` is `None` where it was added or removed. `cases` are the ids it touches, where that is
    not all of them; `place` is a line of HEAD's file, or of BASE's where HEAD has none.
    """

    workload: str
    kind: FieldClass
    subject: str
    what: str
    old: str | None
    new: str | None
    cases: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakening:
    """Something that makes a number easier to reach or harder to doubt.

    `reason` is what the author says of it, where there is something new that is said.
    """

    workload: str
    subject: str
    text: str
    cases: tuple[str, ...] = ()
    implementation: str | None = None
    reason: str | None = None
    place: str = ""


PinVerdict: TypeAlias = Literal[
    "faster", "slower", "same", "environment", "incomparable", "added", "removed"
]
"""`environment`: out of its band with the same machine code. `incomparable`: problem or protocol is
another one, or the seal of one side is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinChange:
    """A pinned row that BASE and HEAD have differently, with what may be believed of it."""

    workload: str
    hardware: str
    path: str
    case: str
    implementation: str
    old: PinnedRow | None
    new: PinnedRow | None
    verdict: PinVerdict
    notes: tuple[str, ...] = ()
    resources: tuple[tuple[str, str, str], ...] = ()
    """What the compiler says otherwise of the row's kernels: `registers`, 96, 128."""

    @property
    def ratio(self) -> float | None:
        """New / old, where both mean the same; below 1 is faster."""
        if self.old is None or self.new is None or self.verdict == "incomparable":
            return None
        return self.new.midmean_us / self.old.midmean_us


@dataclass(frozen=True, slots=True, kw_only=True)
class PinProblem:
    """A row or file of HEAD's baselines that cannot stand as it is, and what to do."""

    kind: Literal["stale", "missing", "broken"]
    workload: str
    path: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeChange:
    """What the compiler says of a kernel on both sides: `registers` 96 → 128."""

    row: Row
    arch: str
    old: Compilation
    new: Compilation
    changed: tuple[tuple[str, str, str], ...]


MeasureCause: TypeAlias = Literal["new", "problem", "protocol", "code", "pin"]
"""Why a row must be measured: what of it is otherwise than at BASE, or its pin is gone, broken or of neither
revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToMeasure:
    """A row that is not pinned as it is now, and what differs.

    `hardware` are the classes of devices that it must be measured on, none where nothing is pinned at all;
    `seconds` about how long that takes on each, `None` where no time of anything alike is known.
    """

    row: Row
    cause: MeasureCause
    hardware: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def key(self) -> str:
        """`workload/case/implementation`."""
        return self.row.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Everything that HEAD has otherwise than BASE, for a reviewer.

    `notices` must be read and fail nothing. `measure` are the rows whose problem, protocol or code differs
    and that were not pinned since. `rows` counts those of HEAD, `unchanged` those of which nothing that a
    number depends on differs; `kernels` counts each kernel of a workload once, whatever its cases.
    `seconds` is about how long a run of `measure` takes, `None` where a time is not known.
    """

    base: str
    head: str
    weakenings: tuple[Weakening, ...] = ()
    problems: tuple[PinProblem, ...] = ()
    pins: tuple[PinChange, ...] = ()
    changes: tuple[Change, ...] = ()
    code: tuple[CodeChange, ...] = ()
    notices: tuple[str, ...] = ()
    measure: tuple[ToMeasure, ...] = ()
    measure_files: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    rows: int = 0
    unchanged: int = 0
    kernels: int = 0
    seconds: float | None = None
