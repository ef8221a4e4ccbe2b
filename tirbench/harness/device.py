"""The device that a harness runs on, with the names that device-phase expressions read."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import torch

from tirbench.errors import MeasurementError
from tirbench.harness.ranks import Ranks

SHARED_OF_EVERY_GPU: Final = 48 << 10
"""Bytes of shared memory that a block has without asking (CUDA C++ programming guide)."""

CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")


class Device:
    """A CUDA device or the CPU; the properties are the device names of the language."""

    def __init__(self, kind: str, ranks: Ranks | None = None) -> None:
        """Open a device.

        Args:
            kind: `cuda` or `cpu`.
            ranks: this process among those of its case; left out: it is alone.

        Raises:
            MeasurementError: `kind` is `cuda` and torch finds none.
        """
        if kind == "cuda" and not torch.cuda.is_available():
            raise MeasurementError(
                "torch finds no CUDA device; --device cpu verifies and times what a CPU can"
            )
        self.kind = kind
        self.ranks = Ranks() if ranks is None else ranks
        self.torch = (
            torch.device("cuda", torch.cuda.current_device())
            if kind == "cuda"
            else torch.device("cpu")
        )

    @cached_property
    def _properties(self) -> Any:
        return torch.cuda.get_device_properties(self.torch)

    @property
    def sm_count(self) -> int:
        """Number of multiprocessors; on the CPU the cores that this process may use.

        So that a persistent grid has a smoke case: programs that share the work, more than one.
        """
        if self.kind == "cuda":
            return int(self._properties.multi_processor_count)
        return usable_cores()

    @property
    def l2_bytes(self) -> int:
        """Size of the second-level cache; on the CPU of the last one, which all cores share.

        Raises:
            MeasurementError: the CPU does not say.
        """
        if self.kind == "cuda":
            return int(self._properties.L2_cache_size)
        return last_cache_bytes()

    @property
    def smem_bytes(self) -> int:
        """Largest shared memory of one block, opted in; on the CPU what a block of every GPU has.

        Only Triton's interpreter runs kernels there that ask, and it takes what they ask for.
        """
        if self.kind == "cuda":
            return int(self._properties.shared_memory_per_block_optin)
        return SHARED_OF_EVERY_GPU

    @property
    def capability(self) -> float:
        """Compute capability as a number: 9.0; on the CPU 0.0, which is below that of every GPU."""
        major, minor = (
            torch.cuda.get_device_capability(self.torch) if self.kind == "cuda" else (0, 0)
        )
        return float(f"{major}.{minor}")

    @property
    def rank(self) -> int:
        """Number of this process among all."""
        return self.ranks.rank

    @property
    def local_rank(self) -> int:
        """Number of this process among those of its host."""
        return self.ranks.local_rank

    @property
    def world_size(self) -> int:
        """How many processes there are."""
        return self.ranks.world_size

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


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def last_cache_bytes(caches: Path = CACHES) -> int:
    """Bytes of the CPU's last-level cache, as Linux lists it.

    Raises:
        MeasurementError: it is not listed.
    """
    found: dict[int, int] = {}
    for index in caches.glob("index*"):
        with suppress(OSError, ValueError):
            size = (index / "size").read_text(encoding="ascii").strip()
            units = {"K": 1 << 10, "M": 1 << 20}
            found[int((index / "level").read_text(encoding="ascii"))] = int(
                size.rstrip("KM")
            ) * units.get(size[-1], 1)
    if not found:
        raise MeasurementError("l2_bytes: this CPU does not say how large its last-level cache is")
    return found[max(found)]
