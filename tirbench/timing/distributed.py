"""Measuring over ranks: the slowest rank of every launch, as DeepGEMM's `bench_kineto` prepares it.

Every rank makes the same collective calls whatever happens to it. A rank that fails goes on meeting the
barriers of the phase, and after each phase all ranks vote with `max_reduce`; so nobody waits for a
rank that has left. (A kernel that waits on the GPU for a rank that never launched is beyond this: the
launcher's deadline ends it.)
"""

from __future__ import annotations

import contextlib
import math
import uuid
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tirbench.errors import AttributionError, ImpossibleTime, MeasurementError
from tirbench.timing import references
from tirbench.timing.kineto import KinetoSession, TorchKineto, attribute_events, span_record
from tirbench.timing.plan import Call, CallFailed, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tirbench.timing.activity import GpuEvent
    from tirbench.timing.context import DistributedBenchContext
    from tirbench.timing.plan import Closure
    from tirbench.timing.references import Failures
    from tirbench.timing.request import Request

T = TypeVar("T")

# Fixed by the public protocol: deepseek-ai/DeepGEMM, deep_gemm/testing/bench.py (bench_kineto), through
# the API page: the same counts on all ranks, or in-kernel collectives deadlock.
WARMUP_ITERATIONS: Final = 5
REPEAT_ITERATIONS: Final = 30
FLUSH_BYTES: Final = 8_000_000_000
GPU_SLEEP_CYCLES: Final = 20_000_000


class DistributedDevice(Protocol):
    """What a rank needs of its GPU."""

    def on_stream(self, stream: object) -> contextlib.AbstractContextManager[object]:
        """Make the stream current."""

    def cold_start(self, flush_bytes: int, sleep_cycles: int) -> None:
        """Enqueue an L2 flush of so many bytes and a busy wait on the GPU."""


class Vote(IntEnum):
    """What a rank says after a phase; the worst vote of all ranks decides."""

    FINE = 0
    SKIPPED = 1
    RECORDS_LOST = 2
    FAILED = 3
    ABORTED = 4


def vote(context: DistributedBenchContext, own: Vote) -> Vote:
    """The worst vote of all ranks; a collective call."""
    return Vote(round(context.max_reduce(float(own))))


def on_all_ranks(context: DistributedBenchContext, what: str, action: Callable[[], T]) -> T:
    """The result of the action if it succeeds on every rank.

    Raises:
        Exception: what the action raised here.
        MeasurementError: it failed on another rank.
    """
    results: list[T] = []
    failure = _attempt(lambda: results.append(action()))
    if vote(context, _vote(failure)) is not Vote.FINE:
        raise failure or MeasurementError(f"{what} failed on another rank")
    return results[0]


@dataclass(slots=True, kw_only=True)
class RankSamples:
    """The samples of one implementation, one list per round, µs."""

    slowest_us: list[list[float]] = field(default_factory=list)
    ranks_us: list[list[list[float]]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def medians_us(self) -> list[float]:
        """Median of each round's slowest-rank samples."""
        return [median(samples) for samples in self.slowest_us]

    def mean_us(self) -> float:
        """Mean over rounds of the medians."""
        return fmean(self.medians_us())

    def skew_us(self) -> list[list[float]]:
        """Slowest minus fastest rank, for every sample of every round."""
        return [[max(ranks) - min(ranks) for ranks in samples] for samples in self.ranks_us]


@dataclass(slots=True, kw_only=True)
class DistributedRun:
    """One call of `bench()` on one rank.

    Args:
        request: what to measure.
        context: this rank.
        device: its GPU.
        failures: told about failing references, the same on every rank.
        sleep: idles the host.
        open_session: opens a Kineto session.
    """

    request: Request
    context: DistributedBenchContext
    device: DistributedDevice
    failures: Failures
    sleep: Callable[[float], None]
    open_session: Callable[[], KinetoSession] = TorchKineto
    calls: dict[str, Call] = field(default_factory=dict, init=False)
    samples: dict[str, RankSamples] = field(default_factory=dict, init=False)

    def measure(self) -> None:
        """Build the references, then measure every implementation in every round."""
        self._build()
        for _ in range(self.request.rounds):
            for name in list(self.calls):
                if self.request.cooldown_s > 0:
                    self.sleep(self.request.cooldown_s)
                self._measure_one(self.calls[name])

    def vote(self, own: Vote) -> Vote:
        """The worst vote of all ranks."""
        return vote(self.context, own)

    def _build(self) -> None:
        launches: dict[str, Closure] = dict(self.request.funcs)
        for name, builder in self.request.references.items():
            launch = self._build_one(name, builder)
            if launch is not None:
                launches[name] = launch
        self.calls = {
            name: Call(name=name, launch=launch, prepare=self.request.prepare.get(name))
            for name, launch in launches.items()
        }

    def _build_one(self, name: str, builder: Closure) -> Closure | None:
        """Build a reference on every rank, or have it on none."""
        wrong_type: TypeError | None = None
        built: Mapping[str, Closure] = {}
        try:
            built = references.build({name: builder}, self.failures)
        except TypeError as error:
            wrong_type = error
        failed = name in self.failures.errors
        own = Vote.FAILED if failed else Vote.FINE if built else Vote.SKIPPED
        worst = self.vote(own if wrong_type is None else Vote.ABORTED)
        if worst is Vote.ABORTED:
            raise wrong_type or MeasurementError(f"reference {name!r} is wrong on another rank")
        if worst is Vote.FAILED and own is not Vote.FAILED:
            self.failures.skipped.pop(name, None)
            self.failures.add(name, MeasurementError("its builder failed on another rank"), "build")
        elif worst is Vote.SKIPPED and own is Vote.FINE:
            self.failures.skipped[name] = "its builder returned None on another rank"
        return built[name] if worst is Vote.FINE else None

    def _measure_one(self, call: Call) -> None:
        """Warm up, measure, and reduce; on every rank, or on none."""
        with self.device.on_stream(self.context.stream):
            failure = self._iterate(call, WARMUP_ITERATIONS, lambda _: contextlib.nullcontext())
            if not self._settled(call.name, failure):
                return
            records, failure = self._profile(call)
            lost = isinstance(failure, AttributionError)
            if self.vote(Vote.RECORDS_LOST if lost else _vote(failure)) is Vote.RECORDS_LOST:
                # Kineto drops records now and then; all ranks measure once more, or none does.
                records, failure = self._profile(call)
        if self._settled(call.name, failure):
            self._reduce(call.name, records)
            self.context.barrier()

    def _iterate(
        self,
        call: Call,
        times: int,
        scope: Callable[[int], contextlib.AbstractContextManager[object]],
    ) -> Exception | None:
        """Launch so many times, each with one barrier; the first failure, after all barriers are met."""
        failure: Exception | None = None
        for index in range(times):
            if failure is None:
                failure = _attempt(partial(self._before_barrier, call))
            self.context.barrier()
            if failure is None:
                failure = _attempt(partial(self._after_barrier, call, scope, index))
        return failure

    def _before_barrier(self, call: Call) -> None:
        call.precede()
        self.device.cold_start(FLUSH_BYTES, GPU_SLEEP_CYCLES)

    def _after_barrier(
        self,
        call: Call,
        scope: Callable[[int], contextlib.AbstractContextManager[object]],
        index: int,
    ) -> None:
        with scope(index):
            call.launch()
        self.context.stream.synchronize()

    def _profile(self, call: Call) -> tuple[list[Record], Exception | None]:
        """This rank's spans of the measured iterations, or what kept it from having them."""
        prefix = f"tirbench.{uuid.uuid4().hex}"
        scopes = [f"{prefix}.{index:08d}" for index in range(REPEAT_ITERATIONS)]
        opened: list[KinetoSession] = []
        events: list[GpuEvent] = []
        failure = _attempt(lambda: opened.append(self.open_session()))
        if failure is not None:
            for _ in scopes:
                self.context.barrier()
            return [], failure
        session = opened[0]
        failure = self._iterate(call, REPEAT_ITERATIONS, lambda index: session.scope(scopes[index]))
        ended = _attempt(lambda: events.extend(session.finish()))
        failure = failure or ended
        if failure is not None:
            return [], failure
        try:
            found = attribute_events(events, scopes, [call.name] * len(scopes))
            return [span_record(call.name, spans, work) for spans, work in found], None
        except CallFailed as failed:
            return [], failed.error

    def _settled(self, name: str, failure: Exception | None) -> bool:
        """Whether all ranks succeeded; a failing reference is out on all of them, a kernel raises."""
        if self.vote(_vote(failure)) is Vote.FINE:
            return True
        error = failure or MeasurementError(f"{name!r} failed on another rank")
        if name not in self.request.references:
            raise error
        self.failures.add(name, error, "launch")
        self.calls.pop(name)
        self.samples.pop(name, None)
        return False

    def _reduce(self, name: str, records: list[Record]) -> None:
        """Slowest rank of every sample, and the whole table of ranks beside it.

        The table comes from max-reduces too, the one collective that a context has: each rank in
        turn contributes its sample while the others contribute 0.
        """
        slowest_us = [self.context.max_reduce(record.time_us) for record in records]
        wrong = [value for value in slowest_us if not (math.isfinite(value) and value > 0)]
        if wrong:
            raise ImpossibleTime(f"max_reduce returned {wrong[0]!r} µs for {name!r}")
        ranks_us = [
            [
                self.context.max_reduce(record.time_us if rank == self.context.rank else 0.0)
                for rank in range(self.context.world_size)
            ]
            for record in records
        ]
        samples = self.samples.setdefault(name, RankSamples())
        samples.slowest_us.append(slowest_us)
        samples.ranks_us.append(ranks_us)
        samples.records += records


def protocol(request: Request, run: DistributedRun) -> dict[str, object]:
    """The protocol of a distributed measurement."""
    return {
        "source": "kineto",
        "timing_scope": "tirbench.<id>.<sample>",
        "span_definition": "first start to last end of all correlated GPU activities",
        "timing_stream": str(getattr(run.context.stream, "cuda_stream", run.context.stream)),
        "all_correlated_streams": True,
        "warmup_iterations": WARMUP_ITERATIONS,
        "repeat_iterations": REPEAT_ITERATIONS,
        "flush_l2": True,
        "flush_l2_bytes": FLUSH_BYTES,
        "gpu_sleep_cycles": GPU_SLEEP_CYCLES,
        "rank_barrier_before_each_launch": True,
        "cold_start_outside_scope": True,
        "prepare_outside_scope": True,
        "rank_aggregate": "sample_wise_max",
        "sample_aggregate": "median",
        "round_aggregate": "mean",
        "world_size": run.context.world_size,
        "rounds": request.rounds,
        "cooldown_s": request.cooldown_s,
        "order": list(run.samples),
        "rank_local_scope_stream_counts": {
            name: [
                record.activity.streams for record in samples.records if record.activity is not None
            ]
            for name, samples in run.samples.items()
        },
    }


def _vote(failure: Exception | None) -> Vote:
    return Vote.FINE if failure is None else Vote.FAILED


def _attempt(action: Callable[[], object]) -> Exception | None:
    """What the action raised: the rank must go on to its collectives whatever that is."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  # foreign code; kept, voted on, raised afterwards
        return error
    return None
