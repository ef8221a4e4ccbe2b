"""The device that a harness runs on, with the names that device-phase expressions read."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import torch

from tirbench.errors import MeasurementError


class Device:
    """A CUDA device or the CPU; the properties are the device names of the language."""

    def __init__(self, kind: str) -> None:
        """Open a device.

        Raises:
            MeasurementError: `kind` is `cuda` and torch finds none.
        """
        if kind == "cuda" and not torch.cuda.is_available():
            raise MeasurementError(
                "torch finds no CUDA device; --device cpu verifies and times what a CPU can"
            )
        self.kind = kind
        self.torch = (
            torch.device("cuda", torch.cuda.current_device())
            if kind == "cuda"
            else torch.device("cpu")
        )

    @cached_property
    def _properties(self) -> Any:
        if self.kind != "cuda":
            raise MeasurementError(
                "this case reads a property of a CUDA device, and runs on the CPU"
            )
        return torch.cuda.get_device_properties(self.torch)

    @property
    def sm_count(self) -> int:
        """Number of multiprocessors."""
        return int(self._properties.multi_processor_count)

    @property
    def l2_bytes(self) -> int:
        """Size of the second-level cache."""
        return int(self._properties.L2_cache_size)

    @property
    def smem_bytes(self) -> int:
        """Largest shared memory of one block, opted in."""
        return int(self._properties.shared_memory_per_block_optin)

    @property
    def capability(self) -> float:
        """Compute capability as a number: 9.0."""
        major, minor = (
            torch.cuda.get_device_capability(self.torch) if self.kind == "cuda" else (0, 0)
        )
        return float(f"{major}.{minor}")

    @property
    def arch(self) -> str | None:
        """`sm_90` on a CUDA device, `None` on the CPU."""
        return f"sm_{self.capability * 10:.0f}" if self.kind == "cuda" else None

    @property
    def memory_bytes(self) -> int:
        """Memory of the device in bytes."""
        if self.kind == "cuda":
            return int(self._properties.total_memory)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def synchronize(self) -> None:
        """Wait until everything launched has finished; surfaces asynchronous errors."""
        if self.kind == "cuda":
            torch.cuda.synchronize(self.torch)
