"""What a workload file says: one `Workload`, its expressions parsed, nothing bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tirbench.expression import Expression
from tirbench.values import Value

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
