"""What is said of numbers beside other numbers: `ab` and `gate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tirbench.model.measured import Outcome, Row
from tirbench.model.written import L2Policy, Regime, TimerName

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
class SessionRow:
    """What sessions show of a pinned row: its s_session, and how many draws of it these are worth.

    `in_band` is the s_session that its `band` was made with.
    """

    key: str
    session_sd: float
    sessions: int
    draws: float
    band: float
    in_band: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """What the sessions beside the baselines of a class of hardware show: of all rows, and of each.

    `folder` is that of the baselines. `sessions` were compared, and are worth `draws` independent ones;
    `session_sd` is the least that any row has.
    """

    hardware: str
    folder: str
    session_sd: float
    sessions: int
    draws: int
    rows: tuple[SessionRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Widened:
    """A pinned row whose band was narrower than what sessions show."""

    key: str
    old_band: float
    band: float
    session_sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What `pin --learn` did for a class of hardware: sessions and times it kept, bands it made wider."""

    known: SessionReport
    new_sessions: int
    new_times: int
    widened: tuple[Widened, ...]


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
