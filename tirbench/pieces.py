"""Ways through a tensor that is too large to be worked on at once."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Piece(NamedTuple):
    """A run of elements that follow one another in row-major order.

    `at` selects them in a tensor of any strides, `start` is the row-major number of the first one
    and `numel` how many there are.
    """

    at: tuple[int | slice, ...]
    start: int
    numel: int


def pieces(shape: Sequence[int], limit: int) -> Iterator[Piece]:
    """Every element of `shape` exactly once, in row-major order, at most `limit` at a time.

    The leading dimensions are stepped through and one dimension is cut, so that a piece is always a
    plain view. A shape without elements has no piece.

    Args:
        shape: sizes of the dimensions; `()` is one element.
        limit: largest number of elements of a piece, at least 1.
    """
    if prod(shape) == 0:
        return
    if prod(shape) <= limit:
        yield Piece((), 0, prod(shape))
        return
    yield from _cut((), 0, tuple(shape), limit)


def _cut(outer: tuple[int, ...], start: int, shape: tuple[int, ...], limit: int) -> Iterator[Piece]:
    """Cut the first dimension of `shape`, or step through it when even one row is too much."""
    rows, row = shape[0], prod(shape[1:])
    if row > limit:
        for i in range(rows):
            yield from _cut((*outer, i), start + i * row, shape[1:], limit)
        return
    step = limit // row
    for first in range(0, rows, step):
        last = min(first + step, rows)
        yield Piece((*outer, slice(first, last)), start + first * row, (last - first) * row)
