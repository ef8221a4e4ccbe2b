"""The devices that share a self-test, each with workers of its own."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench.model import Job, Plan
from tirbench.selftest.ask import Asked
from tirbench.selftest.budget import Task

if TYPE_CHECKING:
    from tirbench.execute import Workers
    from tirbench.execute.jobs import Surroundings

OPENER: Final = "tirbench.harness.trials:open_trials"


@dataclass(slots=True, kw_only=True)
class Lane:
    """A device, and where its workers come from.

    Attributes:
        uuid: of the GPU; empty for the first visible one, or the CPU.
        folder: of logs.
    """

    uuid: str
    folder: Path
    workers: Workers
    environ: Mapping[str, str]

    @property
    def unit(self) -> str:
        """A short id of the unit; empty where it is not chosen."""
        from tirbench.execute.machine import unit_of

        return unit_of(self.uuid) or ""

    def surroundings(self) -> Surroundings:
        """As `execute` has them, for this device."""
        from tirbench.execute.jobs import Surroundings
        from tirbench.execute.lock import DeviceLock
        from tirbench.execute.machine import lock_name
        from tirbench.execute.telemetry import watch_device

        return Surroundings(
            log_dir=self.folder,
            start_worker=self.workers.start,
            lock=lambda job, _: DeviceLock(self.uuid or lock_name(job.plan.device)),
            watch=partial(watch_device, environ=self.environ),
            opener=OPENER,
        )


def opened(asked: Asked, folder: Path, stack: ExitStack) -> list[Lane]:
    """A server of workers for each device, ready to fork."""
    from tirbench.execute import Workers

    found = []
    for number, uuid in enumerate(asked.gpus or ("",)):
        environ = {**os.environ, **({"CUDA_VISIBLE_DEVICES": uuid} if uuid else {})}
        logs = folder / f"lane{number}"
        workers = stack.enter_context(Workers(logs, environ=environ))
        workers.warm(asked.device)
        found.append(Lane(uuid=uuid, folder=logs, workers=workers, environ=environ))
    for lane in found:  # what imports cost is no worker's
        plan = Plan(device=asked.device)
        lane.workers.start(Job(workload="", harness="", plan=plan, cases=())).kill()
    return found


@dataclass(slots=True, kw_only=True)
class Lanes:
    """Works off tasks on all lanes at once, and stops in time.

    Attributes:
        lanes: the devices.
        do: does a task on a lane.
        say: takes sentences.
        clock: seconds, monotonic.
        homes: the lane of each workload: all that a decision needs is measured on one device.
    """

    lanes: Sequence[Lane]
    do: Callable[[Lane, Task], None]
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    homes: dict[str, Lane] = field(default_factory=dict)
    _paces: list[tuple[float, float]] = field(default_factory=lambda: [(1.0, 1.0)])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drain(self, tasks: Sequence[Task], end_s: float, *, reserve_s: float = 0.0) -> int:
        """Do the tasks, or of each as much as ends in time.

        Args:
            tasks: what is to be done.
            end_s: when all of it must be done, by the clock.
            reserve_s: how much of the time before that is for something else.

        Returns:
            How many were done, at least in part.
        """
        waiting, done = list(tasks), 0
        errors: list[BaseException] = []

        def work(lane: Lane) -> None:
            nonlocal done
            try:
                while not errors and (task := self._next(lane, waiting)) is not None:
                    done += self._one(lane, task, end_s, reserve_s)
            except BaseException as error:  # noqa: BLE001 - raised again by who waits
                errors.append(error)

        threads = [threading.Thread(target=work, args=(lane,)) for lane in self.lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return done

    def forget_pace(self) -> None:
        """What was done was of unknown length: it says nothing of how well lengths are foretold."""
        self._paces[1:] = []

    def _next(self, lane: Lane, waiting: list[Task]) -> Task | None:
        with self._lock:
            for task in waiting:
                if self.homes.setdefault(task.workload, lane) is lane:
                    waiting.remove(task)
                    return task
        return None

    def _one(self, lane: Lane, task: Task, end_s: float, reserve_s: float) -> bool:
        begin = self.clock()
        fits = task.within((end_s - begin) / self._pace() - reserve_s)
        if fits is not task:
            left = f"only {len(fits.runs_s)} virtual runs" if fits else "nothing"
            self.say(f"{task.workload}: there is time for {left}")
        if fits is None:
            return False
        self.do(lane, fits)
        with self._lock:
            self._paces.append((self.clock() - begin, fits.expected_s))
        return True

    def _pace(self) -> float:
        """How much longer tasks take than expected: a machine that others use is slower than it seemed."""
        with self._lock:
            took, expected = (math.fsum(values) for values in zip(*self._paces, strict=True))
        return max(1.0, took / expected)
