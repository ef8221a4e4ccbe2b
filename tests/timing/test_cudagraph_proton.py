"""Timer `cudagraph_proton`: capture, replay, and the count of both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, TypeAlias

import pytest

from tirbench.errors import AttributionError, CaptureError
from tirbench.timing.fake import Done, FakeGpu, FakeProton

FakeBench: TypeAlias = Callable[..., dict[str, Any]]


def test_a_graph_of_the_budget_is_replayed_ten_times(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    result = fake_bench({"f": gpu.kernel(50.0)}, timer="cudagraph_proton", cudagraph_rep=1.0)
    protocol = result["benchmark_protocol"]
    assert protocol["cudagraph_rep"] == 1.0
    assert protocol["repeat_counts"]["f"] == [20]
    assert gpu.log.count("replay") == 10
    assert result["impls"]["f"] == pytest.approx(50.0)
    assert result["samples"]["f"] == [[50.0] * 20]
    assert protocol["replays_per_sample"]["f"] == [10]


def test_the_estimate_of_a_graph_leaves_out_the_flush(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    result = fake_bench({"f": gpu.kernel(50.0)}, timer="cudagraph_proton")
    assert result["benchmark_protocol"]["repeat_counts"]["f"] == [int(20_000 / 50)]


def test_flush_and_prepare_are_captured_outside_of_the_scopes(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    result = fake_bench(
        {"f": gpu.kernel(50.0, "f")},
        timer="cudagraph_proton",
        cudagraph_rep=0.12,
        prepare={"f": gpu.kernel(9.0, "reset")},
    )
    first = gpu.log.index("replay")
    assert gpu.log[first + 1 : first + 7] == ["reset", "flush", "f"] * 2
    assert result["impls"]["f"] == pytest.approx(50.0)


@pytest.mark.parametrize(("l2", "last"), [("cold-dirty", "flush"), ("warm", "fill_one")])
def test_the_last_launch_of_a_graph_is_not_its_last_node(
    gpu: FakeGpu, fake_bench: FakeBench, l2: str, last: str
) -> None:
    fake_bench({"f": gpu.kernel(50.0, "f")}, timer="cudagraph_proton", cudagraph_rep=0.12, l2=l2)
    first, second = [at for at, entry in enumerate(gpu.log) if entry == "replay"][:2]
    assert gpu.log[first + 1 : second].count("f") == 2
    assert gpu.log[second - 1] == last


def test_the_session_opens_before_the_capture(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    fake_bench({"f": gpu.kernel(50.0)}, timer="cudagraph_proton")
    assert gpu.log.index("proton start") < gpu.log.index("capture") < gpu.log.index("replay")


def test_the_capture_stream_is_warmed_up_first(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    launched_on: list[int] = []

    def launch() -> None:
        launched_on.append(gpu.stream)
        gpu.run_us(50.0)

    fake_bench({"f": launch}, timer="cudagraph_proton", cudagraph_rep=0.1)
    assert set(launched_on) == {7}


@pytest.mark.parametrize("generation", ["3.6", "3.7"])
def test_every_call_has_a_sample_of_its_own_whatever_proton_makes_of_replays(
    gpu: FakeGpu, fake_bench: FakeBench, generation: Literal["3.6", "3.7"]
) -> None:
    lengths_us = iter(range(1, 1000))

    def launch() -> None:
        gpu.run_us(float(next(lengths_us)))

    result = fake_bench(
        {"f": launch},
        timer="cudagraph_proton",
        calls=36,
        session=partial(FakeProton, gpu, generation=generation),
    )
    (samples,) = result["samples"]["f"]
    assert len(samples) == 36
    assert samples == sorted(set(samples))
    assert result["benchmark_protocol"]["replays_per_sample"]["f"] == [1]


def test_a_scope_around_a_replay_takes_all_earlier_replays_with_it_on_triton_3_6(
    gpu: FakeGpu,
) -> None:
    """What the real one does, and why the timer opens none."""
    session = FakeProton(gpu, generation="3.6")
    with session.scope("launch"):
        graph = gpu.capture(gpu.kernel(5.0, "f"), gpu.graph_pool())
    for number in range(3):
        with session.scope(f"replay {number}"):
            graph.replay()
    (replay,) = session.finish()[0]["children"]
    assert replay["frame"]["name"] == "replay 2"
    (captured_at,) = replay["children"]
    (launch,) = captured_at["children"]
    assert launch["children"][0]["metrics"] == {"time (ns)": 15_000, "count": 3}


@pytest.mark.parametrize("generation", ["3.6", "3.7"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cudagraph_rep": 1.0}, "9 kernels in 10 replays"),
        ({"calls": 24}, "to 23 of 24 launches. Records were lost"),
    ],
)
def test_a_lost_replay_is_an_error_and_no_smaller_number(
    gpu: FakeGpu,
    fake_bench: FakeBench,
    options: dict[str, Any],
    message: str,
    generation: Literal["3.6", "3.7"],
) -> None:
    def lossy() -> FakeProton:
        lost: list[int] = []

        def lose(done: Done) -> bool:
            if done.work.name == "f" and done.node is not None and not lost:
                lost.append(1)
                return True
            return False

        return FakeProton(gpu, generation=generation, lose=lose)

    with pytest.raises(AttributionError, match=message):
        fake_bench(
            {"f": gpu.kernel(50.0, "f")},
            timer="cudagraph_proton",
            session=lossy,
            **options,
        )


def test_blocks_of_a_budget_share_a_graph_and_counted_calls_do_not(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    fake_bench({"f": gpu.kernel(50.0)}, timer="cudagraph_proton", cudagraph_rep=1.0)
    assert gpu.log.count("capture") == 1
    fake_bench({"f": gpu.kernel(50.0)}, timer="cudagraph_proton", calls=36)
    assert gpu.log.count("capture") == 1 + 3


def test_a_capture_that_fails_is_called_so_with_its_cause(
    gpu: FakeGpu, fake_bench: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def broken_end() -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    def capture(_body: Callable[[], object], _pool: object) -> Any:
        with broken_end():
            raise RuntimeError("operation would make the legacy stream depend on a capture")

    monkeypatch.setattr(gpu, "capture", capture)
    with pytest.raises(
        CaptureError, match=r"'f' cannot be captured.*legacy stream.*use timer='proton'"
    ):
        fake_bench({"f": gpu.kernel(50.0)}, timer="cudagraph_proton")


def test_a_capture_that_torch_does_not_survive_is_said_to_need_another_process(
    gpu: FakeGpu, fake_bench: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(_body: Callable[[], object], _pool: object) -> Any:
        try:
            raise RuntimeError("operation not permitted")
        except RuntimeError as error:
            raise CaptureError("torch does not work any more: go on in another process") from error

    monkeypatch.setattr(gpu, "capture", capture)
    with pytest.raises(
        CaptureError, match=r"RuntimeError: operation not permitted\).*go on in another process"
    ):
        fake_bench({"f": gpu.kernel(50.0)}, timer="cudagraph_proton")


def test_work_that_escapes_the_capture_is_not_taken_for_the_replay(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    inside, outside = gpu.kernel(5.0, "inside"), gpu.kernel(50.0, "outside", stream=0)

    def launch() -> None:
        inside()
        outside()

    for options in ({"calls": 24}, {"cudagraph_rep": 0.5}):
        with pytest.raises(
            CaptureError, match=r"'f' cannot be .* no part in the capture; .*use timer='proton'"
        ):
            fake_bench({"f": launch}, timer="cudagraph_proton", **options)


def test_every_measurement_captures_into_memory_of_its_own(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    """Torch drops a pool with the last graph in it."""
    funcs = {"a": gpu.kernel(5.0), "b": gpu.kernel(6.0)}
    for order in ("blocked", "interleaved"):
        result = fake_bench(funcs, timer="cudagraph_proton", calls=24, rounds=3, order=order)
        assert result["benchmark_protocol"]["sample_counts"] == {"a": [24] * 3, "b": [24] * 3}


def test_a_failed_capture_is_told_in_one_line(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    def needs_host() -> None:
        if gpu._recording is not None:
            raise RuntimeError("CUDA error: not permitted\nFor debugging consider passing …")
        gpu.run_us(40.0)

    with pytest.raises(CaptureError, match=r"\(RuntimeError: CUDA error: not permitted\); use"):
        fake_bench({"f": needs_host}, timer="cudagraph_proton")


def test_a_reference_that_cannot_be_captured_is_its_own_error(
    gpu: FakeGpu, fake_bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    def needs_host() -> None:
        if gpu._recording is not None:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported")
        gpu.run_us(40.0)

    result = fake_bench(
        {"f": gpu.kernel(50.0)},
        references={"r": lambda: needs_host},
        timer="cudagraph_proton",
        cudagraph_rep=0.1,
    )
    assert result["impls"] == {"f": pytest.approx(50.0)}
    assert result["error_types"] == {"r": "CaptureError"}
    assert "BASELINE_ERROR: r: CaptureError" in capsys.readouterr().err


def test_interleaved_graphs_are_short_captured_alone_and_replayed_in_balanced_order(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    funcs = {"a": gpu.kernel(5.0, "a"), "b": gpu.kernel(6.0, "b")}
    result = fake_bench(funcs, timer="cudagraph_proton", order="interleaved", calls=48)
    assert gpu.log.count("capture") == gpu.log.count("replay") == 8
    assert result["benchmark_protocol"]["sequence"] == [["a", "b", "b", "a"] * 2]
    assert result["samples"] == {"a": [[5.0] * 48], "b": [[6.0] * 48]}
    discarded, kept = result["benchmark_protocol"]["sub_blocks"]["a"]
    assert 8 <= discarded + kept <= 16


def test_a_number_of_calls_is_kept_exactly(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    result = fake_bench({"f": gpu.kernel(5.0)}, timer="cudagraph_proton", calls=31)
    assert result["benchmark_protocol"]["sample_counts"]["f"] == [31]


def test_a_burst_rests_between_replays(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    fake_bench({"f": gpu.kernel(1000.0)}, timer="cudagraph_proton", regime="burst")
    assert gpu.sleeps_s
    assert all(seconds >= 0.02 for seconds in gpu.sleeps_s)
    longest_us = 0.0
    spent_us = 0.0
    for entry in gpu.log[gpu.log.index("proton start") :]:
        spent_us = (
            0.0 if entry == "rest" else spent_us + {"kernel": 1000.0, "flush": 65.0}.get(entry, 0)
        )
        longest_us = max(longest_us, spent_us)
    assert longest_us <= 15_000
