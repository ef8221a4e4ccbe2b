"""References: what goes wrong with one stays with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from tirbench.errors import AttributionError, MeasurementError, TimerUnavailable
from tirbench.timing.fake import FakeGpu

FakeBench: TypeAlias = Callable[..., dict[str, Any]]


def broken_builder() -> Any:
    raise ModuleNotFoundError("No module named 'deep_gemm'")


def failing_after(gpu: FakeGpu, launches: int) -> Callable[[], Callable[[], None]]:
    """A builder whose closure fails from a certain launch on."""

    def build() -> Callable[[], None]:
        made: list[int] = []

        def launch() -> None:
            made.append(1)
            if len(made) > launches:
                raise RuntimeError("CUDA error: invalid configuration argument")
            gpu.run_us(6.0)

        return launch

    return build


def test_a_builder_that_raises_is_a_baseline_error_and_not_ours(
    gpu: FakeGpu, fake_bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    result = fake_bench(
        {"f": gpu.kernel(5.0)}, references={"r": broken_builder}, timer="event", calls=3
    )
    assert result["impls"] == {"f": pytest.approx(5.0)}
    assert result["errors"] == {"r": "No module named 'deep_gemm'"}
    assert result["error_types"] == {"r": "ModuleNotFoundError"}
    assert "in broken_builder" in result["tracebacks"]["r"]
    captured = capsys.readouterr()
    assert captured.err.startswith("BASELINE_ERROR: r: ModuleNotFoundError at build: No module")
    assert captured.err.count("\n") == 1
    assert not captured.out


@pytest.mark.parametrize("order", ["blocked", "interleaved"])
@pytest.mark.parametrize("launches", [0, 3, 6, 7, 12])
@pytest.mark.parametrize("timer", ["event", "proton", "kineto", "cudagraph_proton"])
def test_a_reference_that_fails_when_launched_takes_nobody_with_it(
    gpu: FakeGpu, fake_bench: FakeBench, order: str, launches: int, timer: str
) -> None:
    result = fake_bench(
        {"f": gpu.kernel(5.0, "f")},
        references={
            "bad": failing_after(gpu, launches),
            "good": lambda: gpu.kernel(7.0, "good"),
        },
        timer=timer,
        calls=8,
        rounds=2,
        order=order,
    )
    assert list(result["impls"]) == ["f", "good"]
    assert result["impls"]["f"] == pytest.approx(5.0)
    assert result["impls"]["good"] == pytest.approx(7.0)
    assert [len(samples) for samples in result["samples"]["f"]] == [8, 8]
    assert list(result["errors"]) == ["bad"]
    assert result["benchmark_protocol"]["order"] == ["f", "good"]


def test_a_message_of_many_lines_stays_one_line_on_stderr(
    gpu: FakeGpu, fake_bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    def build() -> Any:
        raise RuntimeError("first\nsecond")

    result = fake_bench({"f": gpu.kernel(5.0)}, references={"r": build}, timer="event", calls=1)
    assert capsys.readouterr().err.count("\n") == 1
    assert result["errors"]["r"] == "first\nsecond"


def test_an_error_without_a_message_is_recorded_by_its_type(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    def build() -> Any:
        raise AssertionError

    result = fake_bench({"f": gpu.kernel(5.0)}, references={"r": build}, timer="event", calls=1)
    assert result["errors"] == {"r": "AssertionError"}


def test_a_builder_that_returns_none_is_recorded_as_skipped(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    result = fake_bench(
        {"f": gpu.kernel(5.0)}, references={"r": lambda: None}, timer="event", calls=1
    )
    assert result["skipped"] == {"r": "its builder returned None"}
    assert "r" not in result["impls"]
    assert not result["errors"]


def test_a_builder_that_returns_something_else_is_a_type_error(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    with pytest.raises(TypeError, match="builder of reference 'r' must return"):
        fake_bench({"f": gpu.kernel(5.0)}, references={"r": lambda: 3}, timer="event")


def test_builders_run_once_in_order_before_anything_is_launched(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    built: list[str] = []

    def builder(name: str) -> Callable[[], Any]:
        def build() -> Any:
            assert not gpu.log
            built.append(name)
            return gpu.kernel(5.0)

        return build

    fake_bench(
        {"f": gpu.kernel(5.0)},
        references={"s": builder("s"), "r": builder("r")},
        timer="event",
        calls=1,
        rounds=3,
    )
    assert built == ["s", "r"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupts_in_a_builder_pass_through(
    gpu: FakeGpu, fake_bench: FakeBench, interrupt: type[BaseException]
) -> None:
    def build() -> Any:
        raise interrupt

    with pytest.raises(interrupt):
        fake_bench({"f": gpu.kernel(5.0)}, references={"r": build}, timer="event")


def test_a_reference_of_copies_alone_fails_under_proton_as_itself(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    result = fake_bench(
        {"f": gpu.kernel(5.0)},
        references={"copy": lambda: gpu.kernel(5.0, "DtoD", kind="memcpy")},
        calls=4,
    )
    assert list(result["impls"]) == ["f"]
    assert result["error_types"] == {"copy": "AttributionError"}


def test_a_kernel_of_ours_without_records_raises_whatever_references_do(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    with pytest.raises(AttributionError):
        fake_bench(
            {"f": gpu.kernel(5.0, "DtoD", kind="memcpy")},
            references={"r": lambda: gpu.kernel(5.0)},
            calls=4,
        )


def test_a_timer_that_cannot_run_is_not_a_reference_s_fault(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    def refuse() -> Any:
        raise TimerUnavailable("CUPTI is taken")

    with pytest.raises(TimerUnavailable, match="CUPTI is taken"):
        fake_bench(
            {"f": gpu.kernel(5.0)}, references={"r": lambda: gpu.kernel(5.0)}, session=refuse
        )


def test_numbers_measured_before_a_reference_broke_the_context_are_kept(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    def alive() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    result = fake_bench(
        {"f": gpu.kernel(5.0)},
        references={"bad": failing_after(gpu, 0), "later": lambda: gpu.kernel(7.0)},
        timer="event",
        calls=4,
        rounds=2,
        alive=alive,
    )
    assert result["impls"] == {"f": pytest.approx(5.0)}
    assert len(result["round_samples"]["f"]) == 1
    assert list(result["errors"]) == ["bad", "later"]
    assert result["benchmark_protocol"]["context_broken_by"] == "bad"


def test_a_context_broken_before_our_kernel_was_measured_is_blamed_on_the_reference(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    def alive() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(MeasurementError, match=r"reference 'bad' broke the device's context.*'f'"):
        fake_bench(
            {"f": gpu.kernel(5.0)},
            references={"bad": failing_after(gpu, 0)},
            timer="event",
            order="interleaved",
            alive=alive,
        )


def test_every_implementation_is_accounted_for(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    references = {
        "broken": broken_builder,
        "none": lambda: None,
        "bad": failing_after(gpu, 2),
        "good": lambda: gpu.kernel(7.0),
    }
    result = fake_bench(
        {"f": gpu.kernel(5.0)}, references=references, timer="event", calls=2, rounds=2
    )
    accounted = [*result["impls"], *result["errors"], *result["skipped"]]
    assert sorted(accounted) == sorted(["f", *references])


class Faulty(FakeGpu):
    """A GPU on which a fault of one kernel surfaces when the device is drained."""

    def __init__(self) -> None:
        super().__init__()
        self.faults_after = 10**9

    def synchronize(self) -> None:
        super().synchronize()
        launched = sum(done.work.name == "bad" for done in self.done)
        if launched > self.faults_after:
            self.faults_after = 10**9
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.fixture
def gpu() -> Faulty:
    return Faulty()


def test_a_fault_that_surfaces_later_belongs_to_the_only_one_that_ran(
    gpu: Faulty, fake_bench: FakeBench
) -> None:
    gpu.faults_after = 12
    result = fake_bench(
        {"f": gpu.kernel(5.0)},
        references={"r": lambda: gpu.kernel(6.0, "bad")},
        timer="event",
        calls=8,
    )
    assert list(result["impls"]) == ["f"]
    assert "illegal memory access" in result["errors"]["r"]


def test_a_fault_among_several_is_nobody_s_and_is_raised(
    gpu: Faulty, fake_bench: FakeBench
) -> None:
    gpu.faults_after = 12
    with pytest.raises(RuntimeError, match="illegal memory access"):
        fake_bench(
            {"f": gpu.kernel(5.0)},
            references={"r": lambda: gpu.kernel(6.0, "bad")},
            timer="event",
            calls=8,
            order="interleaved",
        )
