"""Where the tensors of a case lie, as a pure function of their sizes and the placement seed.

Placement decides up to 1.5 % of the time of a small kernel, so it is owned: the same on every
machine for the same seed, another one for another seed, and shared by all implementations. Order and
gaps come from a hash of the seed and the tensor's name. Neither the order in which tensors are
declared nor Python's own generators, whose algorithms may change, have a say.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIGN_BYTES: Final = (
    512  # what CUDA's allocators give; other alignments are an axis of the workload
)
SPREAD_BYTES: Final = 2 << 20  # the page of a GPU: offsets within it are what placement can change
GUARD_BYTES: Final = 512  # as wide as one vectorised access of a warp


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Offsets in bytes from the start of the arena, by tensor, and the end of the last guard."""

    offsets: Mapping[str, int]
    end: int


def capacity(
    sizes: Mapping[str, int],
    *,
    align: int = ALIGN_BYTES,
    spread: int = SPREAD_BYTES,
    guard: int = GUARD_BYTES,
) -> int:
    """Bytes that hold the layout of these sizes for every placement seed."""
    lead = _up(guard, align)
    return sum(spread + lead + _up(size + guard, align) for size in sizes.values())


def layout(
    sizes: Mapping[str, int],
    placement: int,
    *,
    align: int = ALIGN_BYTES,
    spread: int = SPREAD_BYTES,
    guard: int = GUARD_BYTES,
) -> Layout:
    """Lay tensors out one behind the other in an order, and with gaps, drawn from the placement seed.

    Every tensor starts at a multiple of `align` and has `guard` bytes of its own on both sides. In
    front of them lies a gap of 0 … `spread` bytes, drawn for each tensor.

    Args:
        sizes: bytes by name of tensor; 0 is allowed.
        placement: the placement seed.
        align: alignment of every start, in bytes.
        spread: upper bound of the gaps, in bytes; a multiple of `align`.
        guard: bytes kept free on both sides of every tensor.
    """
    offsets: dict[str, int] = {}
    end = 0
    for name in sorted(sizes, key=lambda name: (_draw("order", placement, name), name)):
        gap = _draw("gap", placement, name) % (spread // align) * align if spread else 0
        offsets[name] = _up(end + gap + guard, align)
        end = offsets[name] + sizes[name] + guard
    return Layout(offsets=offsets, end=end)


def _draw(purpose: str, placement: int, name: str) -> int:
    """64 bits that depend on nothing but the arguments."""
    text = f"tirbench placement\0{purpose}\0{placement}\0{name}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _up(count: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-count // step) * step
