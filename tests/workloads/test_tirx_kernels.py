"""The suite's TIRx kernels: right on a CPU through LLVM, and sensible CUDA for Hopper."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

tirx = pytest.importorskip("tvm_tirx.tirx", reason="pip install 'tirbench[tirx]'")

KERNELS = Path(__file__).parents[2] / "workloads" / "kernels"
RTOL = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = pytest.mark.parametrize("dtype", RTOL, ids=str)


@pytest.fixture(autouse=True)
def kernel_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """TIRx reads a kernel's source, so its file is imported by name; forgotten again afterwards."""
    monkeypatch.syspath_prepend(str(KERNELS))
    yield
    for name in ("vector_add_tirx", "rmsnorm_tirx", "softmax_tirx"):
        sys.modules.pop(name, None)


def on_cpu(function: Any, **constants: object) -> Any:
    return tirx.compile(function.specialize(**constants), target="llvm")


def cuda_source(function: Any, **constants: object) -> str:
    executable = tirx.compile(
        function.specialize(**constants), target={"kind": "cuda", "arch": "sm_90"}
    )
    (device,) = executable.mod.imports
    source = str(device.inspect_source())
    return source[source.rindex("__global__") :]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def blank(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """NaN, which a kernel that skips an element leaves behind."""
    return torch.full(shape, float("nan"), dtype=dtype)


def assert_close(got: torch.Tensor, want: torch.Tensor) -> None:
    limit = RTOL[got.dtype] * (want.abs() + want.square().mean().sqrt())
    assert ((got.double() - want).abs() <= limit).all()


def test_vector_add_adds_every_element_on_a_cpu() -> None:
    n = 10_000
    x, y, z = torch.randn(n), torch.randn(n), blank(n, dtype=torch.float32)
    on_cpu(import_module("vector_add_tirx").vector_add_llvm, N=n)(x, y, z)
    assert_close(z, x.double() + y.double())


@DTYPES
def test_rmsnorm_agrees_with_the_float64_oracle_on_a_cpu(dtype: torch.dtype) -> None:
    rows, hidden = 5, 224
    x, w = torch.randn(rows, hidden).to(dtype), torch.randn(hidden).to(dtype)
    y = blank(rows, hidden, dtype=dtype)
    function = import_module("rmsnorm_tirx").rmsnorm_llvm
    on_cpu(function, M=rows, N=hidden, DTYPE=name_of(dtype))(x, w, y, 1e-6)
    assert_close(y, torch.nn.functional.rms_norm(x.double(), (hidden,), w.double(), 1e-6))


@DTYPES
@pytest.mark.parametrize("spread", [1.0, 40.0], ids=["usual", "wide"])
def test_softmax_agrees_with_the_float64_oracle_on_a_cpu(dtype: torch.dtype, spread: float) -> None:
    """Widely spread scores drive most exponentials below the smallest float32."""
    rows, cols = 5, 224
    x = (torch.randn(rows, cols) * spread).to(dtype)
    y = blank(rows, cols, dtype=dtype)
    on_cpu(import_module("softmax_tirx").softmax_llvm, M=rows, N=cols, DTYPE=name_of(dtype))(x, y)
    assert_close(y, torch.softmax(x.double(), dim=-1))


def test_vector_add_becomes_128_bit_accesses_on_cuda() -> None:
    source = cuda_source(import_module("vector_add_tirx").vector_add_cuda, N=10_000, THREADS=256)
    assert source.count("*(float4*)") == 3
    assert "__launch_bounds__(256)" in source


@DTYPES
def test_rmsnorm_reduces_narrow_rows_within_a_warp_on_cuda(dtype: torch.dtype) -> None:
    function = import_module("rmsnorm_tirx").rmsnorm_cuda
    source = cuda_source(function, M=5, N=128, DTYPE=name_of(dtype), THREADS=32, ROWS=4)
    assert "warp_reduce_sum" in source
    assert "cta_reduce" not in source
    assert "__launch_bounds__(128)" in source


@DTYPES
def test_rmsnorm_reduces_wide_rows_across_the_block_on_cuda(dtype: torch.dtype) -> None:
    function = import_module("rmsnorm_tirx").rmsnorm_cuda
    source = cuda_source(function, M=5, N=4096, DTYPE=name_of(dtype), THREADS=256, ROWS=1)
    assert source.count("cta_reduce_sum_8(") == 1
    assert "float4" in source


@DTYPES
def test_softmax_reduces_maximum_and_sum_across_the_block_on_cuda(dtype: torch.dtype) -> None:
    function = import_module("softmax_tirx").softmax_cuda
    source = cuda_source(function, M=5, N=4096, DTYPE=name_of(dtype), THREADS=256)
    assert source.count("cta_reduce_max_8(") == 1
    assert source.count("cta_reduce_sum_8(") == 1
