"""Timer `kineto` and what is computed from intervals."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.errors import AttributionError, ImpossibleTime
from tirbench.timing.activity import GpuEvent, summarize
from tirbench.timing.fake import FakeGpu, FakeKineto
from tirbench.timing.kineto import attribute_events, nested, span_record, to_gpu_event
from tirbench.timing.plan import CallFailed

FakeBench: TypeAlias = Callable[..., dict[str, Any]]


def event(
    start_ns: int, end_ns: int, name: str = "k", *, stream: int = 0, kind: Any = "kernel"
) -> GpuEvent:
    return GpuEvent(kind=kind, name=name, start_ns=start_ns, end_ns=end_ns, stream=(0, stream))


def test_the_span_covers_gaps_copies_and_all_streams(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    kernel, copy = gpu.kernel(5.0, "k"), gpu.kernel(9.0, "Memcpy DtoD", kind="memcpy", stream=3)

    def launch() -> None:
        gpu.synchronize()
        kernel()
        copy()

    result = fake_bench({"f": launch}, timer="kineto", calls=10)
    assert result["samples"]["f"] == [[9.0] * 10]
    activity = result["activity"]["f"]
    assert activity["sum_us"] == 14.0
    assert activity["busy_us"] == activity["span_us"] == 9.0
    assert activity["kernels"] == 1
    assert activity["streams"] == 2
    assert sorted(activity["names"]) == ["k", "memcpy: Memcpy DtoD"]


def test_an_implementation_that_only_copies_is_timed(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    launch = gpu.kernel(7.0, "Memset", kind="memset")
    result = fake_bench({"f": launch}, timer="kineto", calls=5)
    assert result["impls"]["f"] == pytest.approx(7.0)
    assert result["activity"]["f"]["names"] == ["memset: Memset"]
    assert result["activity"]["f"]["kernels"] == 0


def losing(gpu: FakeGpu, sessions: list[int], *, times: int) -> Callable[[], FakeKineto]:
    """Sessions of which the first ones lose two launches."""

    def opened() -> FakeKineto:
        sessions.append(1)
        lost: list[str] = []

        def lose(done: Any) -> bool:
            if len(sessions) <= times and done.work.name == "f" and len(lost) < 2:
                lost.append("f")
                return True
            return False

        return FakeKineto(gpu, lose=lose)

    return opened


def test_lost_events_are_measured_once_more(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    sessions: list[int] = []
    result = fake_bench(
        {"f": gpu.kernel(5.0, "f")},
        timer="kineto",
        calls=10,
        session=losing(gpu, sessions, times=1),
    )
    assert len(sessions) == 2
    assert result["benchmark_protocol"]["sample_counts"]["f"] == [10]


def test_events_that_stay_lost_are_an_error(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    with pytest.raises(AttributionError, match=r"recorded 8 of 10 launches.*'f'"):
        fake_bench(
            {"f": gpu.kernel(5.0, "f")},
            timer="kineto",
            calls=10,
            session=losing(gpu, [], times=2),
        )


def test_an_empty_trace_is_a_dead_profiler(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    with pytest.raises(AttributionError, match=r"0 of 10 launches.*profiler is dead"):
        fake_bench(
            {"f": gpu.kernel(5.0)},
            timer="kineto",
            calls=10,
            session=lambda: FakeKineto(gpu, lose=lambda _: True),
        )


def test_the_session_sacrifices_a_kernel_before_the_first_launch(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    fake_bench({"f": gpu.kernel(5.0, "f")}, timer="kineto", calls=2)
    start = gpu.log.index("kineto start")
    assert gpu.log[start + 1 : start + 5] == ["fill_one", "drain", "flush", "f"]


@pytest.mark.parametrize(
    ("start_ns", "end_ns"), [(0, 5000), (-3, 5000), (9000, 9000), (9000, 8000)]
)
def test_an_interval_that_lost_a_timestamp_fails_the_row(start_ns: int, end_ns: int) -> None:
    wrong = event(start_ns, end_ns)
    with pytest.raises(ImpossibleTime, match="lost a timestamp"):
        summarize([event(100, 200), wrong])
    with pytest.raises(CallFailed) as raised:
        span_record("f", [wrong], [event(100, 200)])
    assert isinstance(raised.value.error, ImpossibleTime)


def test_five_microseconds_at_a_clock_of_1e15_ns_are_five_microseconds() -> None:
    start = 10**15 + 7
    record = span_record("f", [event(start, start + 5001)], [event(start, start + 5001)])
    assert record.time_us == 5.001


def test_a_kernel_of_seconds_is_read_in_full() -> None:
    record = span_record("f", [event(5, 1_200_000_005)], [event(5, 1_200_000_005)])
    assert record.time_us == 1_200_000.0


def test_overlapping_kernels_are_added_in_the_sum_and_once_in_the_busy_time() -> None:
    activity = summarize([event(100, 1100), event(600, 1600, stream=1), event(2600, 3600)])
    assert (activity.sum_us, activity.busy_us, activity.span_us) == (3.0, 2.5, 3.5)
    assert activity.streams == 2


INTERVALS = st.lists(
    st.tuples(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(0, 3)),
    min_size=1,
    max_size=30,
)


@given(INTERVALS)
def test_the_span_is_at_least_the_busy_time_and_that_at_most_the_sum(
    intervals: list[tuple[int, int, int]],
) -> None:
    activity = summarize(
        [event(start, start + length, stream=stream) for start, length, stream in intervals]
    )
    assert activity.busy_us is not None
    assert activity.span_us is not None
    assert activity.sum_us is not None
    assert activity.span_us >= activity.busy_us > 0
    assert activity.busy_us <= activity.sum_us


def test_activities_belong_to_the_annotation_on_their_stream() -> None:
    events = [
        event(100, 200, "s0", kind="annotation"),
        event(100, 200, "a"),
        event(120, 180, "other", stream=5),
        event(300, 400, "s1", kind="annotation", stream=5),
        event(300, 400, "b", stream=5),
        event(210, 290, "flush"),
    ]
    found = attribute_events(events, ["s0", "s1"], ["f", "g"])
    assert [[work.name for work in covered] for _, covered in found] == [["a"], ["b"]]


def test_an_annotation_without_work_is_an_error() -> None:
    with pytest.raises(CallFailed) as raised:
        attribute_events([event(100, 200, "s0", kind="annotation")], ["s0"], ["f"])
    assert isinstance(raised.value.error, AttributionError)


def raw(
    name: str,
    device: str = "CUDA",
    activity: str | None = None,
    user: bool = False,
    *,
    start_ns: int = 10**18 + 1,
    duration_ns: int = 500,
    correlation: int = 0,
) -> Any:
    """An event as torch hands it out; before torch 2.9 without its activity type."""
    methods = {
        "name": lambda: name,
        "device_type": lambda: SimpleNamespace(name=device),
        "start_ns": lambda: start_ns,
        "duration_ns": lambda: duration_ns,
        "correlation_id": lambda: correlation,
        "device_index": lambda: 0,
        "device_resource_id": lambda: 7,
        "is_user_annotation": lambda: user,
    }
    if activity is not None:
        methods["activity_type"] = lambda: activity
    return SimpleNamespace(**methods)


@pytest.mark.parametrize(
    ("given_event", "kind"),
    [
        (raw("gemm", activity="concurrent_kernel"), "kernel"),
        (raw("x", activity="gpu_user_annotation"), "annotation"),
        (raw("x", user=True), "annotation"),
        (raw("Memcpy DtoD (Device -> Device)"), "memcpy"),
        (raw("Memset (Device)"), "memset"),
        (raw("c", activity="gpu_memcpy"), "memcpy"),
        (raw("m", activity="gpu_memset"), "memset"),
        (raw("gemm"), "kernel"),
    ],
)
def test_raw_events_are_told_apart(given_event: Any, kind: str) -> None:
    found = to_gpu_event(given_event)
    assert found is not None
    assert found.kind == kind
    assert (found.start_ns, found.end_ns) == (10**18 + 1, 10**18 + 501)
    assert found.stream == (0, 7)


def test_work_below_an_annotation_of_its_own_is_that_of_the_launch_around_it() -> None:
    def host(name: str, start_ns: int, end_ns: int, correlation: int) -> Any:
        return raw(
            name,
            "CPU",
            "user_annotation",
            user=True,
            start_ns=start_ns,
            duration_ns=end_ns - start_ns,
            correlation=correlation,
        )

    def on_gpu(name: str, start_ns: int, correlation: int) -> Any:
        activity = "gpu_user_annotation"
        return raw(name, activity=activity, start_ns=start_ns, correlation=correlation)

    events = [
        host("prepare", 10, 40, 1),
        host("s0", 100, 200, 2),
        host("nccl:all_reduce", 120, 260, 3),
        host("s1", 300, 400, 4),
        host("nccl:all_reduce", 310, 320, 5),
        host("after", 400, 410, 6),
    ]
    inner = nested(events, {"s0", "s1"})
    assert inner == {3: "s0", 5: "s1"}
    found = [
        to_gpu_event(on_gpu("nccl:all_reduce", 1_000, 3), inner),
        to_gpu_event(raw("ncclDevKernel", start_ns=1_000, correlation=3), inner),
        to_gpu_event(on_gpu("prepare", 500, 1), inner),
        to_gpu_event(on_gpu("s1", 5_000, 4), inner),
    ]
    assert [one and one.name for one in found] == ["s0", "ncclDevKernel", "prepare", "s1"]
    assert nested(events, ()) == {}


def test_what_two_annotations_of_a_scope_cover_counts_once() -> None:
    events = [
        event(100, 400, "s0", kind="annotation"),
        event(200, 300, "s0", kind="annotation"),
        event(100, 150, "a"),
        event(200, 300, "b"),
        event(350, 400, "c"),
    ]
    ((annotations, work),) = attribute_events(events, ["s0"], ["f"])
    assert len(annotations) == 2
    assert [one.name for one in work] == ["a", "b", "c"]


def test_events_of_the_cpu_are_left_out() -> None:
    assert to_gpu_event(raw("aten::add", device="CPU")) is None


def test_all_gpu_timers_answer_microseconds_for_the_same_work(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    for timer in ("event", "proton", "cudagraph_proton", "kineto"):
        result = fake_bench({"f": gpu.kernel(5.0)}, timer=timer, calls=13)
        assert result["impls"]["f"] == pytest.approx(5.0)
        assert result["timer"] == timer
