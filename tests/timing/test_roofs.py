"""Roofs, measured where there is only a CPU."""

from __future__ import annotations

import pytest
import torch

from tirbench.timing import roofs


def test_roofs_of_a_cpu_are_positive_and_leave_out_what_it_cannot_multiply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roofs, "COPY_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr(roofs, "SIDES", {"cpu": (16, 32)})
    monkeypatch.setattr(roofs, "SLOW_SIDES", {"cpu": (16, 32)})

    measured = roofs.measure_roofs("cpu", ["float32", "float64", "bool"])
    gbytes_per_s, tflops = measured.copy_gbytes_per_s, measured.tflops
    assert measured.zeros_tflops.keys() == tflops.keys()
    assert gbytes_per_s > 0.01
    assert set(tflops) == {"float32", "float64"}
    assert all(value > 0 for value in tflops.values())


def test_measuring_roofs_puts_the_precision_of_products_back() -> None:
    before = torch.get_float32_matmul_precision()
    with roofs._tf32():
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
