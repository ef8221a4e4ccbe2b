"""What only a GPU can show: graphs, the allocator, and that integers are the same bits there."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from tirbench import tensors as tb
from tirbench.check import Rule, compare
from tirbench.tensors import Arena, Init, Tensor, Tensors, checksum

pytestmark = pytest.mark.gpu
DTYPES = [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float64]


def allocate(*specs: Tensor, device: str = "cuda", placement: int = 0) -> Tensors:
    return Tensors.allocate(specs, device=device, seed=0, placement=placement)


@pytest.mark.parametrize(
    "init", [tb.randint(-5, 1 << 30), tb.permutation(), tb.uniform(), tb.arange()], ids=str
)
def test_contents_are_the_same_bits_as_on_a_cpu(init: Init) -> None:
    dtype = torch.float32 if init.kind == "uniform" else torch.int32
    spec = Tensor("t", shape=(3, 70_001), dtype=dtype, init=init)
    there, here = allocate(spec)["t"], allocate(spec, device="cpu")["t"]
    assert torch.equal(there.cpu(), here)
    assert int(checksum(there)) == int(checksum(here))


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_numbers_agree_with_those_of_a_cpu_to_rounding(dtype: torch.dtype) -> None:
    spec = Tensor("t", shape=(3, 70_001), dtype=dtype, init=tb.normal())
    there, here = allocate(spec)["t"], allocate(spec, device="cpu")["t"]
    found = compare(there.cpu(), here.double(), Rule("t", relative_l2=1e-3))
    assert found.passed, found.message


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int8, torch.bool])
def test_a_graph_can_capture_restoring(dtype: torch.dtype) -> None:
    found = allocate(
        Tensor(
            "x", role="inout", shape=(64, 48), strides=(80, 1), dtype=dtype, init=tb.randint(0, 2)
        ),
        Tensor("acc", role="scratch", shape=(64,), dtype=torch.float32, init=tb.zeros()),
        Tensor("low", role="scratch", shape=(64,), dtype=torch.float32, init=tb.full(-1)),
    )
    before = {name: found.initial(name) for name in found.restored}
    found.restore()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found.restore()
    found.poison(found.names)
    graph.replay()
    torch.cuda.synchronize()
    for name, wanted in before.items():
        assert torch.equal(found[name].double(), wanted.double())
    assert found.violations() == []


def test_placements_have_the_same_addresses_modulo_2_mib_in_every_arena() -> None:
    spec = Tensor("x", shape=(1000,), dtype=torch.float32, init=tb.normal())
    seen = []
    for size in (1, 77, 5 << 20):
        hole = torch.empty(size, dtype=torch.uint8, device="cuda")  # another history of allocation
        arena = Arena("cuda")
        found = Tensors.allocate([spec], device="cuda", seed=0, placement=2, arena=arena)
        seen.append(found["x"].data_ptr() % (2 << 20))
        del hole
    assert len(set(seen)) == 1


def test_every_case_of_a_process_lies_in_the_same_pages() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    small = Tensor("x", shape=(1000,), dtype=torch.float32, init=tb.normal())
    large = Tensor("x", shape=(50 << 20,), dtype=torch.float32, init=tb.normal())
    seen = []
    for spec in (small, large, small):
        found = Tensors.allocate([spec], device=device, seed=0, placement=2, arena=tb.home(device))
        seen.append(found["x"].data_ptr())
        torch.cuda.empty_cache()
    assert len(set(seen)) == 1


def raw(tensor: torch.Tensor, nbytes: int) -> torch.Tensor:
    """So many bytes from the start of the tensor, wherever they belong."""

    class Memory:
        __cuda_array_interface__: ClassVar = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (tensor.data_ptr(), False),
            "version": 2,
        }

    return torch.as_tensor(Memory(), device="cuda")


@pytest.mark.parametrize("dtype", DTYPES)
def test_guards_gaps_and_inputs_are_watched(dtype: torch.dtype) -> None:
    found = allocate(
        Tensor("x", shape=(8, 9), dtype=dtype, init=tb.normal()),
        Tensor("y", role="out", shape=(8, 9), strides=(16, 1), dtype=dtype),
    )
    assert found.violations() == []
    raw(found["y"], 8 * 16 * found["y"].element_size()).zero_()
    found["x"][3, 3] = 100
    sentences = found.violations()
    assert [one.partition(":")[0] for one in sentences] == ["y", "y", "x"]
    assert found.violations() == []


def test_the_allocator_hands_out_poison_after_poisoning() -> None:
    right = torch.ones(1 << 20, device="cuda")
    nbytes = right.nbytes
    del right
    tb.poison_allocator("cuda", nbytes)
    assert bool(torch.empty(1 << 20, device="cuda").isnan().all())


def test_an_output_of_more_than_2_31_elements_is_compared_to_its_end() -> None:
    shape = (65536, 32769)
    want = torch.ones((), dtype=torch.float64, device="cuda").expand(shape)
    got = torch.ones(shape, dtype=torch.float8_e5m2, device="cuda")
    assert compare(got, want, Rule("y")).passed
    got[-1, -1] = 4
    found = compare(got, want, Rule("y"))
    assert "1 of 2147549184 elements" in found.message
    assert "worst at [65535, 32768]: got 4.0" in found.message
