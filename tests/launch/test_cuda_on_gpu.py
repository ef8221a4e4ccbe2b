"""What only a GPU can show of a cuda launch: numbers, streams, graphs, shared memory, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tirbench.errors import UsageError
from tirbench.harness.device import Device
from tirbench.launch import cuda
from tirbench.launch.cscalar import CScalar
from tirbench.launch.nvrtc import CudaSource, name_expression

pytestmark = pytest.mark.gpu
WORKLOADS = Path(__file__).parents[2] / "workloads"


class Norm:
    """Our RMSNorm on one problem, with what is right beside it."""

    def __init__(self, rows: int, hidden: int, dtype: torch.dtype, *, bias: bool = False) -> None:
        self.hidden, self.dtype, self.noted = hidden, dtype, list[Any]()
        shapes = ((rows, hidden), (hidden,), (hidden,))
        self.x, self.w, self.b = (torch.randn(s, device="cuda", dtype=dtype) for s in shapes)
        self.y = torch.empty_like(self.x)
        source = CudaSource(
            folder=WORKLOADS,
            file="kernels/rmsnorm.cu",
            expression=name_expression("rmsnorm", (dtype, 256, 16 // dtype.itemsize, bias)),
            flags=("--use_fast_math",),
            include=("kernels/include",),
        )
        device = Device("cuda")
        assert device.arch is not None
        self.kernel = cuda.prepared(source, device.arch, device.torch.index, self.noted.append)
        self.args = (self.x, self.w, self.b if bias else None, self.y)
        self.sizes = (CScalar("int32", rows), CScalar("int32", hidden), CScalar("float32", 1e-6))
        wide = self.x.double()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * self.w.double()
        self.want = wide + self.b.double() if bias else wide

    def bind(self, *sizes: CScalar, **options: Any) -> Any:
        shared = self.hidden * self.dtype.itemsize + 2 * 8 * 4
        given = {"grid": (7,), "block": (256,), "shared_bytes": shared, **options}
        return self.kernel.bind(*self.args, *(sizes or self.sizes), **given)

    def right(self) -> bool:
        tolerance = 1e-5 if self.dtype == torch.float32 else 8e-3
        error = (self.y.double() - self.want).abs()
        scale = self.want.abs() + self.want.square().mean().sqrt()
        return bool((error <= tolerance * scale).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "hidden"), [(5, 224), (33, 4096)])
def test_a_kernel_is_right(rows: int, hidden: int, bias: bool, dtype: torch.dtype) -> None:
    norm = Norm(rows, hidden, dtype, bias=bias)
    norm.bind()()
    assert norm.right()


def test_a_launch_is_captured_into_a_graph_and_allocates_nothing() -> None:
    norm = Norm(33, 4096, torch.float16)
    launch = norm.bind()
    launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    norm.y.fill_(torch.nan)
    allocated = torch.cuda.memory_allocated()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == allocated
    assert norm.right()


def test_more_shared_memory_than_a_block_gets_unasked_is_opted_in() -> None:
    norm = Norm(9, 40_960, torch.float16)
    norm.bind()()
    assert norm.right()
    facts = norm.noted[0]()
    assert facts.shared_bytes == 2 * 40_960 + 64
    assert facts.digest.startswith("sass:")
    assert 16 <= facts.registers <= 42
    assert facts.spills == 0


def test_more_shared_memory_than_the_device_has_is_refused() -> None:
    with pytest.raises(UsageError, match="asks for 1,048,576 bytes of shared memory"):
        Norm(1, 256, torch.float16).bind(shared_bytes=1 << 20)


def test_arguments_that_do_not_fit_the_parameters_are_refused() -> None:
    norm = Norm(1, 256, torch.float16)
    with pytest.raises(UsageError, match="takes 7 arguments, got 5"):
        norm.bind(norm.sizes[0])
    with pytest.raises(UsageError, match=r"argument 5 of .* has 4 bytes, got 8"):
        norm.bind(CScalar("int64", 1), *norm.sizes[1:])
