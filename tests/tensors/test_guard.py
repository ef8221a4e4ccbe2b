from __future__ import annotations

import ctypes
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench import tensors as tb
from tirbench.tensors import Computed, Tensor, TensorError, Tensors, checksum
from tirbench.tensors.layout import GUARD_BYTES
from tirbench.tensors.poison import poison

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def allocate(*specs: Tensor) -> Tensors:
    return Tensors.allocate(specs, device="cpu", seed=0, placement=0)


def one_output() -> Tensors:
    return allocate(Tensor("y", role="out", shape=(33,), dtype=torch.bfloat16))


def around(tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Bytes `first` … `last` from the start of the tensor, wherever they belong."""
    memory = (ctypes.c_uint8 * (last - first)).from_address(tensor.data_ptr() + first)
    return torch.frombuffer(memory, dtype=torch.uint8)


def test_an_untouched_case_has_no_violations() -> None:
    found = allocate(
        Tensor("x", shape=(3, 7), strides=(16, 2), offset=3, dtype=torch.float16, init=tb.normal()),
        Tensor("y", role="out", shape=(), dtype=torch.float32),
        Tensor("none", role="out", shape=(0, 4), dtype=torch.int64),
    )
    found["y"].fill_(1)
    assert found.violations() == []


@pytest.mark.parametrize("where", [0, 1, 17, GUARD_BYTES - 1])
def test_a_byte_written_anywhere_behind_the_end_is_seen(where: int) -> None:
    found = one_output()
    y = found["y"]
    around(y, y.nbytes + where, y.nbytes + where + 1).bitwise_xor_(1)
    assert found.violations() == [
        (
            f"y: written behind its end: 1 of 512 guard bytes changed, the first at byte +{where} "
            "from its end"
        )
    ]


def test_bytes_written_before_the_start_are_counted() -> None:
    found = one_output()
    around(found["y"], -8, 0).fill_(0)
    assert found.violations() == [
        (
            "y: written before its start: 8 of 512 guard bytes changed, the first at byte -8 "
            "from its start"
        )
    ]


def test_a_violation_is_reported_once() -> None:
    found = one_output()
    y = found["y"]
    around(y, y.nbytes, y.nbytes + 4).fill_(0)
    assert len(found.violations()) == 1
    assert found.violations() == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_around_a_tensor_reads_as_nan(dtype: torch.dtype) -> None:
    y = allocate(Tensor("y", role="out", shape=(2, 4), strides=(8, 1), dtype=dtype))["y"]
    inside = 12 * y.element_size()
    assert bool(around(y, -512, 0).view(dtype).double().isnan().all())
    assert bool(around(y, inside, inside + 512).view(dtype).double().isnan().all())
    gap = around(y, 4 * y.element_size(), 8 * y.element_size())
    assert bool(gap.view(dtype).double().isnan().all())


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64, torch.int32, torch.int8, torch.bool])
def test_poison_and_zeros_in_a_gap_are_seen(dtype: torch.dtype) -> None:
    found = allocate(Tensor("y", role="out", shape=(3, 4), strides=(9, 1), dtype=dtype))
    row = found["y"].as_strided((22,), (1,))
    for value in (0, 1):
        row[4:9].fill_(value)
        row[13:15].fill_(value)
        assert found.violations() == [
            (
                "y: written between its rows: 7 elements of the gaps changed, the first at byte "
                f"+{4 * row.element_size()} from its start"
            )
        ]
    poison(row)
    assert len(found.violations()) == 1


def test_the_gap_of_one_tensor_does_not_pass_for_that_of_another() -> None:
    def spec(name: str) -> Tensor:
        return Tensor(name, role="out", shape=(3, 4), strides=(9, 1), dtype=torch.float16)

    found = allocate(spec("x"), spec("y"))
    found["y"].as_strided((22,), (1,)).copy_(found["x"].as_strided((22,), (1,)))
    assert len(found.violations()) == 1


def test_positions_between_interleaving_rows_are_watched() -> None:
    found = allocate(Tensor("y", role="out", shape=(2, 3), strides=(3, 2), dtype=torch.int32))
    found["y"].as_strided((8,), (1,))[6] = 5
    assert found.violations() == [
        (
            "y: written between its rows: 1 elements of the gaps changed, the first at byte +24 "
            "from its start"
        )
    ]


def test_an_input_that_is_written_is_named_and_filled_again() -> None:
    found = allocate(Tensor("x", shape=(4, 5), dtype=torch.float32, init=tb.normal()))
    before = found["x"].clone()
    found["x"][2, 3:] = 9
    assert found.violations() == [
        (
            "x: written though it is an input: 2 of 20 elements changed, the first at [2, 3], "
            "byte +52 in row-major order"
        )
    ]
    assert torch.equal(found["x"], before)
    assert found.violations() == []


def test_an_input_that_cannot_be_computed_again_is_an_error() -> None:
    values = iter([torch.zeros(3), torch.ones(3)])
    found = Tensors.allocate(
        [Tensor("x", shape=(3,), dtype=torch.float32)],
        [Computed(("x",), lambda: next(values), lambda: ())],
        device="cpu",
        seed=0,
        placement=0,
    )
    found["x"][0] = 5
    with pytest.raises(TensorError, match="does not compute the same contents again"):
        found.violations()


@settings(deadline=None)  # the first call of a torch function is slow
@given(st.integers(0, 59), st.integers(1, 255))
def test_a_checksum_sees_every_single_change(where: int, change: int) -> None:
    tensor = torch.arange(60, dtype=torch.uint8)
    before = int(checksum(tensor.view(6, 10)))
    tensor[where] ^= change
    assert int(checksum(tensor.view(6, 10))) != before


def test_a_checksum_sees_order_but_not_strides() -> None:
    tensor = torch.randn(5, 7)
    turned = tensor.T.contiguous().T
    assert int(checksum(tensor)) == int(checksum(turned))
    assert int(checksum(tensor)) != int(checksum(tensor.flip(0)))


def test_placements_move_tensors_and_keep_contents_in_one_arena() -> None:
    arena = tb.Arena("cpu")
    specs = [
        Tensor("x", shape=(1000,), dtype=torch.float32, init=tb.normal()),
        Tensor("y", role="out", shape=(1000,), dtype=torch.float32),
    ]
    seen = []
    for placement in range(5):
        found = Tensors.allocate(specs, device="cpu", seed=0, placement=placement, arena=arena)
        assert found.violations() == []
        seen.append((found["x"].data_ptr(), found["x"].clone(), arena.nbytes))
    assert len({address % (2 << 20) for address, _, _ in seen}) == 5
    assert all(address % 512 == 0 for address, _, _ in seen)
    assert all(torch.equal(a[1], b[1]) and a[2] == b[2] for a, b in pairwise(seen))
