"""The public function `bench()`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

from tirbench.timing import references as reference_builders
from tirbench.timing.device import CudaDevice, open_cuda
from tirbench.timing.distributed import DistributedRun, on_all_ranks
from tirbench.timing.flush import BUFFERS
from tirbench.timing.local import LocalRun
from tirbench.timing.plan import Call, Closure, Timer
from tirbench.timing.references import Failures
from tirbench.timing.request import Request, validate
from tirbench.timing.result import distributed_result, local_result
from tirbench.timing.timers.common import require_no_capture
from tirbench.timing.timers.cudagraph_proton import CudagraphProtonTimer
from tirbench.timing.timers.event import EventTimer
from tirbench.timing.timers.kineto import KinetoTimer
from tirbench.timing.timers.proton import ProtonTimer
from tirbench.timing.timers.wall import NoDevice, WallTimer

if TYPE_CHECKING:
    from tirbench.model import L2Policy, Regime, TimerName
    from tirbench.timing.context import DistributedBenchContext
    from tirbench.timing.schedule import Order

GPU_TIMERS: Mapping[str, Callable[..., Timer]] = {
    "event": EventTimer,
    "proton": ProtonTimer,
    "cudagraph_proton": CudagraphProtonTimer,
    "kineto": KinetoTimer,
}


def bench(  # noqa: PLR0913  # the public API page fixes the signature
    funcs: Mapping[str, Closure],
    *,
    warmup: float | None = None,
    repeat: float | None = None,
    cudagraph_rep: float | None = None,
    timer: TimerName | None = None,
    references: Mapping[str, Callable[[], Closure | None]] | None = None,
    cooldown_s: float = 1.0,
    rounds: int = 1,
    distributed: DistributedBenchContext | None = None,
    prepare: Mapping[str, Closure] | None = None,
    order: Order = "blocked",
    calls: int | Literal["auto"] | None = None,
    l2: L2Policy = "cold-dirty",
    regime: Regime | None = None,
    device: object = None,
) -> dict[str, Any]:
    """Time pure-launch implementations with Triton's protocols; times are in microseconds.

    Every closure takes no argument and launches one implementation on inputs that it has captured. A
    timer that cannot run raises and says what to do; another timer's number never takes its place.

    Args:
        funcs: our kernels, by name. One that fails raises its own exception.
        warmup: warm-up budget, ms; None defers to the timer. Ignored by `cudagraph_proton`.
        repeat: budget of timed calls, ms; None defers to the timer. Ignored by `cudagraph_proton`.
        cudagraph_rep: length of the graph of `cudagraph_proton`, ms; None defers to the timer.
        timer: `event` (two events around each call, as `triton.testing.do_bench`), `proton` (sum of the
            durations of the kernels of each call), `cudagraph_proton` (the same in a replayed graph),
            `kineto` (span of everything a call does on any stream) or `wall` (CPU work). None is
            `proton`, or `kineto` when `distributed` is given.
        references: builders of what we are compared with, by name: each runs once, imports what is
            heavy and returns the launch closure, or None to be skipped. A reference that fails at
            build or launch is a line `BASELINE_ERROR: …` on stderr and an entry in `errors`.
        cooldown_s: seconds to sleep before each implementation in every round (once a round when
            interleaved).
        rounds: independent rounds; `impls` is the mean over them.
        distributed: rank, barrier, max-reduce and stream of a measurement over ranks; fixes the
            iteration counts.
        prepare: callbacks by implementation that put its inputs back before each call, outside of the
            timed interval.
        order: `blocked`, one implementation after the other, or `interleaved`, short sub-blocks in
            balanced order among implementations within a factor of two of each other.
        calls: timed calls per implementation and round instead of a budget; `auto` takes as many,
            over all rounds, as the duration needs for a threshold of 1 %.
        l2: state of the L2 cache before a call: `cold-dirty` (zeroes are written, as Triton does),
            `cold-clean` (and another buffer is read then) or `warm`. Before either of the first two the
            cache lets go of lines that kernels asked it to keep, which zeroes alone do not replace.
        regime: `burst` (at most 15 ms of work, then at least 20 ms of rest), `sustained` (200 ms of work
            before the first timed call, no rest), or None: as the budgets make it.
        device: the CUDA device to time on; None is torch's current one.

    Returns:
        `impls` {name: µs}, `round_samples` {name: [µs per round]}, `errors`, `error_types` and `tracebacks`
        {reference: text}, `skipped` {reference: reason}, `timer`, `benchmark_protocol` (effective values,
        counts, device), `samples` {name: [[µs per call] per round]} and `activity` {name: busy, span and
        sum in µs, kernels and their names} where the timer knows them.

    Raises:
        TypeError: an argument is of a wrong type.
        ValueError: its value is out of range or contradicts another.
        TimerError: the timer cannot run here, or cannot stand for its number.
    """
    request = validate(
        funcs,
        warmup=warmup,
        repeat=repeat,
        cudagraph_rep=cudagraph_rep,
        timer=timer,
        references=references,
        cooldown_s=cooldown_s,
        rounds=rounds,
        distributed=distributed,
        prepare=prepare,
        order=order,
        calls=calls,
        l2=l2,
        regime=regime,
        device=device,
    )
    if request.distributed is not None:
        return _bench_ranks(request, request.distributed)
    if request.timer == "wall":
        return _bench_cpu(request)
    return _bench_gpu(request)


def _bench_cpu(request: Request) -> dict[str, Any]:
    wall = WallTimer(sleep=time.sleep, clock_ns=time.perf_counter_ns, gpu_is_busy=gpu_is_busy)
    wall.require_cpu(request.device)
    run = run_local(request, wall, None, NoDevice().synchronize)
    return local_result(run, device="cpu", flush_bytes=0)


def _bench_gpu(request: Request) -> dict[str, Any]:
    device = open_cuda(request.device, request.timer)
    with device.active():
        timer = GPU_TIMERS[request.timer](
            device=device, sleep=time.sleep, clock_ns=time.perf_counter_ns
        )
        timer.require()
        flush = BUFFERS.flush(device, request.l2)
        run = run_local(request, timer, flush, device.synchronize)
    flush_bytes = 0 if flush is None else device.flush_bytes
    return local_result(run, device=device.name, flush_bytes=flush_bytes)


def run_local(
    request: Request,
    timer: Timer,
    flush: Closure | None,
    alive: Closure,
    sleep: Callable[[float], None] = time.sleep,
) -> LocalRun:
    """Build the references, then measure everything with the timer."""
    failures = Failures()
    launches = {
        **request.funcs,
        **reference_builders.build(request.references, failures),
    }
    run = LocalRun(
        request=request,
        timer=timer,
        calls={
            name: Call(name=name, launch=launch, prepare=request.prepare.get(name), flush=flush)
            for name, launch in launches.items()
        },
        references=frozenset(request.references),
        failures=failures,
        alive=alive,
        sleep=sleep,
    )
    run.measure()
    return run


class RankDevice:
    """The GPU of a rank, through torch.cuda."""

    def __init__(self, device: CudaDevice) -> None:
        """Look at that GPU, which is the current one."""
        self._device = device
        self._flush = BUFFERS.flush(device, "cold-dirty")

    def on_stream(self, stream: Any) -> contextlib.AbstractContextManager[object]:
        """Make the stream current."""
        current: contextlib.AbstractContextManager[object] = torch.cuda.stream(stream)
        return current

    def cold_start(self, flush_bytes: int, sleep_cycles: int) -> None:
        """Write a buffer of so many bytes, then keep the GPU waiting for so many cycles.

        The buffer goes back to the allocator before the launch, which may need the memory. Kept lines of
        the L2 cache, which outlast it, are let go before.
        """
        if self._flush is not None:
            self._flush()
        torch.empty(
            flush_bytes // 4, dtype=torch.int32, device=f"cuda:{self._device.index}"
        ).zero_()
        torch.cuda._sleep(sleep_cycles)  # noqa: SLF001  # as DeepGEMM; there is no public busy wait


def _bench_ranks(request: Request, context: DistributedBenchContext) -> dict[str, Any]:
    def open_device() -> tuple[CudaDevice, RankDevice]:
        device = open_cuda(request.device, request.timer)
        require_no_capture(device, request.timer)
        with device.active():
            return device, RankDevice(device)

    device, of_rank = on_all_ranks(context, "opening the device", open_device)
    with device.active():
        run = DistributedRun(
            request=request,
            context=context,
            device=of_rank,
            failures=Failures(),
            sleep=time.sleep,
        )
        run.measure()
    return distributed_result(run, device=device.name)


def gpu_is_busy() -> bool:
    """Whether the current stream of this process's GPU has work that is not done."""
    return torch.cuda.is_initialized() and not torch.cuda.current_stream().query()
