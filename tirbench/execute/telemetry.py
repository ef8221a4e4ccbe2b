"""What the GPU went through while times were taken: clocks, power, heat, slowdown, other processes.

Optional: without NVML there is nothing to say, and the run goes on. What is read becomes a note on the
row; nothing here changes a number.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from tirbench.execute import nvml, processes
from tirbench.execute.nvml import NvmlMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.model import Job

PERIOD_S: Final = 0.1

SLOWDOWNS: Final = {
    # nvml.h, nvmlClocksEventReason…; a power cap (0x4) is a regime and not among them.
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "thermal slowdown",
    0x80: "power brake",
}


class Watch(Protocol):
    """Looks after a device while a worker measures on it."""

    def begin(self) -> None:
        """Times are taken from now on; a second call in the same case goes on with the first."""

    def notes(self) -> tuple[str, ...]:
        """What a row measured since then must say; also what ends the watch over this case."""

    def close(self) -> None:
        """The worker is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a GPU. `None` is what it did not tell.

    Attributes:
        slowdowns: names from `SLOWDOWNS` that were active.
        foreign: how many processes other than ours had a context on it; `None`: cannot be told.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    slowdowns: frozenset[str] = frozenset()
    foreign: int | None = None


class NoWatch:
    """The watch over a device that cannot be asked."""

    def begin(self) -> None:
        """Nothing begins."""

    def notes(self) -> tuple[str, ...]:
        """Nothing is known."""
        return ()

    def close(self) -> None:
        """Nothing ends."""


class GpuReader:
    """Reads samples of one GPU.

    NVML names processes by the host's process ids. In a container they differ from ours, and then
    "ours" cannot be told from "theirs": only what was there before our worker counts as foreign.
    """

    def __init__(self, library: Any, handle: Any, own: Callable[[], frozenset[int]]) -> None:
        """Look once, before the worker has a context.

        Args:
            library: `pynvml`, initialised, or a stand-in.
            handle: NVML's handle of the GPU.
            own: process ids of the worker and everything below it, now.
        """
        self._nvml = library
        self._handle = handle
        self._own = own
        self._before = self._processes() or frozenset()

    def sample(self) -> Sample:
        """Look now."""
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
            foreign=self._foreign(),
        )

    def _foreign(self) -> int | None:
        """How many processes on the GPU are not ours."""
        now = self._processes()
        if now is None:
            return None
        own = self._own()
        if now & own:
            return len(now - own)
        return len(now & self._before)

    def _processes(self) -> frozenset[int] | None:
        """Process ids with a compute context, as NVML numbers them."""
        found = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return None if found is None else frozenset(process.pid for process in found)

    def _ask(self, function: str, *args: Any) -> Any:
        """One value; `None` where the device does not tell."""
        try:
            return nvml.read(self._nvml, function, self._handle, *args)
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
        """Sample from now on, until `close`."""
        self._measuring.set()

    def samples(self) -> tuple[Sample, ...]:
        """What was seen since `begin`."""
        return tuple(self._samples)

    def notes(self) -> tuple[str, ...]:
        """Slowdowns and foreign processes seen since `begin`, and the range of the clock."""
        return summary(self.samples())

    def close(self) -> None:
        """Stop sampling and wait for the thread."""
        self._closed.set()
        self._measuring.set()
        self._thread.join()
        if self._on_close is not None:
            self._on_close()

    def _run(self) -> None:
        """Look now and then."""
        self._measuring.wait()
        while not self._closed.is_set():
            self._samples.append(self._sample())
            self._closed.wait(self._period_s)
