from __future__ import annotations

from itertools import product

import torch
from hypothesis import given
from hypothesis import strategies as st

from tirbench.tensors.gaps import Block, contiguous_strides, extent, gaps


def positions(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> list[int]:
    return [
        offset + sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in product(*(range(size) for size in shape))
    ]


dims = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20)), max_size=3)


@given(dims, st.integers(0, 5))
def test_gaps_and_elements_share_the_storage_out(dims: list[tuple[int, int]], offset: int) -> None:
    shape, strides = tuple(d[0] for d in dims), tuple(d[1] for d in dims)
    blocks = gaps(shape, strides, offset)
    if blocks is None:
        return
    elements = positions(shape, strides, offset)
    between = [at for b in blocks for at in positions(b.shape, b.strides, b.offset)]
    assert len(between) == len(set(between))
    assert set(between) | set(elements) == set(range(extent(shape, strides, offset)))
    assert not set(between) & set(elements)


def test_rows_with_a_pitch_have_one_gap_less_than_rows() -> None:
    assert gaps((3, 4), (10, 1), 0) == (Block(shape=(2, 6), strides=(10, 1), offset=4),)


def test_a_transposed_matrix_has_no_gaps() -> None:
    assert gaps((4, 6), (1, 4), 0) == ()


def test_repeated_dimensions_have_no_gaps() -> None:
    assert gaps((4, 6, 5), (6, 1, 0), 0) == ()


def test_interleaving_rows_have_no_short_description() -> None:
    assert gaps((2, 3), (3, 2), 0) is None


def test_strides_without_gaps_are_those_of_torch() -> None:
    for shape in [(), (3,), (2, 3, 4), (2, 1, 4)]:
        assert contiguous_strides(shape) == torch.empty(shape).stride()
