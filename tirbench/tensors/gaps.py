"""The storage of a strided tensor that belongs to no element."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A regular set of storage positions, in elements: `as_strided(shape, strides, offset)`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def extent(shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> int:
    """Elements from the start of the storage to behind the last element of the tensor."""
    if prod(shape) == 0:
        return offset
    return (
        offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    )


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a row-major tensor without gaps, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def gaps(shape: Sequence[int], strides: Sequence[int], offset: int) -> tuple[Block, ...] | None:
    """The positions below `extent` that no element uses, as few regular blocks.

    Dimensions of stride 0 repeat elements and add none. Strides that nest (every row ends before the
    next one begins) give one block per dimension at most.

    Returns:
        The blocks, or `None` where rows interleave and no short description exists.
    """
    blocks = [Block(shape=(offset,), strides=(1,), offset=0)] if offset else []
    if prod(shape) == 0:
        return tuple(blocks)
    dims = [(stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1]
    dims = sorted((dim for dim in dims if dim[0] > 0), reverse=True)
    span = 1  # elements from the first to the last of what lies inside the dimension at hand
    for i in reversed(range(len(dims))):
        stride, size = dims[i]
        if stride < span:
            return None
        if stride > span:
            outer = dims[:i]
            blocks.append(
                Block(
                    shape=(*(n for _, n in outer), size - 1, stride - span),
                    strides=(*(s for s, _ in outer), stride, 1),
                    offset=offset + span,
                )
            )
        span += (size - 1) * stride
    return tuple(blocks)
