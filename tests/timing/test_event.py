"""Timer `event`, and what it must not be fooled by."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from tirbench.errors import CaptureError, ImpossibleTime, TimerError
from tirbench.timing.fake import FakeGpu
from tirbench.timing.plan import Block, Call, Plan, Rest
from tirbench.timing.timers.event import EventTimer

FakeBench: TypeAlias = Callable[..., dict[str, Any]]


def test_event_times_the_launch_and_not_the_flush(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    result = fake_bench({"f": gpu.kernel(5.0)}, timer="event", calls=20)
    assert result["samples"]["f"] == [[5.0] * 20]
    assert result["impls"]["f"] == pytest.approx(5.0)


def test_budgets_are_divided_by_an_estimate_that_includes_the_flush(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    result = fake_bench({"f": gpu.kernel(35.0)}, timer="event", warmup=1.0, repeat=2.05)
    protocol = result["benchmark_protocol"]
    assert protocol["warmup_counts"]["f"] == [int(1000 / 100)]
    assert protocol["repeat_counts"]["f"] == [int(2050 / 100)]
    assert (protocol["warmup"], protocol["repeat"]) == (1.0, 2.05)


def test_the_warmup_is_not_flushed_and_every_timed_call_is(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    fake_bench({"f": gpu.kernel(35.0, "f")}, timer="event", warmup=0.2, repeat=0.3)
    timed = gpu.log[-7:]
    assert timed == ["flush", "f"] * 3 + ["drain"]
    assert gpu.log[-9:-7] == ["f", "f"]


def test_budgets_too_small_for_one_call_still_make_one(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    result = fake_bench({"f": gpu.kernel(2000.0)}, timer="event", warmup=0, repeat=0.001)
    assert result["benchmark_protocol"]["warmup_counts"]["f"] == [1]
    assert result["benchmark_protocol"]["repeat_counts"]["f"] == [1]


def test_prepare_runs_before_every_flush_and_is_not_timed(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    result = fake_bench(
        {"f": gpu.kernel(5.0, "f")},
        timer="event",
        calls=3,
        prepare={"f": gpu.kernel(400.0, "reset")},
    )
    assert result["samples"]["f"] == [[5.0] * 3]
    assert gpu.log[-10:] == ["reset", "flush", "f"] * 3 + ["drain"]
    assert result["benchmark_protocol"]["prepared"] == ["f"]


def test_a_timer_that_is_always_zero_is_an_error_and_no_crash(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    gpu.event_answers_ms = [0.0] * 10_000
    with pytest.raises(ImpossibleTime, match="timer 'event' returned 0 µs for 'f'"):
        fake_bench({"f": gpu.kernel(5.0)}, timer="event")


def test_a_zero_estimate_falls_back_to_counts_and_says_so(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    # per pilot: five launches and the whole of the kernel, then the same of the smallest kernel
    gpu.event_answers_ms = [0.0] * 12
    result = fake_bench({"f": gpu.kernel(0.4)}, timer="event")
    protocol = result["benchmark_protocol"]
    assert protocol["zero_estimates"] == ["f"]
    assert protocol["warmup_counts"]["f"] == [25]
    assert protocol["repeat_counts"]["f"] == [100]
    assert result["impls"]["f"] == pytest.approx(0.4)


@pytest.mark.parametrize("timer", ["event", "proton", "cudagraph_proton", "kineto"])
def test_a_launch_that_the_host_is_slower_than_is_estimated_without_the_host(
    gpu: FakeGpu, fake_bench: FakeBench, timer: str
) -> None:
    """Else it would get the calls of a long launch, and a group of its own."""
    kernel = gpu.kernel(5.0)

    def slow() -> None:
        gpu.host_ns += 150_000
        kernel()

    options = {"order": "interleaved", "calls": "auto", "timer": timer}
    protocol = fake_bench({"slow": slow, "quick": kernel}, **options)["benchmark_protocol"]
    assert protocol["estimates_us"]["slow"] == pytest.approx([5.0], abs=0.2)
    assert protocol["repeat_counts"]["slow"] == protocol["repeat_counts"]["quick"]
    assert protocol["groups"] == [["slow", "quick"]]


def test_budgets_are_divided_by_what_the_host_takes_as_the_public_protocol_does(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    kernel = gpu.kernel(5.0)

    def slow() -> None:
        gpu.host_ns += 935_000
        kernel()

    protocol = fake_bench({"f": slow}, timer="event", repeat=100)["benchmark_protocol"]
    assert protocol["repeat_counts"]["f"] == [pytest.approx(100 / 0.94, rel=0.02)]


def measured(gpu: FakeGpu, fake_bench: FakeBench, times_ms: list[float]) -> dict[str, Any]:
    """A run whose timed events answer these times."""
    gpu.event_answers_ms = [0.065, *[0.005] * 5, 0.065, *[0.005] * 5, *times_ms]
    return fake_bench({"f": gpu.kernel(5.0)}, timer="event", calls=len(times_ms))


def test_one_negative_sample_in_a_hundred_is_rejected_and_counted(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    result = measured(gpu, fake_bench, [0.005] * 60 + [-1.78] + [0.005] * 39)
    assert result["benchmark_protocol"]["rejected_samples"]["f"] == [1]
    assert len(result["samples"]["f"][0]) == 99
    assert result["impls"]["f"] == pytest.approx(5.0)


@pytest.mark.parametrize("wrong", [-1.0, 0.0, math.nan, math.inf])
def test_more_impossible_samples_than_one_in_twenty_are_an_error(
    gpu: FakeGpu, fake_bench: FakeBench, wrong: float
) -> None:
    with pytest.raises(ImpossibleTime, match="10 of 100 samples"):
        measured(gpu, fake_bench, [wrong] * 10 + [0.005] * 90)


def test_work_on_a_stream_that_is_not_joined_is_refused(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    with pytest.raises(TimerError, match=r"'f' still works for 250 µs.*another stream"):
        fake_bench({"f": gpu.kernel(250.0, stream=3)}, timer="event")


def test_an_active_capture_is_refused_before_any_launch(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    gpu.capturing = True
    for timer in ("event", "proton", "cudagraph_proton", "kineto"):
        with pytest.raises(CaptureError, match="outside of the capture"):
            fake_bench({"f": gpu.kernel(5.0)}, timer=timer)
    assert not gpu.log


def test_set_up_in_the_first_call_is_not_timed(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    compiled: list[bool] = []

    def launch() -> None:
        if not compiled:
            gpu.sleep(50e-3)
            compiled.append(True)
        gpu.run_us(5.0)

    result = fake_bench({"f": launch}, timer="event", calls=5)
    assert result["samples"]["f"] == [[5.0] * 5]


def test_a_rest_drains_the_device_before_it_idles(gpu: FakeGpu) -> None:
    timer = EventTimer(device=gpu, sleep=gpu.sleep, clock_ns=gpu.clock_ns)
    block = Block(call=Call(name="f", launch=gpu.kernel(5.0, "f")), kept=1)
    timer.measure(Plan(timed=(block, Rest(seconds=0.02), block)))
    assert gpu.log == ["f", "drain", "rest", "f", "drain"]


def test_a_failing_kernel_of_ours_raises_its_own_exception(fake_bench: FakeBench) -> None:
    class LaunchError(Exception):
        pass

    error = LaunchError("out of shared memory")

    def fail() -> None:
        raise error

    with pytest.raises(LaunchError, match=re.escape("out of shared memory")) as raised:
        fake_bench({"f": fail}, timer="event")
    assert raised.value is error


@pytest.mark.parametrize("failing", ["launch", "prepare"])
def test_keyboard_interrupts_pass_through(
    gpu: FakeGpu, fake_bench: FakeBench, failing: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    launch = interrupt if failing == "launch" else gpu.kernel(5.0)
    prepare = {"r": interrupt} if failing == "prepare" else None
    with pytest.raises(KeyboardInterrupt):
        fake_bench(
            {"f": gpu.kernel(5.0)},
            references={"r": lambda: launch},
            prepare=prepare,
            timer="event",
        )


def test_events_know_a_span_and_nothing_else(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    result = fake_bench({"f": gpu.kernel(5.0)}, timer="event", calls=3)
    activity = result["activity"]["f"]
    assert activity["span_us"] == pytest.approx(5.0)
    assert (activity["sum_us"], activity["busy_us"], activity["kernels"]) == (None, None, None)
