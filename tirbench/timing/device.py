"""The device that a timer drives: a thin view of torch.cuda, small enough to be faked in ten lines."""

from __future__ import annotations

import contextlib
import gc
import math
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from tirbench.errors import CaptureError, TimerUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tirbench.timing.plan import Closure

# As triton's get_empty_cache_for_benchmark: 256 MiB of int32, whatever the device. A device with
# more than 128 MiB of L2 gets twice its L2 instead (triton-lang/triton#3943, NVIDIA/TileGym#118).
FLUSH_BYTES: Final = 256 << 20

# No GPU has a faster clock by now: a wait of so many cycles per µs takes at least as long as it should.
FASTEST_MHZ: Final = 3_000

# Graphs whose capture has failed. torch's allocators keep a pointer to the graph of a capture that did not
# end, so it must outlive them.
_UNENDED: Final[list[object]] = []


class Event(Protocol):
    """A point on a stream."""

    def record(self) -> object:
        """Mark the current point of the current stream."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this event to `end`."""


class Graph(Protocol):
    """A captured graph."""

    def replay(self) -> object:
        """Launch all of it on the current stream."""


class Device(Protocol):
    """What timers need of a GPU."""

    @property
    def is_hip(self) -> bool:
        """Whether torch is built for ROCm."""

    def synchronize(self) -> None:
        """Wait until the device has nothing left to do."""

    def synchronize_stream(self) -> None:
        """Wait until the current stream has nothing left to do."""

    def event(self) -> Event:
        """A new event with timing."""

    def is_capturing(self) -> bool:
        """Whether a graph is being captured on the current stream."""

    def side_stream(self) -> contextlib.AbstractContextManager[object]:
        """Make a stream current that is neither the default stream nor anyone else's."""

    def graph_pool(self) -> object:
        """Memory for the graphs of one measurement; of no use once they are gone."""

    def capture(self, body: Closure, pool: object) -> Graph:
        """Capture what `body` launches on the current stream, with garbage collection off.

        Whatever happens in `body`, the process can go on afterwards.
        """

    def fill_one(self) -> None:
        """Launch the smallest kernel there is: write one element."""

    def wait(self, us: float) -> None:
        """Launch what does nothing for about so long, at least."""


class CudaDevice:
    """One GPU through torch.cuda (CUDA or ROCm)."""

    def __init__(self, index: int) -> None:
        """Look at the GPU with that index; the context is created by whoever launches first."""
        self.index = index
        properties = torch.cuda.get_device_properties(index)
        self.name: str = properties.name
        self.l2_bytes: int = getattr(properties, "L2_cache_size", 0)
        self._one: torch.Tensor | None = None

    @property
    def is_hip(self) -> bool:
        """Whether torch is built for ROCm."""
        return torch.version.hip is not None

    @property
    def flush_bytes(self) -> int:
        """Size of a flush buffer: Triton's, or twice a larger L2."""
        return max(FLUSH_BYTES, 2 * self.l2_bytes)

    def active(self) -> contextlib.AbstractContextManager[object]:
        """Make this GPU torch's current one."""
        active: contextlib.AbstractContextManager[object] = torch.cuda.device(self.index)
        return active

    def synchronize(self) -> None:
        """Wait until the device has nothing left to do."""
        torch.cuda.synchronize(self.index)

    def synchronize_stream(self) -> None:
        """Wait until the current stream has nothing left to do."""
        torch.cuda.current_stream(self.index).synchronize()

    def stream(self) -> int:
        """The handle of the current stream."""
        handle: int = torch.cuda.current_stream(self.index).cuda_stream
        return handle

    def event(self) -> Event:
        """A new event with timing."""
        event: Event = torch.cuda.Event(enable_timing=True)
        return event

    def is_capturing(self) -> bool:
        """Whether a graph is being captured on the current stream."""
        return bool(torch.cuda.is_current_stream_capturing())

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        """Make a new stream current, ordered after the work before and before the work after it."""
        outer = torch.cuda.current_stream(self.index)
        side = torch.cuda.Stream(self.index)
        side.wait_stream(outer)
        with torch.cuda.stream(side):
            yield
        outer.wait_stream(side)

    def graph_pool(self) -> object:
        """Memory that graphs share for what their launches allocate, with as much of it free as can be.

        Nothing of it is needed after the launch, and a pool for each of many small graphs would multiply
        it. torch drops a pool with the last of its graphs. During a capture its allocator cannot give
        back what it holds unused, so that is done here.
        """
        self.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        pool: object = torch.cuda.graph_pool_handle()
        return pool

    def capture(self, body: Closure, pool: object) -> Graph:
        """Capture what `body` launches on the current stream.

        The cyclic garbage collector is off meanwhile: the finaliser of a kernel would unload its module
        and make the capture invalid (as triton.testing of Triton 3.9).

        Raises:
            Exception: what `body` raised, or why the capture is invalid.
            CaptureError: torch could not be brought back to work after that.
        """
        graph: Any = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        ended = False
        gc.disable()
        try:
            # Not `torch.cuda.graph`: it would drain the device and empty torch's cache for each of
            # many small graphs, and it leaves its stream current when the capture fails.
            graph.capture_begin(pool=pool)
            try:
                body()
            finally:
                graph.capture_end()
                ended = True
        except Exception as error:
            if not ended:
                self._recover(graph, pool, error)
            raise
        finally:
            if collecting:
                gc.enable()
        captured: Graph = graph
        return captured

    def _recover(self, graph: Any, pool: object, error: Exception) -> None:
        """Bring torch back to work after a capture that failed with `error`."""
        try:
            self._abandon(graph, pool)
        except Exception as stuck:  # noqa: BLE001 - torch and CUDA may say anything here
            raise CaptureError(
                f"torch does not work any more after the failed capture ({stuck}): go on in another "
                "process"
            ) from error

    def _abandon(self, graph: Any, pool: object) -> None:
        """Undo in torch what a capture has begun that CUDA has called invalid.

        By then the stream is out of the capture, but torch 2.11 throws halfway through `capture_end`: its
        generator stays in capture mode, where every later draw and every replay of a graph with draws
        fails with "Offset increment outside graph capture encountered unexpectedly", and its
        allocator goes on serving the capture and keeps the memory.
        """
        _UNENDED.append(graph)
        # No public function ends what `capture_begin` has begun in the allocator. A version of torch that
        # has ended it by itself answers with an error.
        for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            with contextlib.suppress(RuntimeError, AttributeError):
                getattr(torch._C, name)(self.index, pool)  # noqa: SLF001
        # A capture that succeeds takes the generator out of its mode. One without nodes would warn.
        self.fill_one()
        another: Any = torch.cuda.CUDAGraph()
        another.capture_begin()
        self.fill_one()
        another.capture_end()

    def fill_one(self) -> None:
        """Write one element."""
        if self._one is None:
            self._one = torch.empty(1, dtype=torch.int32, device=f"cuda:{self.index}")
        self._one.zero_()

    def wait(self, us: float) -> None:
        """Let the current stream wait for so many cycles of the fastest clock that there is."""
        cycles = math.ceil(us * FASTEST_MHZ)
        torch.cuda._sleep(cycles)  # noqa: SLF001  # as DeepGEMM; there is no public busy wait


def open_cuda(device: object, timer: str) -> CudaDevice:
    """The GPU to time on: `device`, or torch's current one when None.

    Raises:
        ValueError: `device` names no device at all.
        TimerUnavailable: there is no such GPU.
    """
    if not torch.cuda.is_available():
        raise TimerUnavailable(
            f"timer {timer!r} needs a GPU and torch finds no CUDA device on this machine; "
            "timer='wall' times CPU work"
        )
    if device is None:
        return CudaDevice(torch.cuda.current_device())
    try:
        chosen = torch.device(f"cuda:{device}" if isinstance(device, int) else str(device))
    except RuntimeError as error:
        raise ValueError(f"device must be a CUDA device, got {device!r}") from error
    if chosen.type != "cuda":
        raise TimerUnavailable(
            f"timer {timer!r} times a CUDA device, not {str(chosen)!r}; timer='wall' times CPU work"
        )
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    if index >= torch.cuda.device_count():
        raise TimerUnavailable(
            f"timer {timer!r}: no device cuda:{index}; torch sees {torch.cuda.device_count()}"
        )
    return CudaDevice(index)
