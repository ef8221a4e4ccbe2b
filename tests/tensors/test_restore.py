from __future__ import annotations

import pytest
import torch

from tirbench import tensors as tb
from tirbench.tensors import Computed, Tensor, TensorError, Tensors

ALL_DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def allocate(*specs: Tensor, computed: tuple[Computed, ...] = ()) -> Tensors:
    return Tensors.allocate(specs, computed, device="cpu", seed=0, placement=0)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_inout_tensors_of_every_dtype_get_their_contents_back(dtype: torch.dtype) -> None:
    found = allocate(
        Tensor("x", role="inout", shape=(3, 5), strides=(8, 1), dtype=dtype, init=tb.randint(0, 2))
    )
    before = bits(found["x"]).clone()
    found.poison(["x"])
    assert not torch.equal(bits(found["x"]), before)
    found.restore()
    assert torch.equal(bits(found["x"]), before)
    assert found.violations() == []


def test_an_in_place_kernel_called_repeatedly_sees_the_same_input() -> None:
    found = allocate(Tensor("x", role="inout", shape=(9,), dtype=torch.float32, init=tb.normal()))
    results = []
    for _ in range(3):
        found.restore()
        results.append(found["x"].add_(1).clone())
    assert all(torch.equal(one, results[0]) for one in results)


def test_what_is_restored_is_named() -> None:
    def spec(name: str, **more: object) -> Tensor:
        return Tensor(name, shape=(4,), dtype=torch.float32, **more)  # type: ignore[arg-type]

    found = allocate(
        spec("x", init=tb.normal()),
        spec("state", role="inout", init=tb.normal()),
        spec("grown", role="inout", init=tb.normal(), reset="none"),
        spec("acc", role="scratch", init=tb.zeros()),
        spec("flags", role="scratch", init=tb.ones(), reset="none"),
        spec("buffer", role="scratch"),
        spec("y", role="out"),
        spec("logits", role="out", init=tb.full(float("-inf"))),
        spec("counts", role="inout"),
        computed=(Computed(("counts",), lambda: torch.zeros(4), lambda: ()),),
    )
    assert found.restored == ("state", "acc", "logits", "counts")


def test_constant_contents_are_written_again_without_a_copy() -> None:
    found = allocate(
        Tensor("acc", role="scratch", shape=(4,), dtype=torch.float32, init=tb.zeros()),
        Tensor("low", role="scratch", shape=(4,), dtype=torch.float32, init=tb.full(-2.5)),
    )
    assert not found._pristine
    found["acc"].fill_(3)
    found["low"].fill_(3)
    found.restore()
    assert found["acc"].tolist() == [0] * 4
    assert found["low"].tolist() == [-2.5] * 4


def test_memory_that_is_written_through_a_view_is_restored() -> None:
    found = allocate(
        Tensor("state", shape=(4,), dtype=torch.int32, init=tb.arange()),
        Tensor("bytes", view="state", role="inout", dtype=torch.uint8, shape=(16,)),
    )
    assert found.restored == ("state",)
    found["bytes"].fill_(1)
    assert found.violations() == []
    found.restore()
    assert found["state"].tolist() == [0, 1, 2, 3]


def test_initial_contents_survive_whatever_kernels_do() -> None:
    found = allocate(
        Tensor("x", shape=(4,), dtype=torch.float16, init=tb.normal()),
        Tensor(
            "grown", role="inout", shape=(4,), dtype=torch.float16, init=tb.normal(), reset="none"
        ),
        Tensor("state", role="inout", shape=(4,), dtype=torch.float16, init=tb.normal()),
        Tensor("n", shape=(4,), dtype=torch.int32, init=tb.arange()),
    )
    before = {name: found[name].clone() for name in found.names}
    for name in found.names:
        found[name].fill_(7)
    for name, wanted in before.items():
        assert torch.equal(found.initial(name), wanted)
    assert found.initial("x", torch.float64).dtype == torch.float64
    assert found.initial("n", torch.float64).dtype == torch.int32


def test_initial_contents_are_private_copies() -> None:
    found = allocate(Tensor("x", shape=(4,), dtype=torch.float16, init=tb.normal()))
    found.initial("x").fill_(9)
    assert found.violations() == []
    assert found.initial("x").data_ptr() != found["x"].data_ptr()


def test_tensors_without_contents_have_no_initial_ones() -> None:
    found = allocate(Tensor("y", role="out", shape=(4,), dtype=torch.float16))
    assert not found.has_initial("y")
    with pytest.raises(TensorError, match="y: has no initial contents"):
        found.initial("y")
    with pytest.raises(TensorError, match="there is no tensor z"):
        found.initial("z")


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL_DTYPES if dtype.is_floating_point])
def test_poison_of_a_floating_dtype_is_nan(dtype: torch.dtype) -> None:
    found = allocate(Tensor("y", role="out", shape=(3, 3), strides=(5, 1), dtype=dtype))
    assert bool(found["y"].double().isnan().all())
    found["y"].copy_(torch.ones(3, 3))
    found.poison()
    assert bool(found["y"].double().isnan().all())
    assert found.violations() == []


def test_poison_of_integers_is_extreme_and_of_bools_alternates() -> None:
    found = allocate(
        Tensor("n", role="out", shape=(2,), dtype=torch.int32),
        Tensor("b", role="out", shape=(2,), dtype=torch.uint8),
        Tensor("keep", role="out", shape=(2, 2), dtype=torch.bool),
    )
    assert found["n"].tolist() == [-(2**31)] * 2
    assert found["b"].tolist() == [255] * 2
    assert found["keep"].tolist() == [[True, False], [True, False]]


def test_a_kernel_that_does_nothing_leaves_poison_and_not_the_answer_of_another() -> None:
    found = allocate(
        Tensor("x", shape=(4,), dtype=torch.float32, init=tb.ones()),
        Tensor("y", role="out", shape=(4,), dtype=torch.float32),
        Tensor("z", role="out", shape=(4,), dtype=torch.float32, init=tb.zeros(), reset="none"),
    )
    found["y"].copy_(found["x"])  # the reference
    found["z"].copy_(found["x"])
    found.restore()
    found.poison()
    assert bool(found["y"].isnan().all())
    assert bool(found["z"].isnan().all())


def test_poisoning_the_allocator_takes_one_or_several_sizes() -> None:
    tb.poison_allocator("cpu", 4096)
    tb.poison_allocator("cpu", [0, 16, 1 << 20])
