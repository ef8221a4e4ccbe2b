from __future__ import annotations

import pytest
import torch

from tirbench import tensors as tb
from tirbench.tensors import Tensor, TensorError, Tensors

BASE = Tensor("base", shape=(4, 6), dtype=torch.float32, init=tb.arange())


def made(*specs: Tensor) -> Tensors:
    return Tensors.allocate([*specs, BASE], device="cpu", seed=0, placement=0)


def test_a_permuted_view_shows_the_memory_of_its_base() -> None:
    found = made(Tensor("turned", view="base", permute=(1, 0)))
    assert torch.equal(found["turned"], found["base"].T)
    assert found["turned"].data_ptr() == found["base"].data_ptr()


def test_a_view_with_strides_counts_from_the_first_element() -> None:
    found = made(Tensor("part", view="base", shape=(2, 3), strides=(12, 2), offset=1))
    assert found["part"].tolist() == [[1, 3, 5], [13, 15, 17]]


def test_a_view_may_reinterpret_the_bytes() -> None:
    found = made(Tensor("bytes", view="base", dtype=torch.uint8, shape=(96,)))
    assert torch.equal(found["bytes"].view(torch.float32), found["base"].flatten())


def test_a_view_of_a_view_is_resolved_in_any_order() -> None:
    found = made(
        Tensor("last", view="turned", permute=(1, 0)),
        Tensor("turned", view="base", permute=(1, 0)),
    )
    assert torch.equal(found["last"], found["base"])


def test_a_broadcast_view_repeats_elements_without_memory() -> None:
    found = made(Tensor("wide", view="base", shape=(4, 6, 9), strides=(6, 1, 0)))
    assert found["wide"].stride() == (6, 1, 0)
    assert torch.equal(found["wide"], found["base"][..., None].expand(4, 6, 9))
    copy = found.initial("wide", torch.float64)
    assert torch.equal(copy, found["wide"].double())
    assert copy.untyped_storage().nbytes() == 24 * 8


def test_a_tensor_may_have_a_repeated_dimension_of_its_own() -> None:
    found = made(Tensor("dt", shape=(3, 5), strides=(1, 0), dtype=torch.float16, init=tb.normal()))[
        "dt"
    ]
    assert torch.equal(found, found[:, :1].expand(3, 5))
    assert len(set(found[:, 0].tolist())) == 3


def test_an_offset_is_in_elements() -> None:
    spec = Tensor("x", shape=(3,), offset=5, dtype=torch.float16, init=tb.ones())
    found = made(spec)
    assert found["x"].data_ptr() % 512 == 10
    assert found.violations() == []


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            Tensor("v", view="base", shape=(25,)),
            "v: reaches to byte 100 of base, which has 96",
        ),
        (
            Tensor("v", view="base", permute=(0, 0)),
            "v: permute [0, 0] is no order of the 2 dimension(s) of base",
        ),
        (Tensor("v", view="other"), "v: is a view of other, which does not exist"),
        (Tensor("v", view="v"), "views show one another: v of v"),
        (
            Tensor("v", dtype=torch.int8, init=tb.zeros()),
            "v: only a view may leave out shape or dtype",
        ),
        (
            Tensor("v", shape=(2, 2), strides=(1,), dtype=torch.int8, init=tb.zeros()),
            "v: 2 dimension(s) and 1 stride(s)",
        ),
        (
            Tensor("v", shape=(2,), strides=(-1,), dtype=torch.int8, init=tb.zeros()),
            "v: a size, a stride or the offset is negative",
        ),
    ],
)
def test_views_that_cannot_be_are_refused(view: Tensor, message: str) -> None:
    with pytest.raises(TensorError) as caught:
        made(view)
    assert str(caught.value) == message


def test_a_view_must_not_begin_between_elements_of_its_dtype() -> None:
    odd = Tensor("odd", view="base", dtype=torch.uint8, shape=(9,), offset=1)
    with pytest.raises(TensorError, match="v: odd does not begin at a multiple of 4 bytes"):
        made(odd, Tensor("v", view="odd", dtype=torch.float32, shape=(2,)))
