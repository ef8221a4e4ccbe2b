"""One block of memory for all tensors of a case, kept over placements and cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from tirbench.tensors.layout import SPREAD_BYTES, Layout, capacity, layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Memory = Literal["device", "symmetric"]


class Arena:
    """Memory in which tensors are laid out anew for every placement seed.

    It grows only when a case needs more than there is. Laying out anew gives the same memory to other
    tensors: those of the placement before must not be used any more.

    Args:
        device: where the memory lies.
        allocate: bytes, device and kind of memory to a contiguous uint8 vector; a test or a plug-in
            may give another one.
    """

    def __init__(
        self,
        device: torch.device | str,
        *,
        allocate: Callable[[int, torch.device, Memory], torch.Tensor] | None = None,
    ) -> None:
        self.device = torch.device(device)
        self._allocate = _allocate if allocate is None else allocate
        self._blocks: dict[Memory, torch.Tensor] = {}

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(block.numel() for block in self._blocks.values())

    def lay_out(
        self, sizes: Mapping[str, int], placement: int, *, memory: Memory = "device"
    ) -> tuple[torch.Tensor, Layout]:
        """Place tensors of these sizes in bytes.

        Returns:
            The memory as a uint8 vector that begins at a multiple of 2 MiB, and where in it each
            tensor lies.
        """
        return self._reserve(needed_bytes(sizes), memory), layout(sizes, placement)

    def release(self) -> None:
        """Give the memory back to the allocator once no tensor uses it."""
        self._blocks.clear()

    def _reserve(self, nbytes: int, memory: Memory) -> torch.Tensor:
        block = self._blocks.get(memory)
        if block is None or block.numel() < nbytes:
            self._blocks.pop(memory, None)
            del block  # two generations of the arena need not fit side by side
            block = self._blocks[memory] = self._allocate(nbytes, self.device, memory)
        if memory == "symmetric":  # offsets must agree over the ranks, whose addresses differ
            return block
        # The allocator may start anywhere; offsets within 2 MiB are to be those of the layout.
        return block[-block.data_ptr() % SPREAD_BYTES :]


def needed_bytes(sizes: Mapping[str, int]) -> int:
    """Bytes that an arena reserves for tensors of these sizes, whatever the placement seed."""
    return capacity(sizes) + SPREAD_BYTES


def _allocate(nbytes: int, device: torch.device, memory: Memory) -> torch.Tensor:
    """Memory of the device; symmetric over the ranks where there are ranks."""
    if memory == "symmetric" and torch.distributed.is_initialized():
        from torch.distributed import _symmetric_memory

        return _symmetric_memory.empty(nbytes, dtype=torch.uint8, device=device)
    return torch.empty(nbytes, dtype=torch.uint8, device=device)
