"""The devices that share a self-test, each with workers of its own."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench.model import Job, Plan
from tirbench.selftest.ask import Asked
from tirbench.selftest.budget import AT_ONCE, Task

if TYPE_CHECKING:
    from tirbench.execute import Workers
    from tirbench.execute.jobs import Surroundings

STAGES: Final = 4
"""How often decisions may ask for more; no rule asks as often."""

UNTRIED_S: Final = 20.0
"""How long those may take together of which nothing was ever measured."""

OPENER: Final = "tirbench.harness.trials:open_trials"


@dataclass(slots=True, kw_only=True)
class Lane:
    """A device, and where its workers come from.

    Attributes:
        uuid: of the GPU; empty for the first visible one, or the CPU.
        folder: of logs.
        failures: rows of its latest workers, as long as these timed none at all.
    """

    uuid: str
    folder: Path
    workers: Workers
    environ: Mapping[str, str]
    failures: list[list[str]] = field(default_factory=list)

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
            shared=True,
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
        do: does tasks on a lane together; they are on the same placements.
        then: says what is asked for by what a task measured.
        say: takes sentences.
        clock: seconds, monotonic.
        together_s: tasks are done together until they take so long: what begins a worker is paid once.
        homes: the lane of each workload: all that a decision needs is measured on one device.
        lost: lanes that nothing more is done on, as an error came from them.
    """

    lanes: Sequence[Lane]
    do: Callable[[Lane, Sequence[Task]], None]
    say: Callable[[str], None]
    then: Callable[[Task], Sequence[Task]] = lambda _: ()
    clock: Callable[[], float] = time.monotonic
    together_s: float = 0.0
    homes: dict[str, Lane] = field(default_factory=dict)
    lost: list[Lane] = field(default_factory=list)
    _picked: int = 0
    _paces: list[tuple[float, float]] = field(default_factory=lambda: [(1.0, 1.0)])
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def drain(self, tasks: Sequence[Task], end_s: float, *, late_s: float = 0.0) -> int:
        """Do the tasks, or of each as much as ends in time.

        They are taken from both ends by turns: what is stopped in the middle is half of either. Some of
        one end are done together, and what they ask for right after them. A lane that an error comes from
        is lost, and the others do its work, unless there are none.

        Args:
            tasks: what is to be done, in order.
            end_s: when all of it must be done, by the clock.
            late_s: how much later than that what a task asks for may be done.

        Returns:
            How many were done, at least in part.

        Raises:
            BaseException: what came from the last lane.
        """
        waiting, done = list(tasks), 0
        errors: list[BaseException] = []

        def work(lane: Lane) -> None:
            nonlocal done
            while tasks := self._next(lane, waiting, end_s):
                with self._keeping(lane, errors, tasks, waiting):
                    count = self._some(lane, tasks, end_s, late_s)
                    with self._lock:
                        done += count

        while waiting and self.alive:
            threads = [threading.Thread(target=work, args=(lane,)) for lane in self.alive]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors and not self.alive:
            raise errors[-1]
        return done

    @property
    def alive(self) -> list[Lane]:
        """The lanes that are not lost."""
        return [lane for lane in self.lanes if lane not in self.lost]

    @contextmanager
    def _keeping(
        self, lane: Lane, errors: list[BaseException], tasks: Sequence[Task], waiting: list[Task]
    ) -> Iterator[None]:
        """Keep an error for who waits; the lane is lost, and the tasks wait again."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - raised again where it is the last lane's
            errors.append(error)
            self._lose(lane, error)
            waiting += tasks

    def _lose(self, lane: Lane, error: BaseException) -> None:
        """Do nothing more on a lane; its workloads are anybody's again."""
        with self._lock:
            self.lost.append(lane)
            self.homes = {name: home for name, home in self.homes.items() if home is not lane}
        which = f"GPU {lane.uuid}" if lane.uuid else "this device"
        self.say(f"nothing more on {which}: {type(error).__name__}: {error}")

    def forget_pace(self) -> None:
        """What was done was of unknown length: it says nothing of how well lengths are foretold."""
        self._paces[1:] = []

    def _next(self, lane: Lane, waiting: list[Task], end_s: float) -> list[Task]:
        """The next task, and those after it that are done together with it."""
        with self._lock:
            if lane in self.lost:
                return []
            mine = [task for task in waiting if self.homes.get(task.workload, lane) is lane]
            if self._picked % 2:
                mine.reverse()
            self._picked += 1
            if not mine:
                return []
            most_s = self._most_s(mine[0], waiting, end_s)
            taken = [mine[0]]
            for task in mine[1:]:
                if task.placements != taken[0].placements:
                    continue
                if math.fsum(one.expected_s for one in (*taken, task)) > most_s:
                    break
                taken.append(task)
            for task in taken:
                self.homes[task.workload] = lane
                waiting.remove(task)
            return taken

    def _most_s(self, first: Task, waiting: Sequence[Task], end_s: float) -> float:
        """How long tasks that are done together should take.

        How well lengths are foretold is learnt from what was done before, so that too much at once would
        end too late; nothing is known of what was never measured.
        """
        share_s = math.fsum(task.expected_s for task in waiting) / max(1, len(self.alive))
        left_s = AT_ONCE * (end_s - self.clock()) / self._pace()
        return min(self.together_s if first.runs_s else UNTRIED_S, share_s, left_s)

    def _some(self, lane: Lane, tasks: Sequence[Task], end_s: float, late_s: float) -> int:
        """Do tasks, then what they ask for, stage after stage; says of how many anything was done."""
        done = self._fitting(lane, tasks, end_s)
        for _ in range(STAGES):
            alike: dict[tuple[int, ...], list[Task]] = {}
            for one in (one for task in done for one in self.then(task)):
                alike.setdefault(one.placements, []).append(one)
            fitted = [self._fitting(lane, of, end_s + late_s) for of in alike.values()]
            if not any(fitted):
                break
        return len(done)

    def _fitting(self, lane: Lane, tasks: Sequence[Task], end_s: float) -> list[Task]:
        """Do as much of the tasks as ends in time; says which they are.

        They share their workers, whose beginning is paid once.
        """
        begin = self.clock()
        left_s = (end_s - begin) / self._pace()
        fitting: list[Task] = []
        for alone in tasks:
            task = alone.begun() if fitting else alone
            fits = task.within(left_s - task.then_s)
            if fits is not task:
                left = f"only {len(fits.runs_s)} virtual runs" if fits else "nothing"
                self.say(f"{task.workload}: there is time for {left}")
            if fits is not None:
                fitting.append(fits)
                left_s -= fits.expected_s + fits.then_s
        if fitting:
            self.do(lane, fitting)
            with self._lock:
                expected_s = math.fsum(task.expected_s for task in fitting)
                self._paces.append((self.clock() - begin, expected_s))
        return fitting

    def _pace(self) -> float:
        """How much longer tasks take than expected: a machine that others use is slower than it seemed."""
        with self._lock:
            took, expected = (math.fsum(values) for values in zip(*self._paces, strict=True))
        return max(1.0, took / expected)
