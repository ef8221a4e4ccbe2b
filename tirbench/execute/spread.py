"""Jobs spread over several GPUs: a lane for each, with its own server, workers and lock, in one parent.

A lane is a thread that does what `execute_in` does. It waits after each event until whoever reads the
events comes back for the next one, so that a row is on the disk before the same GPU starts another.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tirbench.errors import MeasurementError
from tirbench.execute import nvml
from tirbench.execute.events import RowDone
from tirbench.execute.jobs import OPENER, Surroundings, execute_in
from tirbench.execute.lock import DeviceLock
from tirbench.execute.machine import unit_of
from tirbench.execute.nvml import NvmlMissing
from tirbench.execute.pool import Workers
from tirbench.execute.telemetry import watch_device
from tirbench.model import Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tirbench.execute.deadlines import Deadlines
    from tirbench.execute.events import Event
    from tirbench.model import Job

PIECES: Final = 4
"""Into how many pieces for each GPU the work is cut: enough that none waits long for the last, few enough
that a fresh worker for each piece (half a second) does not count."""


class _Stopped(Exception):
    """The run is ended: a lane that notices unwinds, and kills its worker on the way."""


def gpus(
    count: int = 0, environ: Mapping[str, str] | None = None, module: Any = None
) -> tuple[str, ...]:
    """The UUIDs of the first `count` visible GPUs or MIG instances; all of them for 0.

    Args:
        count: how many.
        environ: where `CUDA_VISIBLE_DEVICES` is looked up; our own environment where left out.
        module: a stand-in for `pynvml`.

    Raises:
        MeasurementError: there are fewer, they are not of one product, or NVML does not tell.
    """
    try:
        with nvml.session(module) as library:
            found = nvml.instances(library, environ)
    except NvmlMissing as error:
        raise MeasurementError(
            f"--gpus needs NVML to tell the GPUs apart: {error}; without it one GPU is used"
        ) from error
    if len(found) < max(1, count):
        raise MeasurementError(f"--gpus {count or 'all'}: {len(found)} GPUs are visible")
    chosen = found[: count or None]
    if len(names := sorted({gpu.name for gpu in chosen})) > 1:
        raise MeasurementError(
            f"a run is of one product, and these are {', '.join(names)}: "
            "name some of them in CUDA_VISIBLE_DEVICES"
        )
    return tuple(gpu.uuid for gpu in chosen)


def execute_over(
    uuids: Sequence[str],
    jobs: Sequence[Job],
    *,
    log_dir: Path,
    workers_of: Callable[[Path, Mapping[str, str]], Workers] | None = None,
    deadlines: Deadlines | None = None,
    on_wait: Callable[[str], None] | None = None,
    lock_timeout_s: float | None = None,
    opener: str = OPENER,
) -> Generator[Event, None, None]:
    """`execute` over several GPUs; events of different GPUs come as they happen.

    Args:
        uuids: of GPUs or MIG instances.
        jobs: what to run; cases of one job may run on different GPUs.
        log_dir: folder for the logs of servers and cases.
        workers_of: makes the workers of a GPU from a folder for logs and an environment.
        deadlines: how long each stage may take.
        on_wait: called with a sentence when another run holds a GPU.
        lock_timeout_s: how long to wait for a GPU; `None` as long as it takes.
        opener: `module:function` that opens a harness in the worker.

    Yields:
        Events; exactly one `RowDone` for each row asked for. Times say which unit they are of.
    """
    make = workers_of or (lambda folder, environ: Workers(folder, environ=environ))
    shared = _Shared(deque(_pieces(jobs, len(uuids))))
    with ExitStack() as opened:
        lanes = []
        for number, uuid in enumerate(uuids[: len(shared.pieces)]):
            environ = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
            workers = opened.enter_context(make(log_dir / f"gpu{number}", environ))
            options: dict[str, Any] = {} if deadlines is None else {"deadlines": deadlines}
            surroundings = Surroundings(
                log_dir=log_dir,
                start_worker=workers.start,
                lock=lambda *_, uuid=uuid: DeviceLock(
                    uuid, timeout_s=lock_timeout_s, on_wait=on_wait, sleep=shared.sleep
                ),
                watch=partial(watch_device, environ=environ),
                clock=shared.clock,
                sleep=shared.sleep,
                opener=opener,
                **options,
            )
            lanes.append(_Lane(uuid, surroundings, shared))
        with closing(_drive(lanes, shared)) as events:
            yield from events


def _pieces(jobs: Sequence[Job], lanes: int) -> Iterator[Job]:
    """The jobs, those with many cases cut into several."""
    total = sum(len(job.cases) for job in jobs)
    size = max(1, total // (PIECES * lanes))
    for job in jobs:
        for start in range(0, len(job.cases), size):
            yield replace(job, cases=job.cases[start : start + size])


@dataclass(slots=True)
class _Shared:
    """What lanes have in common: the work that is left, the way out, and the word to stop."""

    pieces: deque[Job]
    stop: threading.Event = field(default_factory=threading.Event)
    said: queue.SimpleQueue[tuple[_Lane, Event | BaseException | None]] = field(
        default_factory=queue.SimpleQueue
    )

    def clock(self) -> float:
        """Seconds; read in every wait of an attempt, so that a lane notices the end of the run there."""
        if self.stop.is_set():
            raise _Stopped
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait, unless the run ends."""
        if self.stop.wait(seconds):
            raise _Stopped


class _Lane:
    """One GPU: takes pieces of the work until there are none."""

    def __init__(self, uuid: str, surroundings: Surroundings, shared: _Shared) -> None:
        self._unit = unit_of(uuid)
        self._surroundings = surroundings
        self._shared = shared
        self._go_on = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name="lane")

    def go_on(self) -> None:
        """The event it said last is dealt with."""
        self._go_on.release()

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            self._work()
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that reads
            end = error
        self._shared.said.put((self, end))

    def _work(self) -> None:
        while True:
            try:
                job = self._shared.pieces.popleft()
            except IndexError:
                return
            with closing(execute_in(self._surroundings, [job])) as events:
                for event in events:
                    self._shared.said.put((self, self._signed(event)))
                    self._go_on.acquire()
                    self._shared.clock()

    def _signed(self, event: Event) -> Event:
        """A time says on which unit it was taken."""
        if isinstance(event, RowDone) and isinstance(event.outcome, Timed):
            return RowDone(outcome=replace(event.outcome, unit=self._unit))
        return event


def _drive(lanes: Iterable[_Lane], shared: _Shared) -> Generator[Event, None, None]:
    """Hand on what lanes say, one event at a time."""
    running = set(lanes)
    try:
        for lane in running:
            lane.thread.start()
        left = len(running)
        while left:
            lane, said = shared.said.get()
            if said is None:
                left -= 1
            elif isinstance(said, BaseException):
                raise said
            else:
                yield said
                lane.go_on()
    finally:
        shared.stop.set()
        for lane in running:
            lane.go_on()
        for lane in running:
            if lane.thread.ident is not None:
                lane.thread.join()
