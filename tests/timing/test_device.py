"""The view of torch.cuda, as far as it needs no GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tirbench.errors import MeasurementError, TimerUnavailable
from tirbench.timing.device import CudaDevice, open_cuda
from tirbench.timing.flush import FlushBuffers


def device_with_l2(monkeypatch: pytest.MonkeyPatch, l2_bytes: int) -> CudaDevice:
    properties = SimpleNamespace(name="fake", L2_cache_size=l2_bytes)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return CudaDevice(0)


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


def test_cold_clean_reads_another_buffer_after_the_zeroes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.Tensor] = []
    zeros = torch.zeros

    def on_cpu(*size: object, dtype: torch.dtype, **_: object) -> torch.Tensor:
        small = (4,) if size != ((),) else ()
        made.append(zeros(small, dtype=dtype))
        return made[-1]

    device = device_with_l2(monkeypatch, 0)
    monkeypatch.setattr(torch, "zeros", on_cpu)
    buffers = FlushBuffers()
    flush = buffers.flush(device, "cold-clean")
    assert flush is not None
    dirty, clean, sink = made
    dirty.fill_(7)
    clean.fill_(3)
    flush()
    assert dirty.tolist() == [0] * 4
    assert clean.tolist() == [3] * 4
    assert sink.item() == 12
    assert buffers.flush(device, "cold-dirty") == dirty.zero_


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
