"""What the device went through while times were taken: clocks, power, heat, slowdown, other processes.

Optional: without NVML there is nothing to say, and the run goes on. What is read becomes a note on the
row, or the reason to take its times again; nothing here changes a number.
"""

from __future__ import annotations

import statistics
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from tirbench.execute import nvml, processes
from tirbench.execute.nvml import NvmlMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tirbench.model import Job

PERIOD_S: Final = 0.1

CPU_WAIT_NOTED: Final = 0.1
"""From this share of its time spent waiting for a CPU a row says so."""

DISTURBED_SHARE: Final = 0.1
"""From this share of the samples on, what they show has spoiled the times. NVML reports a slowdown for a
moment at a change of clocks too (nvml.h, `nvmlClocksEventReasonHwPowerBrakeSlowdown`)."""

SLOWDOWNS: Final = {
    # nvml.h, nvmlClocksEventReason…; a power cap (0x4) is a regime and not among them.
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """Why times say nothing of the kernel: a word that programs read, and a phrase."""

    cause: Literal["interfered", "throttled"]
    words: str


class Watch(Protocol):
    """Looks after a device while a worker measures on it, one case after the other."""

    def begin(self) -> None:
        """Times of a case are taken from now on."""

    def notes(self) -> tuple[str, ...]:
        """What a row measured since then must say."""

    def disturbance(self) -> Disturbance | None:
        """What has spoiled the times taken since then, if anything."""

    def facts(self) -> dict[str, Any]:
        """What was seen since then, for the record; empty if nothing."""

    def pause(self) -> None:
        """The case is done."""

    def close(self) -> None:
        """The worker is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a GPU. `None` is what it did not tell.

    Attributes:
        slowdowns: names from `SLOWDOWNS` that were active.
        foreign: how many processes other than ours had a context on it; `None`: cannot be told.
        busy: how many of these computed; an idle context disturbs nobody.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    slowdowns: frozenset[str] = frozenset()
    foreign: int | None = None
    busy: int | None = None


class NoWatch:
    """The watch over a device that cannot be asked."""

    def begin(self) -> None:
        """Nothing begins."""

    def notes(self) -> tuple[str, ...]:
        """Nothing is known."""
        return ()

    def disturbance(self) -> Disturbance | None:
        """Nothing is known."""
        return None

    def facts(self) -> dict[str, Any]:
        """Nothing was seen."""
        return {}

    def pause(self) -> None:
        """Nothing pauses."""

    def close(self) -> None:
        """Nothing ends."""


class CpuWatch:
    """Whether a worker that measures on the CPU had one when it wanted to run.

    The scheduler counts what a thread waits while it could run: more threads than cores, or somebody
    else's work. Unlike the load of the machine, that is right in a container too.
    """

    def __init__(self, scheduled_ns: Callable[[], tuple[int, int]]) -> None:
        """Look at nothing yet.

        Args:
            scheduled_ns: how long the worker and everything below it ran and waited until now.
        """
        self._scheduled_ns = scheduled_ns
        self._start_ns = (0, 0)

    def begin(self) -> None:
        """Count from now on."""
        self._start_ns = self._scheduled_ns()

    def notes(self) -> tuple[str, ...]:
        """How much of its time the worker waited, if that can be seen in its numbers."""
        share = self._waited()
        if share is None or share < CPU_WAIT_NOTED:
            return ()
        return (f"waited {share:.0%} of its time for a CPU",)

    def disturbance(self) -> Disturbance | None:
        """Nothing that a repetition would mend: who shares the CPU now shares it then."""
        return None

    def facts(self) -> dict[str, Any]:
        """The share of the time that was spent waiting."""
        share = self._waited()
        return {} if share is None else {"cpu_wait": round(share, 4)}

    def pause(self) -> None:
        """Nothing runs here that could pause."""

    def close(self) -> None:
        """Nothing is open."""

    def _waited(self) -> float | None:
        """Share of the time since `begin`; `None` where the kernel does not tell."""
        ran, waited = (
            now - then for now, then in zip(self._scheduled_ns(), self._start_ns, strict=True)
        )
        return max(0.0, min(1.0, waited / (ran + waited))) if ran + waited > 0 else None


class GpuReader:
    """Reads samples of one GPU.

    NVML names processes by the host's process ids. In a container they differ from ours, and then
    "ours" cannot be told from "theirs": only what was there before our worker counts as foreign.
    """

    def __init__(self, library: Any, gpu: nvml.Gpu, own: Callable[[], frozenset[int]]) -> None:
        """Look once, before the worker has a context.

        Args:
            library: `pynvml`, initialised, or a stand-in.
            gpu: where the worker measures; of an instance, clocks and heat are those of the whole.
            own: process ids of the worker and everything below it, now.
        """
        self._nvml = library
        self._handle = gpu.handle
        self._whole = gpu.whole
        self._own = own
        self._ours: frozenset[int] = frozenset()
        self._before = self._processes() or frozenset()
        self._seen_us = 0
        self._busy()  # what was before now is nobody's disturbance

    def sample(self) -> Sample:
        """Look now."""
        foreign, busy = self._foreign(), self._busy()
        power = self._ask("nvmlDeviceGetPowerUsage")
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # the name until driver 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Sample(
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            memory_mhz=self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_MEM),
            power_w=None if power is None else power / 1000,
            temperature_c=self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            slowdowns=frozenset(name for bit, name in SLOWDOWNS.items() if (reasons or 0) & bit),
            foreign=None if foreign is None else len(foreign),
            busy=None if foreign is None or busy is None else len(foreign & busy),
        )

    def _foreign(self) -> frozenset[int] | None:
        """The processes on the GPU that are not ours."""
        now = self._processes()
        if now is None:
            return None
        if not now <= self._ours:  # looking through all processes costs, so only for a new one
            self._ours = self._own()
        if now & self._ours:
            return now - self._ours
        return now & self._before

    def _busy(self) -> frozenset[int] | None:
        """The processes that kept multiprocessors busy since the last look."""
        try:
            used = nvml.read(
                self._nvml, "nvmlDeviceGetProcessUtilization", self._whole, self._seen_us
            )
        except NvmlMissing:  # also where nothing ran since then
            return None
        self._seen_us = max([self._seen_us, *(one.timeStamp for one in used)])
        return frozenset(one.pid for one in used if one.smUtil > 0)

    def _processes(self) -> frozenset[int] | None:
        """Process ids with a compute context, as NVML numbers them."""
        try:
            found = nvml.read(self._nvml, "nvmlDeviceGetComputeRunningProcesses", self._handle)
        except NvmlMissing:
            return None
        return frozenset(process.pid for process in found)

    def _ask(self, function: str, *args: Any) -> Any:
        """One value; `None` where the device does not tell."""
        try:
            return nvml.read(self._nvml, function, self._whole, *args)
        except NvmlMissing:
            return None


class Sampler:
    """A watch that samples in a thread of its own, only while times are taken."""

    def __init__(
        self,
        sample: Callable[[], Sample],
        *,
        period_s: float = PERIOD_S,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        """Start the thread, which waits.

        Args:
            sample: looks at the device once.
            period_s: time between two looks.
            on_close: called when no more samples will be taken.
        """
        self._sample = sample
        self._period_s = period_s
        self._on_close = on_close
        self._samples: list[Sample] = []
        self._measuring = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Forget the case before and sample from now on."""
        self._samples = []
        self._measuring.set()

    def notes(self) -> tuple[str, ...]:
        """Slowdowns and foreign processes seen since `begin`."""
        return notes_of(tuple(self._samples))

    def disturbance(self) -> Disturbance | None:
        """Slowdown or foreign work in more than a moment since `begin`."""
        return disturbance_of(tuple(self._samples))

    def facts(self) -> dict[str, Any]:
        """Lowest, median and highest value of everything seen since `begin`."""
        return facts_of(tuple(self._samples))

    def pause(self) -> None:
        """Sample no more until the next `begin`."""
        self._measuring.clear()

    def close(self) -> None:
        """Stop sampling and wait for the thread."""
        self._closed.set()
        self._measuring.set()
        self._thread.join()
        if self._on_close is not None:
            self._on_close()

    def _run(self) -> None:
        """Look now and then."""
        while True:
            self._measuring.wait()
            if self._closed.is_set():
                return
            self._samples.append(self._sample())
            self._closed.wait(self._period_s)


def notes_of(samples: tuple[Sample, ...]) -> tuple[str, ...]:
    """What makes a number doubtful, one phrase each."""
    slowdowns = sorted({name for sample in samples for name in sample.slowdowns})
    notes = [f"{name} while timed" for name in slowdowns]
    foreign = max((sample.foreign or 0 for sample in samples), default=0)
    if foreign:
        notes.append(f"foreign process on the GPU ({foreign})")
    return tuple(notes)


def disturbance_of(samples: tuple[Sample, ...]) -> Disturbance | None:
    """What spoiled the times in a tenth of the samples or more; foreign work before slowdown."""
    least = DISTURBED_SHARE * len(samples)
    busy = [sample.busy for sample in samples if sample.busy]
    if busy and len(busy) >= least:
        return Disturbance(
            cause="interfered", words=f"a foreign process computed on the GPU ({max(busy)})"
        )
    slowed = [name for sample in samples for name in sorted(sample.slowdowns)]
    for name in sorted(set(slowed)):
        if slowed.count(name) >= least:
            return Disturbance(cause="throttled", words=f"{name} while timed")
    return None


def facts_of(samples: tuple[Sample, ...]) -> dict[str, Any]:
    """Lowest, median and highest of each quantity, by its name with its unit."""
    facts: dict[str, Any] = {}
    for name in ("sm_mhz", "memory_mhz", "power_w", "temperature_c"):
        values = [value for sample in samples if (value := getattr(sample, name)) is not None]
        if values:
            facts[name] = [min(values), statistics.median(values), max(values)]
    if facts:
        facts["samples"] = len(samples)
        facts["slowdowns"] = sorted({name for sample in samples for name in sample.slowdowns})
        known = [sample.foreign for sample in samples if sample.foreign is not None]
        facts["foreign"] = max(known) if known else None
        busy = [sample.busy for sample in samples if sample.busy is not None]
        facts["busy"] = max(busy) if busy else None
    return facts


def watch_device(
    job: Job, pid: int, module: Any = None, environ: Mapping[str, str] | None = None
) -> Watch:
    """The watch over the device that the worker `pid` measures on.

    Args:
        job: says which device.
        pid: process id of the worker, which has no context yet.
        module: a stand-in for `pynvml`.
        environ: the environment of the worker; our own where left out.
    """
    if job.plan.device == "cpu":
        return CpuWatch(partial(processes.scheduled_ns, pid))
    opened = ExitStack()
    try:
        library = opened.enter_context(nvml.session(module))
        gpu = nvml.used(library, environ)
    except NvmlMissing:
        gpu = None
    if gpu is None:
        opened.close()
        return NoWatch()
    reader = GpuReader(library, gpu, lambda: processes.descendants(pid))
    return Sampler(reader.sample, on_close=opened.close)
