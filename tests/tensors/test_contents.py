from __future__ import annotations

import pytest
import torch

from tirbench import tensors as tb
from tirbench.tensors import Computed, Tensor, TensorError, Tensors

PAGES, PAGE, DIM = 6, 4, 8


def quantised(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = values.float().abs().amax(-1) / 448
    return (values.float() / scale[..., None]).to(torch.float8_e4m3fn), scale


def fused_cache() -> tuple[list[Tensor], list[Computed]]:
    """Per page all float8 values, then all float32 scales, in one buffer of bytes."""
    page_bytes = PAGE * (DIM + 4)
    specs = [
        Tensor(
            "kv_value",
            view="kv",
            dtype=torch.float8_e4m3fn,
            shape=(PAGES, PAGE, DIM),
            strides=(page_bytes, DIM, 1),
        ),
        Tensor(
            "kv_scale",
            view="kv",
            dtype=torch.float32,
            shape=(PAGES, PAGE),
            strides=(page_bytes // 4, 1),
            offset=PAGE * DIM // 4,
        ),
        Tensor(
            "kv_full",
            shape=(PAGES, PAGE, DIM),
            dtype=torch.bfloat16,
            init=tb.normal(clamp=[-2, 2]),
            temporary=True,
        ),
        Tensor("kv", shape=(PAGES, page_bytes), dtype=torch.uint8, init=tb.zeros()),
    ]
    return specs, [Computed(("kv_value", "kv_scale"), quantised, lambda kv_full: (kv_full,))]


def allocate(
    specs: list[Tensor], computed: list[Computed], *, seed: int = 0, placement: int = 0
) -> Tensors:
    return Tensors.allocate(specs, computed, device="cpu", seed=seed, placement=placement)


def test_a_function_fills_views_of_one_fused_buffer() -> None:
    found = allocate(*fused_cache())
    value, scale = quantised(found.initial("kv_full"))
    page = found["kv"][2]
    assert torch.equal(page[: PAGE * DIM], value[2].view(torch.uint8).flatten())
    assert torch.equal(page[PAGE * DIM :].view(torch.float32), scale[2])


def test_temporary_tensors_are_freed_and_say_so() -> None:
    found = allocate(*fused_cache())
    assert found.names == ("kv_value", "kv_scale", "kv")
    with pytest.raises(TensorError, match="kv_full: was temporary and is freed"):
        found["kv_full"]


def test_an_overwritten_fused_buffer_is_computed_again() -> None:
    found = allocate(*fused_cache())
    before = found["kv"].clone()
    found["kv_scale"][5, 3] = 7
    (sentence,) = found.violations()
    assert sentence.startswith("kv: written though it is an input: 4 of 288 elements changed")
    assert torch.equal(found["kv"], before)


def test_functions_take_arguments_by_name_and_see_filled_tensors() -> None:
    specs = [
        Tensor("rows", shape=(6,), dtype=torch.int32),
        Tensor("lens", shape=(2,), dtype=torch.int32, init=tb.full(4)),
    ]

    def rows_of_batch(lens: torch.Tensor, *, next_n: int) -> torch.Tensor:
        return lens.repeat_interleave(next_n)

    computed = [Computed(("rows",), rows_of_batch, lambda lens: {"lens": lens, "next_n": 3})]
    assert allocate(specs, computed)["rows"].tolist() == [4] * 6


def test_functions_that_draw_draw_the_same_for_every_placement() -> None:
    specs = [Tensor("t", shape=(8,), dtype=torch.float32)]
    computed = [Computed(("t",), lambda: torch.randn(8), lambda: ())]
    state = torch.random.get_rng_state()
    first, second, other = (
        allocate(specs, computed, placement=0)["t"],
        allocate(specs, computed, placement=1)["t"],
        allocate(specs, computed, seed=1)["t"],
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (torch.zeros(3), r"t: made returned \[3\] of float32, wanted \[4\] of float32"),
        (torch.zeros(4).half(), r"t: made returned \[4\] of float16, wanted \[4\] of float32"),
        ((torch.zeros(4),) * 2, r"made returned 2 value\(s\) for t"),
        (None, "t: made returned a NoneType, not a tensor"),
    ],
)
def test_what_a_function_returns_is_asserted(result: object, message: str) -> None:
    def made() -> object:
        return result

    specs = [Tensor("t", shape=(4,), dtype=torch.float32)]
    with pytest.raises(TensorError, match=message):
        allocate(specs, [Computed(("t",), made, lambda: ())])


def test_tensors_that_need_one_another_are_named() -> None:
    specs = [
        Tensor("a", shape=(3,), dtype=torch.int32, init=tb.cu_seqlens(lambda b: b)),
        Tensor("b", shape=(2,), dtype=torch.int32),
        Tensor("c", shape=(2,), dtype=torch.int32, init=tb.zeros()),
    ]
    computed = [Computed(("b",), lambda a: a[1:], lambda a: (a,))]
    with pytest.raises(TensorError, match="tensors need one another: a needs b needs a"):
        allocate(specs, computed)


@pytest.mark.parametrize(
    ("specs", "computed", "message"),
    [
        (
            [Tensor("x", shape=(2,), dtype=torch.int32)],
            [],
            "x: has neither an init nor a function that computes it",
        ),
        (
            [Tensor("x", shape=(2,), dtype=torch.int32, init=tb.full(lambda y: y))],
            [],
            "x: there is no tensor y",
        ),
        (
            [Tensor("x", shape=(2,), dtype=torch.int32, init=tb.zeros())],
            [Computed(("x",), lambda: None, lambda: ())],
            "x: is filled twice; it has an init or is computed, not both",
        ),
        (
            [Tensor("x", shape=(2,), dtype=torch.int32, init=tb.zeros())] * 2,
            [],
            "x: two tensors have this name",
        ),
    ],
)
def test_contradictory_specifications_are_refused(
    specs: list[Tensor], computed: list[Computed], message: str
) -> None:
    with pytest.raises(TensorError) as caught:
        allocate(specs, computed)
    assert str(caught.value) == message
