"""Runs jobs in workers and says what becomes of every row, whatever the kernels do.

The parent holds the deadlines, decides who is to blame, and never gives another row to a worker that
misbehaved. It comes to an end because every attempt at a case answers a row, blames one, goes on in a
fresh worker instead of a used one, turns from running the rows together to running each alone, or is one
of the few repetitions of times that something disturbed.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tirbench import codec
from tirbench.errors import MeasurementError
from tirbench.execute import logs
from tirbench.execute.attempt import Attempt, Ending, Limits, WorkerLike, open_program
from tirbench.execute.blame import Fault
from tirbench.execute.deadlines import Deadlines
from tirbench.execute.events import CaseDone, Event, RowDone, WorkerReplaced
from tirbench.execute.lock import DeviceLock
from tirbench.execute.machine import lock_name
from tirbench.execute.pool import Workers
from tirbench.execute.telemetry import Disturbance, Watch, watch_device
from tirbench.model import CaseJob, Failed, Job, Row, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

OPENER: Final = "tirbench.harness:open_program"

RETRIED: Final = frozenset({"crashed", "unavailable"})
"""Causes of a worker not coming up that may have been somebody else's doing."""

REPETITIONS: Final = 2
"""How often times that something disturbed are taken again before their rows fail."""

REST_S: Final = 2.0
"""Before that: a device that slowed down needs a moment, and so does whoever else uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Everything outside that a run touches, so that tests can put something else in its place.

    Attributes:
        log_dir: folder of the logs, one file for each case.
        start_worker: gives a job a fresh worker.
        lock: what is held while a case runs.
        watch: who looks after the device of a job while a worker (its process id) measures.
        deadlines: how long each stage may take.
        clock: seconds, monotonic.
        sleep: waits for seconds.
        opener: `module:function` that opens a harness in the worker.
        shared: whether a job goes on in the worker of the one before it, as long as that is sound.
    """

    log_dir: Path
    start_worker: Callable[[Job], WorkerLike]
    lock: Callable[[Job, CaseJob], AbstractContextManager[object]]
    watch: Callable[[Job, int], Watch] = watch_device
    deadlines: Deadlines = field(default_factory=Deadlines)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    opener: str = OPENER
    shared: bool = False


def execute(
    jobs: Sequence[Job],
    *,
    log_dir: Path,
    workers: Workers | None = None,
    deadlines: Deadlines | None = None,
    on_wait: Callable[[str], None] | None = None,
    lock_timeout_s: float | None = None,
    opener: str = OPENER,
    shared: bool = False,
) -> Generator[Event, None, None]:
    """Run every case of every job and yield what happens as it happens.

    Use it with `contextlib.closing`: closing the generator (or an exception in it, Ctrl-C among them)
    kills the workers and everything they started.

    Args:
        jobs: what to run, in this order.
        log_dir: folder for the logs of servers and cases; made where it does not exist.
        workers: where workers come from, if the caller started it early; it is then the caller's to
            close.
        deadlines: how long each stage may take.
        on_wait: called with a sentence when another run holds the device.
        lock_timeout_s: how long to wait for a device; `None` as long as it takes.
        opener: `module:function` that opens a harness in the worker.
        shared: as in `Surroundings`.

    Yields:
        Events; exactly one `RowDone` for each row asked for.
    """
    pool = Workers(log_dir) if workers is None else workers
    name_of = cache(lock_name)  # asking NVML takes longer than a short case

    def lock(job: Job, case_job: CaseJob) -> AbstractContextManager[object]:
        if job.plan.device == "cpu" and not case_job.time:
            return nullcontext()  # verifying needs no quiet
        return DeviceLock(name_of(job.plan.device), timeout_s=lock_timeout_s, on_wait=on_wait)

    surroundings = Surroundings(
        log_dir=log_dir,
        start_worker=pool.start,
        lock=lock,
        deadlines=deadlines or Deadlines(),
        opener=opener,
        shared=shared,
    )
    try:
        with closing(execute_in(surroundings, jobs)) as events:
            yield from events
    finally:
        if workers is None:
            pool.close()


def execute_in(surroundings: Surroundings, jobs: Sequence[Job]) -> Generator[Event, None, None]:
    """`execute` with its surroundings given.

    Raises:
        AssertionError: a row was answered not at all or twice, which is a fault of this package.
    """
    asked = Counter(row.key for job in jobs for case in job.cases for row in case.rows)
    answered: Counter[str] = Counter()
    run: _JobRun | None = None
    if surroundings.shared:  # the first of them starts the worker of all
        imports = tuple(sorted({module for job in jobs for module in job.imports}))
        jobs = [replace(job, imports=imports) for job in jobs]
    try:
        for job in jobs:
            run = _JobRun(surroundings, job, run)
            with closing(run.events()) as events:
                for event in events:
                    if isinstance(event, RowDone):
                        answered[event.outcome.row.key] += 1
                    yield event
    finally:
        if run is not None:
            run.end_worker()
    if asked != answered:
        raise AssertionError(
            f"asked for and answered differ: {asked - answered}, {answered - asked}"
        )


class _Try(NamedTuple):
    """Rows of a case that are to run in one worker, and what their good outcomes are to say of it.

    `repeats` counts the times that were taken before and discarded.
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    repeats: int = 0


class _Hopeless(NamedTuple):
    """Why no more case of a job can run."""

    stage: Stage
    fault: Fault


class _JobRun:
    """One job: its worker and, when that is beyond use, the next one."""

    def __init__(self, surroundings: Surroundings, job: Job, before: _JobRun | None) -> None:
        """Take over the worker that the job before has left, if it has."""
        self._in = surroundings
        self._job = job
        self._worker: WorkerLike | None = None
        self._watch: Watch | None = None
        if before is not None:
            self._worker, self._watch = before.leave()
        self._opened = False
        self._used = self._worker is not None
        self._hopeless: _Hopeless | None = None

    def events(self) -> Generator[Event, None, None]:
        """Run all cases, each while holding its lock; a sound worker is left to who may have it."""
        sound = False
        try:
            for case_job in self._job.cases:
                with ExitStack() as held:
                    if self._hopeless is None:
                        try:
                            held.enter_context(self._in.lock(self._job, case_job))
                        except MeasurementError as error:
                            self._hopeless = _Hopeless("allocate", _unavailable(error))
                    if case_job.rows:
                        yield from self._case(case_job)
            sound = self._in.shared
        finally:
            if not sound:
                self.end_worker()

    def _case(self, case_job: CaseJob) -> Iterator[Event]:
        """Run one case to its end, in as many workers as it takes."""
        start = self._in.clock()
        log = logs.log_path(self._in.log_dir, self._job.workload, case_job.case)
        deadlines = self._in.deadlines.overridden(self._job.deadlines)
        limits = Limits(deadlines=deadlines, clock=self._in.clock, log=log)
        todo = deque([_Try(case_job.rows)])
        while todo:
            turn = todo.popleft()
            if (ready := self._ready(limits)) is None:
                stage, fault = self._hopeless or _Hopeless("load", Fault(reason="no worker"))
                yield from _failures(turn.rows, stage, fault)
                continue
            worker, watch = ready
            part = replace(case_job, rows=turn.rows)
            attempt = Attempt(worker, part, limits, watch, used=self._used, notes=turn.notes)
            self._used = True
            yield from attempt.events()
            ending = attempt.ending
            if ending.fault is not None:
                yield from _failures(ending.judged.guilty, ending.at.stage, ending.fault)
            if ending.replace is not None:
                self.end_worker()
                yield WorkerReplaced(
                    workload=self._job.workload, case=case_job.case, reason=ending.replace
                )
            todo.extend(_tries(ending, turn))
            if ending.disturbance is not None:
                if turn.repeats < REPETITIONS:
                    self._in.sleep(REST_S)
                else:
                    fault = _disturbed(ending.disturbance, turn.repeats + 1)
                    yield from _failures(ending.disturbed, "time", fault)
        yield CaseDone(
            workload=self._job.workload,
            case=case_job.case,
            log=str(log),
            elapsed_s=self._in.clock() - start,
        )

    def _ready(self, limits: Limits) -> tuple[WorkerLike, Watch] | None:
        """A worker with the harness open; `None` when there can be none for this job."""
        if self._worker is not None and not self._opened:
            self._open(limits)  # what another job's worker refuses, a fresh one may not
        for last in (False, True):
            if self._hopeless is None and self._worker is None:
                refusal = self._open(limits)
                # Somebody may have killed the worker or its server, so a crash is tried once more.
                if refusal is not None and (last or refusal.cause not in RETRIED):
                    self._hopeless = _Hopeless("load", refusal)
        if self._worker is None or self._watch is None:
            return None
        return self._worker, self._watch

    def _open(self, limits: Limits) -> Fault | None:
        """Have a worker open the harness, a fresh one where there is none; what is wrong, if anything."""
        if self._worker is None:
            try:
                self._worker = self._in.start_worker(self._job)
            except MeasurementError as error:
                return _unavailable(error)
            self._used = False
            self._watch = self._in.watch(self._job, self._worker.pid)
        message = {
            "harness": self._job.harness,
            "opener": self._in.opener,
            "plan": codec.dump(self._job.plan),
        }
        if (refusal := open_program(self._worker, message, limits)) is not None:
            self.end_worker()
        self._opened = refusal is None
        return refusal

    def leave(self) -> tuple[WorkerLike | None, Watch | None]:
        """Give up the worker to another job."""
        left = self._worker, self._watch
        self._worker = self._watch = None
        return left

    def end_worker(self) -> None:
        """End the worker and whatever it started, if there is one."""
        worker, self._worker = self._worker, None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        if worker is not None:
            worker.kill()


def _failures(rows: tuple[Row, ...], stage: Stage, fault: Fault) -> Iterator[Event]:
    """The same failure for each of these rows."""
    for row in rows:
        yield RowDone(
            outcome=Failed(
                row=row,
                stage=stage,
                reason=fault.reason,
                detail=fault.detail,
                cause=fault.cause,
                signal=fault.signal,
            )
        )


def _unavailable(error: MeasurementError) -> Fault:
    """There is no worker, or no device."""
    reason, _, detail = str(error).partition("\n")
    return Fault(reason=reason.rstrip(":"), detail=detail, cause="unavailable")


def _disturbed(disturbance: Disturbance, times: int) -> Fault:
    """Times were taken often enough, and disturbed every time."""
    reason = f"{disturbance.words}, in each of {times} measurements"
    return Fault(reason=reason, cause=disturbance.cause)


def _tries(ending: Ending, turn: _Try) -> Iterator[_Try]:
    """The attempts that an ending asks for."""
    judged = ending.judged
    if judged.again:
        culprits = ", ".join(row.implementation for row in judged.guilty)
        reason = "" if ending.fault is None else ending.fault.reason
        what = f"{culprits} {reason}" if culprits else ending.replace
        if judged.alone:
            note = f"run alone in a fresh worker ({what})"
            for row in judged.again:
                yield turn._replace(rows=(row,), notes=(*turn.notes, note))
        else:
            note = f"run in a fresh worker ({what})"
            yield turn._replace(rows=judged.again, notes=(*turn.notes, note))
    if ending.disturbance is not None and turn.repeats < REPETITIONS:
        note = f"measured again ({ending.disturbance.words})"
        yield _Try(ending.disturbed, (*turn.notes, note), turn.repeats + 1)
