"""What `execute` says while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tirbench.model import Outcome, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted:
    """A worker entered a stage; `implementation` is `None` where it is about the whole case."""

    workload: str
    case: str
    implementation: str | None
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDone:
    """One row is answered for. Each row asked for has exactly one such event."""

    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDone:
    """All rows of a case are answered for.

    Attributes:
        log: file with everything that was printed.
        elapsed_s: from the start of the case to here, waiting for the device not counted.
    """

    workload: str
    case: str
    log: str
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReplaced:
    """The worker was or will be replaced by a fresh one, and why."""

    workload: str
    case: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Any other event of a harness (samples, roofs …), passed on as it came."""

    workload: str
    case: str
    data: Mapping[str, Any] = field(hash=False)


Event: TypeAlias = "StageStarted | RowDone | CaseDone | WorkerReplaced | Reported"
