from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from tirbench.pieces import pieces


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(1, 40))
def test_pieces_cover_every_element_once_in_row_major_order(shape: list[int], limit: int) -> None:
    end = 0
    for piece in pieces(shape, limit):
        assert piece.start == end
        assert 1 <= piece.numel <= limit
        end += piece.numel
    assert end == prod(shape)


def test_pieces_of_more_than_2_31_elements_end_with_the_last_one() -> None:
    *_, last = pieces((65536, 65536), 1 << 26)
    assert last.start + last.numel == 1 << 32
    assert last.at == (slice(64512, 65536),)


def test_pieces_step_through_a_dimension_of_rows_that_are_too_long() -> None:
    found = [piece.at for piece in pieces((2, 5), 3)]
    assert found == [(0, slice(0, 3)), (0, slice(3, 5)), (1, slice(0, 3)), (1, slice(3, 5))]


def test_a_scalar_is_one_piece() -> None:
    assert list(pieces((), 1)) == [((), 0, 1)]
