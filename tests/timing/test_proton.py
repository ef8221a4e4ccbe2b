"""Timer `proton`: attribution, lost records, two data routes, and who else holds CUPTI."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias

import pytest

from tirbench.errors import AttributionError, ImpossibleTime, TimerUnavailable
from tirbench.timing import profilers
from tirbench.timing.fake import FakeGpu, FakeProton
from tirbench.timing.plan import CallFailed, Record
from tirbench.timing.proton import ScopeNames, TritonProton, attribute
from tirbench.timing.samples import Samples

FakeBench: TypeAlias = Callable[..., dict[str, Any]]


def test_proton_adds_the_kernels_of_a_launch_and_nothing_else(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    first, second = gpu.kernel(5.0, "first"), gpu.kernel(3.0, "second")
    copy = gpu.kernel(40.0, "DtoD", kind="memcpy")

    def launch() -> None:
        first()
        copy()
        second()

    result = fake_bench({"f": launch}, calls=10)
    assert result["timer"] == "proton"
    assert result["samples"]["f"] == [[8.0] * 10]
    assert result["activity"]["f"] == {
        "busy_us": None,
        "span_us": None,
        "sum_us": 8.0,
        "kernels": 2,
        "kernels_vary": False,
        "names": ["first", "second"],
        "streams": None,
    }
    assert "memcpy and memset excluded" in result["benchmark_protocol"]["definition"]


def test_the_session_opens_after_the_warmup_and_once_for_all_calls(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    fake_bench({"f": gpu.kernel(35.0, "f")}, warmup=0.2, repeat=0.3)
    start, finish = gpu.log.index("proton start"), gpu.log.index("proton finish")
    assert gpu.log[start - 3 : start] == ["f", "f", "drain"]
    assert gpu.log[start + 1 : finish] == ["fill_one", *["flush", "f"] * 3, "drain"]
    assert gpu.log.count("proton start") == 1


def test_an_interleaved_round_pays_for_one_session(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    funcs = {"a": gpu.kernel(5.0, "a"), "b": gpu.kernel(6.0, "b")}
    result = fake_bench(funcs, order="interleaved", calls=16, rounds=3)
    assert gpu.log.count("proton start") == 3
    assert result["samples"] == {"a": [[5.0] * 16] * 3, "b": [[6.0] * 16] * 3}


def test_groups_of_unlike_durations_share_the_session_of_their_round(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    funcs = {"a": gpu.kernel(5.0, "a"), "b": gpu.kernel(6.0, "b"), "slow": gpu.kernel(900.0)}
    result = fake_bench(funcs, order="interleaved", calls=8, rounds=2)
    assert gpu.log.count("proton start") == 2
    protocol = result["benchmark_protocol"]
    assert protocol["groups"] == [["a", "b"], ["slow"]]
    assert protocol["sequence"][0] == [*"abba", *["slow"] * 8]
    assert protocol["sub_blocks"] == {"a": (1, 4), "b": (1, 4), "slow": (0, 1)}


def test_a_zero_estimate_makes_a_thousand_calls(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    gpu.event_answers_ms = [0.0] * 12
    result = fake_bench({"f": gpu.kernel(5.0)})
    assert result["benchmark_protocol"]["repeat_counts"]["f"] == [1000]
    assert result["benchmark_protocol"]["zero_estimates"] == ["f"]


def test_fewer_records_than_launches_are_an_error(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    def lossy() -> FakeProton:
        lost = gpu.host_ns
        return FakeProton(
            gpu, lose=lambda done: done.work.name == "f" and done.start_ns < lost + 140_000
        )

    with pytest.raises(AttributionError, match=r"'f': .* to 8 of 10 launches. Records were lost"):
        fake_bench({"f": gpu.kernel(5.0, "f")}, calls=10, session=lossy)


def test_a_kernel_without_length_is_no_record(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    with pytest.raises(AttributionError, match="0 of 10 launches"):
        fake_bench({"f": gpu.kernel(0.0)}, calls=10)


def test_an_implementation_of_copies_alone_is_told_which_timer_sees_them(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    with pytest.raises(AttributionError, match=r"'flush'.*launches none.*use timer='kineto'"):
        fake_bench({"f": gpu.kernel(5.0, "DtoD", kind="memcpy")}, calls=10)


def test_a_profiler_that_saw_not_even_the_flush_is_called_dead(
    gpu: FakeGpu, fake_bench: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profilers, "USED", ["kineto", "proton"])

    def dead() -> FakeProton:
        return FakeProton(gpu, lose=lambda _: True)

    with pytest.raises(
        AttributionError, match=r"profiler is dead. Kineto has been used.*another process"
    ):
        fake_bench({"f": gpu.kernel(5.0)}, calls=10, session=dead)


def test_the_session_ends_when_a_launch_fails(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    launches: list[int] = []

    def launch() -> None:
        launches.append(1)
        if len(launches) > 8:
            raise RuntimeError("illegal memory access")
        gpu.run_us(5.0)

    with pytest.raises(RuntimeError, match="illegal memory access"):
        fake_bench({"f": launch}, calls=10)
    assert gpu.log[-1] == "proton finish"
    assert not gpu.scopes


def test_rocm_is_refused(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    gpu.is_hip = True
    for timer in ("proton", "cudagraph_proton"):
        with pytest.raises(TimerUnavailable, match="ROCm; use timer='event'"):
            fake_bench({"f": gpu.kernel(5.0)}, timer=timer)
    assert not gpu.log


# --- the tree ---------------------------------------------------------------------------------------


def node(name: str, *children: dict[str, Any], **metrics: object) -> dict[str, Any]:
    return {
        "frame": {"name": name, "type": "function"},
        "metrics": metrics,
        "children": list(children),
    }


def kernel(name: str, time_ns: int, count: int = 1) -> dict[str, Any]:
    return node(name, **{"time (ns)": time_ns, "count": count})


NAMES = ScopeNames("tirbench.x")


def test_times_of_seconds_and_of_nanoseconds_are_read_from_integers() -> None:
    tree = [
        node(
            "ROOT",
            node(NAMES.launch(0), kernel("slow", 1_200_000_000)),
            node(NAMES.launch(1), kernel("fast", 32)),
        )
    ]
    scopes = attribute(tree, NAMES).scopes
    assert scopes[0].total_ns == 1_200_000_000
    assert scopes[1].total_ns == 32


def test_kernels_below_nested_scopes_of_the_user_count() -> None:
    inner = node("user scope", kernel("a", 100), kernel("b", 200, count=2))
    tree = [node("ROOT", node(NAMES.launch(3), inner, kernel("c", 50)))]
    totals = attribute(tree, NAMES).scopes[3]
    assert (totals.total_ns, totals.kernels, totals.names) == (350, 4, ["a", "b", "c"])


def test_kernels_outside_of_scopes_and_devices_are_kept_apart() -> None:
    tree = [node("ROOT", kernel("flush", 65_000)), {"CUDA": {"0": {}}}]
    found = attribute(tree, NAMES)
    assert (found.scopes, found.elsewhere) == ({}, ["flush"])


def test_kernels_of_a_replayed_graph_belong_to_the_scopes_of_their_capture() -> None:
    captured = node(
        "<captured_at>",
        kernel("flush", 900, count=10),
        node(NAMES.launch(1), kernel("k", 700, count=10)),
    )
    found = attribute([node("ROOT", captured)], NAMES)
    totals = found.scopes[1]
    assert (totals.total_ns, totals.kernels, totals.replayed) == (700, 10, 10)
    assert found.elsewhere == ["flush"]


def test_the_zero_that_the_root_bears_is_no_kernel() -> None:
    root = kernel("ROOT", 0, count=0)
    assert attribute([root], NAMES).elsewhere == []


def test_a_deep_tree_is_read_without_recursion() -> None:
    deep = kernel("k", 10)
    for level in range(5000):
        deep = node(f"level {level}", deep)
    tree = [node("ROOT", node(NAMES.launch(0), deep))]
    assert attribute(tree, NAMES).scopes[0].total_ns == 10


# --- Triton's Proton, both generations --------------------------------------------------------------


class Proton36(ModuleType):
    """Proton of Triton 3.6: its data is in the file that `finalize` writes."""

    def __init__(self, session: int | None = 0, error: Exception | None = None) -> None:
        super().__init__("triton.profiler")
        self.session, self.error = session, error
        self.calls: list[str] = []

    def start(self, name: str, **options: object) -> int | None:
        assert options == {"context": "shadow", "data": "tree"}
        if self.error:
            raise self.error
        self.path = Path(f"{name}.hatchet")
        return self.session

    def deactivate(self, _: int | None = None) -> None:
        self.calls.append("deactivate")

    def finalize(self, session: int | None = None) -> None:
        assert session == self.session
        self.calls.append("finalize")
        self.path.write_text(json.dumps([node("from the file")]), encoding="utf-8")


class Proton37(Proton36):
    """Proton of Triton 3.7: `data.get` after a flushing `deactivate`."""

    def __init__(self) -> None:
        super().__init__()
        self.data = SimpleNamespace(get=lambda _: [node("from memory")])

    def deactivate(self, _: int | None = None, flushing: bool = False) -> None:
        assert flushing
        self.calls.append("deactivate")


def install(monkeypatch: pytest.MonkeyPatch, proton: ModuleType) -> None:
    package = ModuleType("triton")
    package.profiler = proton  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", package)
    monkeypatch.setitem(sys.modules, "triton.profiler", proton)


@pytest.mark.parametrize(
    ("proton", "root", "calls"),
    [
        (Proton36(), "from the file", ["finalize"]),
        (Proton37(), "from memory", ["deactivate", "finalize"]),
    ],
)
def test_both_generations_of_proton_hand_over_their_tree(
    monkeypatch: pytest.MonkeyPatch, proton: Proton36, root: str, calls: list[str]
) -> None:
    install(monkeypatch, proton)
    tree = TritonProton().finish()
    assert tree[0]["frame"]["name"] == root
    assert proton.calls == calls
    assert not proton.path.parent.exists()


def test_a_session_that_is_not_started_is_refused_and_nothing_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, Proton36(session=None))
    with pytest.raises(TimerUnavailable, match="TRITON_PROTON_DISABLE"):
        TritonProton()


def test_a_second_subscriber_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profilers, "USED", ["kineto"])
    error = RuntimeError("[PROTON] Failed to execute cuptiSubscribe with error 39")
    install(monkeypatch, Proton36(error=error))
    with pytest.raises(
        TimerUnavailable, match=r"error 39.*Kineto has been used.*measure in another process"
    ) as raised:
        TritonProton()
    assert raised.value.__cause__ is error


def test_another_failure_to_start_keeps_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Proton36(error=ValueError("No backend is available")))
    with pytest.raises(TimerUnavailable, match="ValueError: No backend is available"):
        TritonProton()


def test_a_machine_without_triton_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setitem(sys.modules, "triton.profiler", None)
    with pytest.raises(TimerUnavailable, match="install triton, or use timer='event'"):
        TritonProton()


def test_an_impossible_record_of_a_profiler_is_not_forgiven() -> None:
    records = [Record(name="f", time_us=5.0)] * 99 + [Record(name="f", time_us=float("nan"))]
    with pytest.raises(CallFailed) as raised:
        Samples().add_round("f", "proton", records)
    assert isinstance(raised.value.error, ImpossibleTime)
