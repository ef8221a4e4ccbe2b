"""One block of memory for all tensors of a case, kept over placements and cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import torch

from tirbench.tensors.layout import SPREAD_BYTES, Layout, capacity, layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Memory = Literal["device", "symmetric"]

GROUND_SHARE: Final = 32
"""The ground of a process is this part of the memory of its GPU: 4.4 GiB of an H200's 140."""


class Arena:
    """Memory in which tensors are laid out anew for every placement seed.

    It grows only when a case needs more than there is. Laying out anew gives the same memory to other
    tensors: those of the placement before must not be used any more.

    Args:
        device: where the memory lies.
        allocate: bytes, device and kind of memory to a contiguous uint8 vector; a test or a plug-in
            may give another one.
        ground: bytes that are taken at once and kept; every case that fits lies in them, whatever
            came before it. A larger case has a block of its own for as long as it lasts.
    """

    def __init__(
        self,
        device: torch.device | str,
        *,
        allocate: Callable[[int, torch.device, Memory], torch.Tensor] | None = None,
        ground: int = 0,
    ) -> None:
        self.device = torch.device(device)
        self._allocate = _allocate if allocate is None else allocate
        self._blocks: dict[Memory, torch.Tensor] = {}
        self._ground = self._taken(ground)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        held = [*self._blocks.values(), *(() if self._ground is None else (self._ground,))]
        return sum(block.numel() for block in held)

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
        """Give the memory back to the allocator once no tensor uses it; the ground stays."""
        self._blocks.clear()

    def _taken(self, nbytes: int) -> torch.Tensor | None:
        """The ground; `None` where the device has no room for it: its cases then lie where they can."""
        return self._tried(nbytes, "device") if nbytes else None

    def _tried(self, nbytes: int, memory: Memory) -> torch.Tensor | None:
        try:
            return self._allocate(nbytes, self.device, memory)
        except torch.OutOfMemoryError:
            return None

    def _reserve(self, nbytes: int, memory: Memory) -> torch.Tensor:
        if memory == "symmetric":  # offsets must agree over the ranks, whose addresses differ
            return self._block(nbytes, memory)
        if self._ground is not None and nbytes <= self._ground.numel():
            self._blocks.pop(memory, None)
            block = self._ground
        else:
            block = self._block(nbytes, memory)
        # The allocator may start anywhere; offsets within 2 MiB are to be those of the layout.
        return block[-block.data_ptr() % SPREAD_BYTES :]

    def _block(self, nbytes: int, memory: Memory) -> torch.Tensor:
        """A block of at least so many bytes beside the ground, or in its stead where both do not fit."""
        block = self._blocks.get(memory)
        if block is None or block.numel() < nbytes:
            self._blocks.pop(memory, None)
            block = None  # two generations of the arena need not fit side by side
            if self._ground is not None:
                block = self._tried(nbytes, memory)
                self._ground = self._ground if block is not None else None
            if block is None:
                block = self._allocate(nbytes, self.device, memory)
            self._blocks[memory] = block
        return block


_HOMES: Final[dict[torch.device, Arena]] = {}


def home(device: torch.device) -> Arena:
    """The arena of this process on a device, for one case after the other.

    Which pages of a GPU's memory an allocation gets depends on what was allocated before it, and so
    does the time of a small kernel: on an H200 the same case of 3.8 µs ran 1.7 % faster as the second
    one of a worker than as the first. So the ground is taken once, before anything else is, and a case
    lies in the same pages whether it runs alone, first or last.

    On a CPU, whose pages nobody chooses, every call gives a new arena.
    """
    if device.type != "cuda":
        return Arena(device)
    if device not in _HOMES:
        total = torch.cuda.get_device_properties(device).total_memory
        _HOMES[device] = Arena(device, ground=total // GROUND_SHARE // SPREAD_BYTES * SPREAD_BYTES)
    return _HOMES[device]


def needed_bytes(sizes: Mapping[str, int]) -> int:
    """Bytes that an arena reserves for tensors of these sizes, whatever the placement seed."""
    return capacity(sizes) + SPREAD_BYTES


def _allocate(nbytes: int, device: torch.device, memory: Memory) -> torch.Tensor:
    """Memory of the device; symmetric over the ranks where there are ranks, and GPUs to share it."""
    if memory == "symmetric" and device.type == "cuda" and torch.distributed.is_initialized():
        from torch.distributed import _symmetric_memory

        return _symmetric_memory.empty(nbytes, dtype=torch.uint8, device=device)
    return torch.empty(nbytes, dtype=torch.uint8, device=device)
