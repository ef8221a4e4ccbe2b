"""Contents that no kernel computes: an element that still has them was never written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from tirbench.pieces import pieces
from tirbench.tensors.fill import CHUNK_CPU, CHUNK_GPU
from tirbench.tensors.spec import collapsed

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAN_BYTE: Final = 0x7F  # NaN in both float8 formats


def poison(tensor: torch.Tensor) -> None:
    """Overwrite the elements, not the gaps between them: NaN, the extreme integer, alternating bools."""
    target = collapsed(tensor)
    if target.dtype == torch.bool:
        limit = CHUNK_CPU if target.device.type == "cpu" else CHUNK_GPU
        for index, start, count in pieces(target.shape, limit):
            numbers = torch.arange(start, start + count, device=target.device)
            target[index].copy_((numbers % 2 == 0).view(target[index].shape))
    elif not target.dtype.is_floating_point:
        target.fill_(extreme(target.dtype))
    elif target.dtype.itemsize == 1:
        target.view(torch.uint8).fill_(_NAN_BYTE)
    else:
        target.fill_(float("nan"))


def extreme(dtype: torch.dtype) -> int:
    """The integer that poisons: the least of a signed type, the largest of an unsigned one."""
    info = torch.iinfo(dtype)
    return int(info.min or info.max)


def poison_allocator(device: torch.device | str, nbytes: int | Iterable[int]) -> None:
    """Poison the memory that an implementation is about to allocate for what it returns.

    Blocks of these sizes are allocated, filled with bytes that are NaN in every floating dtype, and
    freed: torch's caching allocator hands the same blocks out next on the same stream. Memory that held
    another implementation's right answer is so not mistaken for a result. On a CPU, whose allocator
    promises nothing of that kind, it mostly works for small blocks.
    """
    sizes = [nbytes] if isinstance(nbytes, int) else list(nbytes)
    blocks = [torch.empty(size, dtype=torch.uint8, device=device).fill_(0xFF) for size in sizes]
    del blocks
