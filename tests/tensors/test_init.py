from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench import tensors as tb
from tirbench.tensors import Init, Tensor, TensorError, Tensors

if TYPE_CHECKING:
    from pathlib import Path

FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def filled(
    init: Init, shape: tuple[int, ...], dtype: torch.dtype, *, name: str = "t", **more: Any
) -> torch.Tensor:
    spec = Tensor(name, shape=shape, dtype=dtype, init=init)
    how = {"seed": 0, "placement": 0, "device": "cpu", **more}
    return Tensors.allocate([spec], **how)[name]


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_floating_dtype_can_be_drawn(dtype: torch.dtype) -> None:
    found = filled(tb.normal(mean=1, std=0.5), (300, 300), dtype)
    assert found.dtype == dtype
    assert bool(found.double().isfinite().all())
    assert float(found.double().mean()) == pytest.approx(1, abs=0.02)
    assert float(found.double().std()) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_is_drawn_in_float32_and_cast(dtype: torch.dtype) -> None:
    single = filled(tb.normal(), (1000,), torch.float32)
    assert torch.equal(filled(tb.normal(), (1000,), dtype).float(), single.to(dtype).float())


def test_float8_saturates_instead_of_becoming_nan() -> None:
    found = filled(tb.uniform(low=1000, high=2000), (9,), torch.float8_e4m3fn)
    assert found.float().tolist() == [448.0] * 9


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
@pytest.mark.parametrize(
    "init", [tb.normal(), tb.uniform(), tb.randint(0, 99), tb.arange(), tb.permutation()], ids=str
)
def test_contents_do_not_depend_on_the_chunks_they_are_made_in(init: Init, chunk: int) -> None:
    whole = filled(init, (13, 11), torch.float32)
    assert torch.equal(filled(init, (13, 11), torch.float32, chunk=chunk), whole)


def test_contents_do_not_depend_on_the_strides() -> None:
    spec = Tensor("t", shape=(5, 7), strides=(1, 5), dtype=torch.float32, init=tb.normal())
    turned = Tensors.allocate([spec], device="cpu", seed=0, placement=0)["t"]
    assert torch.equal(turned, filled(tb.normal(), (5, 7), torch.float32))


def test_contents_do_not_depend_on_placement_or_other_tensors() -> None:
    alone = filled(tb.normal(), (64,), torch.float32)
    other = Tensor("other", shape=(64,), dtype=torch.float32, init=tb.normal())
    spec = Tensor("t", shape=(64,), dtype=torch.float32, init=tb.normal())
    both = Tensors.allocate([other, spec], device="cpu", seed=0, placement=3)
    assert torch.equal(both["t"], alone)
    assert not torch.equal(both["other"], alone)


def test_seed_and_rank_change_contents_but_not_those_of_replicated_tensors() -> None:
    own = Tensor("own", shape=(64,), dtype=torch.float32, init=tb.normal())
    same = Tensor("same", shape=(64,), dtype=torch.float32, init=tb.normal(), replicated=True)

    def drawn(seed: int, rank: int) -> Tensors:
        return Tensors.allocate([own, same], device="cpu", seed=seed, placement=0, rank=rank)

    first, ranked, seeded = drawn(0, 0), drawn(0, 1), drawn(1, 0)
    assert not torch.equal(first["own"], ranked["own"])
    assert torch.equal(first["same"], ranked["same"])
    assert not torch.equal(first["same"], seeded["same"])


def test_integers_are_the_same_on_every_machine() -> None:
    # Written down once: lengths, and with them flops, must not depend on torch or the device.
    assert filled(tb.randint(0, 1000), (6,), torch.int32).tolist() == [470, 828, 721, 737, 690, 989]
    assert filled(tb.permutation(), (8,), torch.int64).tolist() == [4, 2, 3, 1, 5, 6, 7, 0]


def test_clamp_cuts_what_is_drawn() -> None:
    found = filled(tb.normal(clamp=[-0.5, 0.25]), (1000,), torch.float32)
    assert (float(found.min()), float(found.max())) == (-0.5, 0.25)


def test_constants_fill_every_dtype() -> None:
    assert filled(tb.ones(), (3,), torch.bool).tolist() == [True] * 3
    assert filled(tb.zeros(), (3,), torch.uint8).tolist() == [0] * 3
    assert filled(tb.full(-3), (2,), torch.int8).tolist() == [-3, -3]
    assert filled(tb.full(0.5), (2,), torch.float8_e5m2).float().tolist() == [0.5, 0.5]
    assert filled(tb.full(float("-inf")), (2,), torch.float32).tolist() == [-float("inf")] * 2


def test_arange_counts_in_row_major_order() -> None:
    assert filled(tb.arange(5, -2), (2, 3), torch.int32).tolist() == [[5, 3, 1], [-1, -3, -5]]
    assert filled(tb.arange(0, 0.5), (3,), torch.float32).tolist() == [0, 0.5, 1]


def test_a_permutation_has_every_number_once() -> None:
    found = filled(tb.permutation(), (40, 50), torch.int32).flatten()
    assert sorted(found.tolist()) == list(range(2000))
    assert found.tolist() != list(range(2000))


def test_cu_seqlens_are_running_sums() -> None:
    found = filled(tb.cu_seqlens([5, 33, 64]), (4,), torch.int32)
    assert found.tolist() == [0, 5, 38, 102]


@settings(deadline=None)  # the first call of a torch function is slow
@given(st.data())
def test_lengths_add_up_to_the_total_within_their_bounds(data: st.DataObject) -> None:
    n, least = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 9))
    most = least + data.draw(st.integers(0, 50))
    total = data.draw(st.integers(n * least, n * most))
    found = filled(tb.lengths(total, least, most), (n,), torch.int32)
    assert int(found.sum()) == total
    assert least <= int(found.min())
    assert int(found.max()) <= most


def test_lengths_vary() -> None:
    found = filled(tb.lengths(10_000, 1, 1000), (64,), torch.int64)
    assert len(set(found.tolist())) > 30


def test_a_page_table_gives_every_sequence_pages_of_its_own() -> None:
    found = filled(tb.page_table([64, 65, 1, 0], 64, unused=-1), (4, 3), torch.int32)
    held = [page for page in found.flatten().tolist() if page >= 0]
    assert sorted(held) == [0, 1, 2, 3]
    assert (found >= 0).sum(1).tolist() == [1, 2, 1, 0]
    assert all(not (row[1:] > row[:-1]).logical_and(row[:-1] < 0).any() for row in found)


def test_parameters_may_read_tensors_in_any_order_of_declaration() -> None:
    specs = [
        Tensor(
            "cu",
            shape=(5,),
            dtype=torch.int32,
            init=tb.cu_seqlens(lambda lens: lens),
        ),
        Tensor(
            "table",
            shape=(4, 9),
            dtype=torch.int32,
            init=tb.page_table(lambda lens: lens, lambda size: size[0], 0),
        ),
        Tensor("bound", shape=(1,), dtype=torch.int32, init=tb.full(lambda lens: lens.max())),
        Tensor("lens", shape=(4,), dtype=torch.int32, init=tb.randint(1, 99)),
        Tensor("size", shape=(1,), dtype=torch.int32, init=tb.full(16)),
    ]
    found = Tensors.allocate(specs, device="cpu", seed=0, placement=0)
    assert found["cu"].tolist() == [0, *found["lens"].cumsum(0).tolist()]
    assert int(found["bound"]) == int(found["lens"].max())


@pytest.mark.parametrize("suffix", [".pt", ".npy", ".npz"])
def test_contents_may_come_from_a_file(tmp_path: Path, suffix: str) -> None:
    wanted = torch.arange(6, dtype=torch.float32).view(2, 3)
    path = tmp_path / f"values{suffix}"
    if suffix == ".pt":
        torch.save({"a": wanted, "b": wanted + 1}, path)
    else:
        np = pytest.importorskip("numpy")
        if suffix == ".npy":
            np.save(path, wanted.numpy())
        else:
            np.savez(path, a=wanted.numpy(), b=wanted.numpy() + 1)
    key = None if suffix == ".npy" else "a"
    found = filled(tb.file(path.name, key), (2, 3), torch.bfloat16, folder=tmp_path)
    assert torch.equal(found, wanted.bfloat16())


REFUSED = [
    (tb.normal(), (3,), torch.int32, "t: normal draws no torch.int32; use randint"),
    (tb.randint(5, 5), (3,), torch.int32, "t: randint has no integers from 5 to below 5"),
    (tb.randint(0, 300), (3,), torch.uint8, "t: torch.uint8 holds 0 … 255, not 0 … 299"),
    (tb.full(0.5), (3,), torch.int32, "t: value must be a whole number, got 0.5"),
    (tb.full(2), (3,), torch.bool, "t: torch.bool holds 0 … 1, not 2 … 2"),
    (tb.arange(0, 100), (9,), torch.int8, "t: torch.int8 holds -128 … 127, not 0 … 800"),
    (tb.cu_seqlens([1, 2]), (2,), torch.int32, "t: 3 numbers for a tensor of 2 elements"),
    (tb.cu_seqlens([1, -2]), (3,), torch.int32, "t: lengths has a negative number, -2"),
    (tb.lengths(9, 1, 2), (4,), torch.int32, "t: 4 lengths of 1 to 2 cannot add up to 9"),
    (
        tb.page_table([100], 10, 0),
        (1, 9),
        torch.int32,
        "t: a sequence has 10 pages and the table 9 columns",
    ),
    (
        tb.page_table([1, 2], 10, 0),
        (3, 9),
        torch.int32,
        "t: 2 sequences need a page table of as many rows, not of shape (3, 9)",
    ),
]


@pytest.mark.parametrize(("init", "shape", "dtype", "message"), REFUSED)
def test_impossible_contents_are_refused_by_name(
    init: Init, shape: tuple[int, ...], dtype: torch.dtype, message: str
) -> None:
    with pytest.raises(TensorError) as caught:
        filled(init, shape, dtype)
    assert str(caught.value) == message


def test_a_file_of_another_shape_or_key_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(3), "b": torch.zeros(2)}, tmp_path / "v.pt")
    with pytest.raises(TensorError, match=r"t: v\.pt has shape \(3,\), wanted \(2,\)"):
        filled(tb.file("v.pt", "a"), (2,), torch.float32, folder=tmp_path)
    with pytest.raises(TensorError, match="has no tensor 'c'; it has: a, b"):
        filled(tb.file("v.pt", "c"), (2,), torch.float32, folder=tmp_path)
    with pytest.raises(TensorError, match="no such file"):
        filled(tb.file("w.pt"), (2,), torch.float32, folder=tmp_path)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int8])
def test_values_are_written_in_row_major_order(dtype: torch.dtype) -> None:
    found = filled(tb.values([3, 0, -7, 1, 2, 5]), (2, 3), dtype)
    assert found.double().tolist() == [[3, 0, -7], [1, 2, 5]]


def test_values_may_be_booleans_infinities_or_the_contents_of_a_tensor() -> None:
    assert filled(tb.values([True, False]), (2,), torch.bool).tolist() == [True, False]
    assert filled(tb.values([1.5, float("-inf")]), (2,), torch.float16).tolist() == [
        1.5,
        float("-inf"),
    ]
    lens = Tensor("lens", shape=(2,), dtype=torch.int32, init=tb.values([4, 6]))
    twice = Tensor("t", shape=(2,), dtype=torch.int64, init=tb.values(lambda lens: lens * 2))
    made = Tensors.allocate([twice, lens], seed=0, placement=0, device="cpu")
    assert made["t"].tolist() == [8, 12]


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([1, 2], torch.int32, "t: 2 numbers for a tensor of 3 elements"),
        ([1.0, 2.0], torch.float32, "t: 2 numbers for a tensor of 3 elements"),
        ([1, 2, 300], torch.int8, "t: torch.int8 holds -128 … 127, not 1 … 300"),
        ([1, 2, 0.5], torch.int32, "t: values must be a whole number, got 0.5"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    values: list[float], dtype: torch.dtype, message: str
) -> None:
    with pytest.raises(TensorError, match=re.escape(message)):
        filled(tb.values(values), (3,), dtype)
