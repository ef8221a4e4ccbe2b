"""Ranks as threads: slowest rank of every sample, and nobody waits for a rank that has left."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest

from tirbench.errors import ImpossibleTime, MeasurementError
from tirbench.timing import DistributedBenchContext
from tirbench.timing.distributed import (
    REPEAT_ITERATIONS,
    WARMUP_ITERATIONS,
    DistributedRun,
    on_all_ranks,
)
from tirbench.timing.fake import FakeGpu, FakeKineto
from tirbench.timing.references import Failures
from tirbench.timing.request import Request
from tirbench.timing.result import distributed_result

TIMEOUT_S = 5.0  # a rank that waits longer than this would wait for ever


class World:
    """A barrier and a max-reduce over threads that fail instead of waiting for ever."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=TIMEOUT_S)
        self._values = [0.0] * size
        self.barriers = 0

    def barrier(self) -> None:
        if self._barrier.wait() == 0:
            self.barriers += 1

    def max_reduce(self, rank: int, value: float) -> float:
        self._values[rank] = value
        self._barrier.wait()
        largest = max(self._values)
        self._barrier.wait()
        return largest


class Stream:
    def __init__(self, gpu: FakeGpu) -> None:
        self.synchronize = gpu.synchronize


class RankGpu:
    """A rank's view of its GPU."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    @contextlib.contextmanager
    def on_stream(self, _: object) -> Iterator[None]:
        yield

    def cold_start(self, flush_bytes: int, sleep_cycles: int) -> None:
        assert (flush_bytes, sleep_cycles) == (8_000_000_000, 20_000_000)
        self.gpu.kernel(3000.0, "flush")()
        self.gpu.kernel(10_000.0, "sleep")()


Make: TypeAlias = Callable[[int, FakeGpu], dict[str, Any]]
"""From the rank and its GPU to the arguments of `bench()` and, as `session`, how Kineto opens."""


def run_ranks(
    make_request: Callable[..., Request], make: Make, size: int = 2
) -> list[dict[str, Any] | BaseException]:
    """`bench()` on every rank; what each returned or raised."""
    world = World(size)

    def rank_main(rank: int) -> dict[str, Any]:
        gpu = FakeGpu()
        options = make(rank, gpu)
        session = options.pop("session", lambda: FakeKineto(gpu))
        context = DistributedBenchContext(
            rank=rank,
            world_size=size,
            barrier=world.barrier,
            max_reduce=lambda value: world.max_reduce(rank, value),
            stream=Stream(gpu),
        )
        request = make_request(distributed=context, cooldown_s=0.0, **options)
        run = DistributedRun(
            request=request,
            context=context,
            device=RankGpu(gpu),
            failures=Failures(report=lambda _: None),
            sleep=gpu.sleep,
            open_session=session,
        )
        run.measure()
        return distributed_result(run, device="fake") | {"log": gpu.log}

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(rank_main, rank) for rank in range(size)]
        return [future.exception(30) or future.result() for future in futures]


def succeeded(outcomes: list[dict[str, Any] | BaseException]) -> list[dict[str, Any]]:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, dict)]


def test_the_slowest_rank_of_every_sample_counts_and_ranks_are_kept_beside_it(
    make_request: Callable[..., Request],
) -> None:
    def make(rank: int, gpu: FakeGpu) -> dict[str, Any]:
        return {"funcs": {"f": gpu.kernel(10.0 + 5.0 * rank)}, "rounds": 2}

    for result in succeeded(run_ranks(make_request, make, size=3)):
        assert result["timer"] == "kineto"
        assert result["impls"] == {"f": 20.0}
        assert result["round_samples"] == {"f": [20.0, 20.0]}
        assert result["samples"]["f"] == [[20.0] * REPEAT_ITERATIONS] * 2
        assert result["rank_samples"]["f"][0][0] == [10.0, 15.0, 20.0]
        assert result["rank_skew"]["f"][1] == [10.0] * REPEAT_ITERATIONS
        protocol = result["benchmark_protocol"]
        assert protocol["rank_aggregate"] == "sample_wise_max"
        assert protocol["sample_aggregate"] == "median"
        assert protocol["world_size"] == 3
        assert protocol["flush_l2_bytes"] == 8_000_000_000
        assert protocol["rank_local_scope_stream_counts"]["f"] == [1] * 60


def test_a_sample_is_the_median_over_iterations_and_the_mean_over_rounds(
    make_request: Callable[..., Request],
) -> None:
    def make(_: int, gpu: FakeGpu) -> dict[str, Any]:
        made: list[int] = []

        def launch() -> None:
            made.append(1)
            number = len(made) - WARMUP_ITERATIONS
            gpu.run_us(1000.0 if number == 3 else 10.0)

        return {"funcs": {"f": launch}}

    (result,) = succeeded(run_ranks(make_request, make, size=1))
    assert max(result["samples"]["f"][0]) == 1000.0
    assert result["impls"]["f"] == 10.0


def test_prepare_flush_and_sleep_come_before_every_launch_and_are_not_timed(
    make_request: Callable[..., Request],
) -> None:
    def make(_: int, gpu: FakeGpu) -> dict[str, Any]:
        return {
            "funcs": {"f": gpu.kernel(10.0, "f")},
            "prepare": {"f": gpu.kernel(70.0, "reset")},
        }

    for result in succeeded(run_ranks(make_request, make)):
        launches = [entry for entry in result["log"] if not entry.startswith(("drain", "kineto"))]
        iterations = WARMUP_ITERATIONS + REPEAT_ITERATIONS
        assert launches == ["reset", "flush", "sleep", "f"] * iterations
        assert result["impls"]["f"] == 10.0


@pytest.mark.parametrize("launches", [0, 2, WARMUP_ITERATIONS, WARMUP_ITERATIONS + 9])
@pytest.mark.parametrize("role", ["func", "reference"])
def test_a_rank_that_fails_leaves_nobody_waiting(
    make_request: Callable[..., Request], role: str, launches: int
) -> None:
    def make(rank: int, gpu: FakeGpu) -> dict[str, Any]:
        made: list[int] = []

        def launch() -> None:
            made.append(1)
            if rank == 1 and len(made) > launches:
                raise RuntimeError("NVSHMEM: out of symmetric memory")
            gpu.run_us(10.0)

        fine = gpu.kernel(20.0)
        if role == "func":
            return {"funcs": {"bad": launch, "f": fine}}
        return {"funcs": {"f": fine}, "references": {"bad": lambda: launch}, "rounds": 2}

    outcomes = run_ranks(make_request, make)
    if role == "func":
        other, own = outcomes
        assert isinstance(own, RuntimeError)
        assert "symmetric memory" in str(own)
        assert isinstance(other, MeasurementError)
        assert "'bad' failed on another rank" in str(other)
        return
    other, own = succeeded(outcomes)
    assert own["impls"] == other["impls"] == {"f": 20.0}
    assert "symmetric memory" in own["errors"]["bad"]
    assert "failed on another rank" in other["errors"]["bad"]


@pytest.mark.parametrize("failing", ["prepare", "session", "finish"])
def test_whatever_fails_on_one_rank_is_settled_on_all(
    make_request: Callable[..., Request], failing: str
) -> None:
    def fail() -> Any:
        raise RuntimeError(f"{failing} failed")

    def make(rank: int, gpu: FakeGpu) -> dict[str, Any]:
        options: dict[str, Any] = {"funcs": {"f": gpu.kernel(10.0)}}
        if rank == 0:
            return options
        if failing == "prepare":
            return options | {"prepare": {"f": fail}}
        if failing == "session":
            return options | {"session": fail}

        def opened() -> FakeKineto:
            session = FakeKineto(gpu)
            session.finish = fail  # type: ignore[method-assign]
            return session

        return options | {"session": opened}

    other, own = run_ranks(make_request, make)
    assert isinstance(own, RuntimeError)
    assert f"{failing} failed" in str(own)
    assert isinstance(other, MeasurementError)


@pytest.mark.parametrize("outcome", ["raises", "none", "wrong"])
def test_a_reference_that_one_rank_cannot_build_is_measured_on_none(
    make_request: Callable[..., Request], outcome: str
) -> None:
    def make(rank: int, gpu: FakeGpu) -> dict[str, Any]:
        def build() -> Any:
            if rank == 0:
                return gpu.kernel(30.0)
            if outcome == "raises":
                raise ImportError("no module named mpi")
            return None if outcome == "none" else 3

        return {"funcs": {"f": gpu.kernel(10.0)}, "references": {"r": build}}

    outcomes = run_ranks(make_request, make)
    if outcome == "wrong":
        assert isinstance(outcomes[1], TypeError)
        assert isinstance(outcomes[0], MeasurementError)
        return
    first_result, second_result = succeeded(outcomes)
    assert first_result["impls"] == second_result["impls"] == {"f": 10.0}
    key = "errors" if outcome == "raises" else "skipped"
    assert "another rank" in first_result[key]["r"]
    assert "r" in second_result[key]


def losing_once(gpu: FakeGpu, sessions: list[int], *, times: int) -> Callable[[], FakeKineto]:
    def opened() -> FakeKineto:
        sessions.append(1)
        if len(sessions) > times:
            return FakeKineto(gpu)
        return FakeKineto(gpu, lose=lambda done: done.scopes[-1:] != () and done.work.us == 10.0)

    return opened


@pytest.mark.parametrize("times", [1, 2])
def test_records_lost_on_one_rank_make_all_ranks_measure_once_more(
    make_request: Callable[..., Request], times: int
) -> None:
    sessions: dict[int, list[int]] = {0: [], 1: []}

    def make(rank: int, gpu: FakeGpu) -> dict[str, Any]:
        lossy = losing_once(gpu, sessions[rank], times=times if rank == 1 else 0)
        return {"funcs": {"f": gpu.kernel(10.0)}, "session": lossy}

    outcomes = run_ranks(make_request, make)
    assert [len(opened) for opened in sessions.values()] == [2, 2]
    if times == 1:
        assert [result["impls"] for result in succeeded(outcomes)] == [{"f": 10.0}] * 2
    else:
        assert all(isinstance(outcome, MeasurementError) for outcome in outcomes)


def test_a_max_reduce_that_answers_nonsense_is_an_error(
    make_request: Callable[..., Request],
) -> None:
    gpu = FakeGpu()
    answers = iter([0.0, 0.0, 0.0])
    context = DistributedBenchContext(
        rank=0,
        world_size=1,
        barrier=lambda: None,
        max_reduce=lambda _: next(answers, float("nan")),
        stream=Stream(gpu),
    )
    run = DistributedRun(
        request=make_request({"f": gpu.kernel(10.0)}, distributed=context),
        context=context,
        device=RankGpu(gpu),
        failures=Failures(report=lambda _: None),
        sleep=gpu.sleep,
        open_session=lambda: FakeKineto(gpu),
    )
    with pytest.raises(ImpossibleTime, match="max_reduce returned nan µs for 'f'"):
        run.measure()


@pytest.mark.parametrize(("worst", "kind"), [(0.0, ValueError), (3.0, MeasurementError)])
def test_an_action_of_all_ranks_fails_on_all_if_on_one(worst: float, kind: type[Exception]) -> None:
    def action() -> int:
        if kind is ValueError:
            raise ValueError("no such device")
        return 1

    context = DistributedBenchContext(
        rank=0,
        world_size=2,
        barrier=lambda: None,
        max_reduce=lambda value: max(value, worst),
        stream=None,
    )
    with pytest.raises(kind):
        on_all_ranks(context, "opening the device", action)
