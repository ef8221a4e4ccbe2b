"""Numbers and positions as they stand in a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def number(element: torch.Tensor) -> str:
    """One element, floats with six digits."""
    found = element.item()
    return repr(float(f"{found:.6g}")) if isinstance(found, float) else str(found)


def place(position: int, shape: Sequence[int]) -> list[int]:
    """The index of the element with that row-major number."""
    index = []
    for size in reversed(shape):
        position, i = divmod(position, size)
        index.append(i)
    return index[::-1]
