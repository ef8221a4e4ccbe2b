"""What HEAD has otherwise than BASE, for a reviewer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tirbench.model.measured import Compilation, PinnedRow, Row

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
