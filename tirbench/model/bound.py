"""One case: every axis bound, nothing unknown but what a device or the tensors' contents tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tirbench.model.written import ImplementationRole, Path, Requirements, TensorRole, Workload
from tirbench.values import Bound, Dtype, Value


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
    requires: Requirements = field(default_factory=Requirements)
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
