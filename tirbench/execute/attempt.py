"""One attempt at one case in one worker: follows it, holds its deadlines, and says how it ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from tirbench import codec
from tirbench.execute import blame, logs, processes
from tirbench.execute.blame import Announced, Fault, Judged
from tirbench.execute.events import Event, Reported, RowDone, StageStarted
from tirbench.model import CaseJob, Failed, Outcome, Timed, Verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tirbench.execute.deadlines import Deadlines
    from tirbench.execute.telemetry import Disturbance, Watch
    from tirbench.model import Row

TICK_S: Final = 1.0
"""How often a silent worker is looked after: the length of its log. Rare, as its CPU is measured."""


MEMORY_LEFT: Final = "memory ran out in a worker that had run other cases"
"""Why rows run again in a fresh worker: what those cases kept may be all that is missing."""


class WorkerLike(Protocol):
    """What an attempt needs of a worker; `tirbench.execute.pool.Worker` is the real one."""

    pid: int
    exit_status: int | None
    lost: bool

    def send(self, message: dict[str, Any]) -> None:
        """Tell it what to do."""

    def receive(self, timeout_s: float) -> list[dict[str, Any]]:
        """What it said; empty after `timeout_s`, or when it has ended."""

    def abort(self, grace_s: float) -> None:
        """End a worker that hangs."""

    def kill(self) -> None:
        """End it at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an attempt is held to: the deadlines, the clock they are read from, and the log."""

    deadlines: Deadlines
    clock: Callable[[], float]
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ended.

    Attributes:
        judged: which rows fail and which run again; empty after a good end.
        at: what was announced last.
        fault: why rows fail; `None` after a good end.
        replace: why the worker must not be used again; `None` if it may.
        disturbed: rows whose times were taken while something disturbed the device, not answered.
        disturbance: what did.
    """

    judged: Judged
    at: Announced
    fault: Fault | None = None
    replace: str | None = None
    disturbed: tuple[Row, ...] = ()
    disturbance: Disturbance | None = None


class Attempt:
    """Runs the given rows of a case in a worker that has the harness open.

    Iterate over `events()`; then `ending` says what to do next.
    """

    ending: Ending

    def __init__(
        self,
        worker: WorkerLike,
        case_job: CaseJob,
        limits: Limits,
        watch: Watch,
        *,
        used: bool,
        notes: tuple[str, ...] = (),
    ) -> None:
        """Prepare an attempt.

        Args:
            worker: where it runs.
            case_job: the case with the rows of this attempt; not empty.
            limits: deadlines, clock and log.
            watch: looks after the device while times are taken.
            used: the worker has served a case before.
            notes: what every good outcome of this attempt carries.
        """
        self._worker = worker
        self._job = case_job
        self._workload = case_job.rows[0].workload
        self._limits = limits
        self._watch = watch
        self._used = used
        self._notes = notes
        self._open: dict[str, Row] = {row.implementation: row for row in case_job.rows}
        self._announced = False
        self._timing = False
        self._jointly_timed = False
        self._suspect: str | None = None
        self._disturbed: list[Row] = []
        self._disturbance: Disturbance | None = None
        self._memory_kills = processes.memory_kills()
        self._at = Announced(stage="load", since_s=limits.clock())
        self._done = False

    def events(self) -> Iterator[Event]:
        """Run the case to its end, good or bad."""
        log = self._limits.log
        self._worker.send({"do": "case", "case_job": codec.dump(self._job), "log": str(log)})
        while not self._done:
            messages = self._worker.receive(max(0.0, min(TICK_S, self._left_s())))
            for message in messages:
                yield from self._take(message)
                if self._done:  # what comes after an end is not believed
                    return
            if messages:
                continue
            if self._worker.exit_status is not None:
                killed = processes.memory_kills() > self._memory_kills
                self._end("crashed", blame.crash(self._worker, self._tail(), out_of_memory=killed))
            logs.bound(log)
            if not self._done and self._left_s() <= 0:
                self._worker.abort(self._limits.deadlines.grace_s)
                stage = self._at.stage
                seconds = self._limits.deadlines.of(stage)
                self._end("hung", blame.hang(stage, seconds, self._tail()))

    def _left_s(self) -> float:
        """Seconds until the deadline of the stage."""
        deadline = self._at.since_s + self._limits.deadlines.of(self._at.stage)
        return deadline - self._limits.clock()

    def _take(self, message: dict[str, Any]) -> Iterator[Event]:
        """Act on one message of the worker."""
        kind = message.get("event")
        if kind == "stage":
            yield self._enter(message)
        elif kind == "outcome":
            yield from self._answer(message)
        elif kind == "raised":
            detail = message["detail"] or self._tail()
            self._end("raised", blame.raised(message["reason"], detail))
        elif kind == "case_done":
            yield from self._finish(message["damage"])
        else:
            yield Reported(workload=self._workload, case=self._job.case, data=message)

    def _enter(self, message: dict[str, Any]) -> StageStarted:
        """A stage begins, and with it its deadline."""
        name, stage = message.get("implementation"), message["stage"]
        self._at = Announced(stage=stage, implementation=name, since_s=self._limits.clock())
        self._announced = True
        if stage == "time":
            if not self._timing:
                self._watch.begin()
                self._timing = True
            self._jointly_timed |= name is None and len(self._job.rows) > 1
        return StageStarted(
            workload=self._workload, case=self._job.case, implementation=name, stage=stage
        )

    def _answer(self, message: dict[str, Any]) -> Iterator[Event]:
        """A row is answered, unless the answer cannot be believed."""
        try:
            outcome: Outcome = codec.load(Outcome, message["outcome"])
        except codec.CodecError as error:
            reason = f"the harness gave an answer that cannot be read: {error}"
            self._end("raised", Fault(reason=reason, detail=self._tail()))
            return
        row = outcome.row
        if self._open.get(row.implementation) != row:
            return  # answered before, or never asked for: the first answer counts
        sticky = blame.is_sticky(outcome)
        if sticky and not self._exact(row):
            again = Judged(again=tuple(self._open.values()), alone=True)
            self._close(again, replace="an error of the GPU that may be another row's")
            return
        if self._used and isinstance(outcome, Failed) and outcome.cause == "out_of_memory":
            self._close(Judged(again=tuple(self._open.values())), replace=MEMORY_LEFT)
            return
        del self._open[row.implementation]
        if isinstance(outcome, Timed) and (disturbance := self._watch.disturbance()):
            self._disturbed.append(row)
            self._disturbance = disturbance
            return  # a time that something disturbed is nobody's: it is taken again
        if isinstance(outcome, Timed):
            outcome = replace(outcome, notes=outcome.notes + self._notes + self._watch.notes())
        elif isinstance(outcome, Verified):
            outcome = replace(outcome, notes=outcome.notes + self._notes)
        yield RowDone(outcome=outcome)
        if blame.is_suspect(outcome):
            self._suspect = f"{row.implementation} may have damaged it"
        if sticky:
            again = Judged(again=tuple(self._open.values()))
            self._close(again, replace=f"{row.implementation} broke the context of the GPU")

    def _exact(self, row: Row) -> bool:
        """Whether an error that outlives its cause can only be this row's."""
        if len(self._job.rows) == 1:
            return True
        return not self._jointly_timed and self._at.implementation == row.implementation

    def _finish(self, damage: list[str]) -> Iterator[Event]:
        """The case returned; what it did not answer has failed."""
        for row in self._open.values():
            reason = "the harness ended without an answer for this row"
            yield RowDone(outcome=Failed(row=row, stage=self._at.stage, reason=reason))
        if self._timing and (facts := self._watch.facts()):
            data = {"event": "telemetry", "case": self._job.case, **facts}
            yield Reported(workload=self._workload, case=self._job.case, data=data)
        self._close(Judged(), replace=", ".join(damage) or self._suspect)

    def _tail(self) -> str:
        """The end of the log."""
        return logs.tail(self._limits.log)

    def _end(self, end: blame.End, fault: Fault) -> None:
        """End badly: decide who answers for it."""
        unanswered = tuple(self._open.values())
        if not unanswered:  # it happened while the case was put away
            self._close(Judged(), replace=fault.reason)
            return
        if self._used and fault.cause == "out_of_memory":
            self._close(Judged(again=unanswered), replace=MEMORY_LEFT)
            return
        judged = blame.judge(
            end,
            self._at,
            unanswered,
            progress=len(unanswered) < len(self._job.rows),
            innocent=self._used and not self._announced,
        )
        self._close(judged, fault=fault, replace=fault.reason)

    def _close(self, judged: Judged, *, replace: str | None, fault: Fault | None = None) -> None:
        """Note how it ended."""
        self._watch.pause()
        logs.bound(self._limits.log)
        self.ending = Ending(
            judged=judged,
            at=self._at,
            fault=fault,
            replace=replace,
            disturbed=tuple(self._disturbed),
            disturbance=self._disturbance,
        )
        self._done = True


def open_program(worker: WorkerLike, message: dict[str, Any], limits: Limits) -> Fault | None:
    """Let a worker open a harness.

    Args:
        worker: a worker that has done nothing yet, or is done with another harness.
        message: `harness`, `opener` and `plan`.
        limits: deadlines, clock and log.

    Returns:
        `None`, or what is wrong; the worker is then of no more use.
    """
    end = limits.clock() + limits.deadlines.load_s
    worker.send({"do": "open", "log": str(limits.log), **message})
    while True:
        for answer in worker.receive(max(0.0, min(TICK_S, end - limits.clock()))):
            if answer.get("event") == "opened":
                return None
            if answer.get("event") == "raised":
                return blame.raised(answer["reason"], answer["detail"])
        if worker.exit_status is not None:
            return blame.crash(worker, logs.tail(limits.log))
        if limits.clock() >= end:
            worker.abort(limits.deadlines.grace_s)
            return blame.hang("load", limits.deadlines.load_s, logs.tail(limits.log))
