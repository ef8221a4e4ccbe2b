"""What an ending means: which row is at fault, which are run again, and in what words it is said."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tirbench.execute import processes
from tirbench.model import Failed, Wrong

if TYPE_CHECKING:
    from tirbench.execute.attempt import WorkerLike
    from tirbench.model import Cause, Outcome, Row, Stage

STICKY: Final = re.compile(
    r"illegal memory access|illegal address|illegal instruction|misaligned address|"
    r"device-side assert|unspecified launch failure|launch failed|LAUNCH_FAILED|LAUNCH_TIMEOUT|"
    r"ILLEGAL_ADDRESS|uncorrectable|hardware stack error|invalid program counter|"
    r"CUDA error(?!: out of memory)|CUDA_ERROR_(?!OUT_OF_MEMORY|INVALID_IMAGE|NO_BINARY)",
    re.IGNORECASE,
)
"""Errors after which a CUDA context answers every call with the same error, whoever made the call."""

OUT_OF_MEMORY: Final = re.compile(
    r"^(\w+\.)*\w*(OutOfMemory|MemoryError)|out of memory|bad_alloc|cannot allocate memory|"
    r"can't allocate memory|not enough memory",
    re.IGNORECASE,
)
"""What Python, torch, CUDA, the C++ library and the system call it when there is no memory left."""

End: TypeAlias = Literal["crashed", "hung", "raised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why rows fail: in a line, with what was printed last, and as a word that programs read."""

    reason: str
    detail: str = ""
    cause: Cause = "raised"
    signal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What a worker said it was doing, and since when."""

    stage: Stage
    implementation: str | None = None
    since_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Who answers for an ending: these rows fail, those run again, jointly or each alone."""

    guilty: tuple[Row, ...] = ()
    again: tuple[Row, ...] = ()
    alone: bool = False


def judge(
    end: End, at: Announced, unanswered: tuple[Row, ...], *, progress: bool, innocent: bool
) -> Judged:
    """Decide which of the unanswered rows an ending is charged to.

    Exactly the announced implementation, where one was announced. Where a stage was announced for all
    of them at once, or the fault shows where it was not made, the rows run again, each alone in a fresh
    worker, so that the guilty one finds itself alone.

    Args:
        end: how the attempt ended.
        at: what was announced last.
        unanswered: the rows without an outcome; not empty.
        progress: a row was answered in this attempt, so running the others again comes to an end.
        innocent: the attempt had announced nothing, in a worker that had served another case before.
    """
    named = tuple(row for row in unanswered if row.implementation == at.implementation)
    if named:
        return Judged(guilty=named, again=tuple(row for row in unanswered if row not in named))
    if innocent or (progress and at.stage != "load"):
        return Judged(again=unanswered)
    # A hang is paid in full by each row that runs alone, so it must be one that a kernel can cause.
    separable = at.stage == "time" if end == "hung" else at.stage != "load"
    if len(unanswered) > 1 and separable:
        return Judged(again=unanswered, alone=True)
    return Judged(guilty=unanswered)


def crash(worker: WorkerLike, detail: str, *, out_of_memory: bool = False) -> Fault:
    """`crashed: SIGSEGV` and the other ways in which a process ends without an answer.

    Args:
        worker: which has ended.
        detail: the end of its log.
        out_of_memory: the system killed a process for its memory while this one lived.
    """
    status = worker.exit_status
    if worker.lost:
        reason = (
            "crashed: it closed its connection to tirbench, or the server of the workers was killed"
        )
        return Fault(reason=reason, detail=detail, cause="crashed")
    if status is None or status >= 0:
        reason = f"crashed: the process exited with status {status} and without a result"
        return Fault(reason=reason, detail=detail, cause="crashed")
    name = processes.signal_name(-status)
    if status == -signal.SIGKILL:
        if out_of_memory:
            reason = "out of memory: killed by the system (SIGKILL), which had no memory left"
            return Fault(reason=reason, detail=detail, cause="out_of_memory", signal=name)
        reason = "crashed: SIGKILL, not by tirbench (the system may be out of memory)"
        return Fault(reason=reason, detail=detail, cause="crashed", signal=name)
    return Fault(reason=f"crashed: {name}", detail=detail, cause="crashed", signal=name)


def hang(stage: Stage, seconds: float, detail: str) -> Fault:
    """`hung: no progress in 60 s in stage verify`."""
    reason = f"hung: no progress in {seconds:g} s in stage {stage}"
    return Fault(reason=reason, detail=detail, cause="hung")


def raised(reason: str, detail: str) -> Fault:
    """An exception, told apart from the one that says that memory ran out."""
    cause: Cause = "out_of_memory" if OUT_OF_MEMORY.search(reason) else "raised"
    return Fault(reason=reason, detail=detail, cause=cause)


def is_sticky(outcome: Outcome) -> bool:
    """Whether this outcome says that the CUDA context is beyond use."""
    return isinstance(outcome, Failed) and bool(
        STICKY.search(f"{outcome.reason}\n{outcome.detail}")
    )


def is_suspect(outcome: Outcome) -> bool:
    """Whether the worker should not serve another case after this outcome.

    A kernel that computed something wrong may have written where it should not; one that failed while
    it ran may have left anything. A failed build has launched nothing.
    """
    return isinstance(outcome, Wrong) or (
        isinstance(outcome, Failed) and outcome.stage in {"verify", "time", "reverify"}
    )
