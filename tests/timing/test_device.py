"""The view of torch.cuda, as far as it needs no GPU."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch

from tirbench.errors import CaptureError, MeasurementError, TimerUnavailable
from tirbench.timing.device import CudaDevice, open_cuda
from tirbench.timing.flush import FlushBuffers
from tirbench.timing.kept_lines import MOST_PERSISTING, PERSISTING, Driver, Kernel

if TYPE_CHECKING:
    from tirbench.model import L2Policy


def device_with_l2(monkeypatch: pytest.MonkeyPatch, l2_bytes: int) -> CudaDevice:
    properties = SimpleNamespace(name="fake", L2_cache_size=l2_bytes)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return CudaDevice(0)


class Keeping(Driver):
    """A driver of a device whose L2 cache keeps so many bytes."""

    def __init__(self, kept: int, log: list[str]) -> None:
        super().__init__(library=object())
        self.kept, self.log = kept, log

    def context(self) -> None:
        return None

    def attribute(self, which: int, ordinal: int) -> int:
        assert (which, ordinal) == (MOST_PERSISTING, 0)
        return self.kept

    def limit(self, which: int) -> int:
        assert which == PERSISTING
        return self.kept

    def functions(self, _ptx: bytes, *names: str) -> list[str]:
        return list(names)

    def launch(self, kernel: Kernel, stream: int) -> None:
        self.log.append(f"{kernel.function} on {stream}")


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Buffers of a few elements on the CPU, in the order in which they are made."""
    made: list[torch.Tensor] = []
    zeros = torch.zeros

    def small(*size: object, dtype: torch.dtype, **_: object) -> torch.Tensor:
        made.append(zeros((64,) if size != ((),) else (), dtype=dtype))
        return made[-1]

    monkeypatch.setattr(torch, "zeros", small)
    monkeypatch.setattr(CudaDevice, "stream", lambda _: 7)
    return made


@pytest.mark.parametrize(
    ("l2_bytes", "flush_bytes"),
    [(0, 256 << 20), (50 << 20, 256 << 20), (126 << 20, 256 << 20), (192 << 20, 384 << 20)],
)
def test_the_flush_is_triton_s_and_at_least_twice_the_l2(
    monkeypatch: pytest.MonkeyPatch, l2_bytes: int, flush_bytes: int
) -> None:
    device = device_with_l2(monkeypatch, l2_bytes)
    assert device.flush_bytes == flush_bytes >= 2 * l2_bytes


def test_a_warm_call_needs_no_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FlushBuffers().flush(device_with_l2(monkeypatch, 0), "warm") is None


def test_a_flush_that_does_not_fit_says_how_much_it_needs_and_what_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("out of memory")

    device = device_with_l2(monkeypatch, 0)
    monkeypatch.setattr(torch, "zeros", full)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3 << 20, 80 << 30))
    with pytest.raises(MeasurementError, match=r"256 MiB and 3 MiB are free.*l2='warm'"):
        FlushBuffers().flush(device, "cold-dirty")


def test_cold_clean_reads_another_buffer_after_the_zeroes(
    monkeypatch: pytest.MonkeyPatch, on_cpu: list[torch.Tensor]
) -> None:
    device = device_with_l2(monkeypatch, 0)
    flush = FlushBuffers(lambda: Keeping(0, [])).flush(device, "cold-clean")
    assert flush is not None
    dirty, clean, sink = on_cpu
    dirty.fill_(7)
    clean.fill_(3)
    flush()
    assert dirty.tolist() == [0] * 64
    assert clean.tolist() == [3] * 64
    assert sink.item() == 3 * 64


@pytest.mark.parametrize("policy", ["cold-dirty", "cold-clean"])
def test_kept_lines_are_let_go_before_every_flush_on_its_stream(
    monkeypatch: pytest.MonkeyPatch, on_cpu: list[torch.Tensor], policy: L2Policy
) -> None:
    log: list[str] = []
    buffers = FlushBuffers(lambda: Keeping(1 << 20, log))
    flush = buffers.flush(device_with_l2(monkeypatch, 0), policy)
    assert flush is not None
    first = ["keep on 7", "let_go on 7"]
    assert log == first  # loaded before any capture
    monkeypatch.setattr(on_cpu[0], "zero_", lambda: log.append("zero"))
    for _ in range(2):
        again = buffers.flush(device_with_l2(monkeypatch, 0), policy)
        assert again is not None
        again()
    assert log == first + [*first, "zero"] * 2  # made once, whoever asks


def test_a_cache_that_keeps_nothing_and_one_of_amd_are_only_flushed(
    monkeypatch: pytest.MonkeyPatch, on_cpu: list[torch.Tensor]
) -> None:
    log: list[str] = []
    device = device_with_l2(monkeypatch, 0)
    FlushBuffers(lambda: Keeping(0, log)).flush(device, "cold-dirty")
    monkeypatch.setattr(torch.version, "hip", "6.2")
    FlushBuffers(lambda: Keeping(1 << 20, log)).flush(device, "cold-dirty")
    assert log == []
    assert len(on_cpu) == 2


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cpu", "times a CUDA device, not 'cpu'"),
        ("cuda:7", "no device cuda:7; torch sees 2"),
        (9, "no device cuda:9"),
    ],
)
def test_a_device_that_is_none_of_ours_is_refused(
    monkeypatch: pytest.MonkeyPatch, device: object, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(TimerUnavailable, match=message):
        open_cuda(device, "proton")


def test_a_device_that_is_no_device_is_a_value_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="device must be a CUDA device, got 'gpu'"):
        open_cuda("gpu", "event")


# --- captures ---------------------------------------------------------------------------------------


@dataclass
class FakeTorch:
    """What a capture does to torch 2.11: a failing `capture_end` leaves generator and allocator in it."""

    invalid: bool = False
    dead: bool = False
    drawing_in_capture: bool = False
    serving: list[object] = field(default_factory=list)
    pools: int = 0
    emptied: int = 0
    collecting: list[bool] = field(default_factory=list)

    def empty(self) -> None:
        self.emptied += 1

    def new_pool(self) -> tuple[int, int]:
        self.pools += 1
        return (0, self.pools)

    def end_serving(self, _index: int, pool: object) -> None:
        if pool not in self.serving:
            raise RuntimeError("not currently recording to mempool_id")
        self.serving.remove(pool)

    def graph(self) -> FakeCudaGraph:
        return FakeCudaGraph(self)


@dataclass
class FakeCudaGraph:
    torch: FakeTorch
    pool: object = None

    def capture_begin(self, pool: object = None) -> None:
        if self.torch.dead:
            raise RuntimeError("unspecified launch failure")
        self.pool = pool or self
        self.torch.serving.append(self.pool)
        self.torch.drawing_in_capture = True
        self.torch.collecting.append(gc.isenabled())

    def capture_end(self) -> None:
        if self.torch.invalid:
            self.torch.invalid = False
            raise RuntimeError("operation failed due to a previous error during capture")
        self.torch.serving.remove(self.pool)
        self.torch.drawing_in_capture = False


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", fake.graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", fake.new_pool)
    monkeypatch.setattr(torch.cuda, "empty_cache", fake.empty)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", fake.end_serving, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *_: None, raising=False)
    monkeypatch.setattr(CudaDevice, "fill_one", lambda _: None)
    return fake


def test_graphs_of_one_measurement_share_their_memory(
    monkeypatch: pytest.MonkeyPatch, fake_torch: FakeTorch
) -> None:
    device = device_with_l2(monkeypatch, 0)
    pool = device.graph_pool()
    graphs = [device.capture(lambda: None, pool) for _ in range(3)]
    assert len({id(graph) for graph in graphs}) == 3
    assert {cast("FakeCudaGraph", graph).pool for graph in graphs} == {(0, 1)}
    assert fake_torch.emptied == 1
    assert fake_torch.collecting == [False] * 3
    assert gc.isenabled()


def test_after_an_invalid_capture_torch_is_as_it_was_before(
    monkeypatch: pytest.MonkeyPatch, fake_torch: FakeTorch
) -> None:
    device = device_with_l2(monkeypatch, 0)

    def body() -> None:
        fake_torch.invalid = True
        raise ValueError("cudaErrorStreamCaptureUnsupported")

    with pytest.raises(RuntimeError, match="previous error during capture") as raised:
        device.capture(body, device.graph_pool())
    assert isinstance(raised.value.__context__, ValueError)
    assert not fake_torch.drawing_in_capture
    assert not fake_torch.serving
    assert gc.isenabled()
    device.capture(lambda: None, device.graph_pool())


def test_a_body_that_fails_in_python_alone_ends_its_capture_as_usual(
    monkeypatch: pytest.MonkeyPatch, fake_torch: FakeTorch
) -> None:
    device = device_with_l2(monkeypatch, 0)

    def body() -> None:
        raise ValueError("no such block size")

    with pytest.raises(ValueError, match="no such block size"):
        device.capture(body, device.graph_pool())
    assert not fake_torch.drawing_in_capture


def test_a_torch_that_does_not_come_back_asks_for_another_process(
    monkeypatch: pytest.MonkeyPatch, fake_torch: FakeTorch
) -> None:
    device = device_with_l2(monkeypatch, 0)

    def body() -> None:
        fake_torch.invalid = fake_torch.dead = True

    with pytest.raises(CaptureError, match=r"unspecified launch failure.*another process"):
        device.capture(body, device.graph_pool())
