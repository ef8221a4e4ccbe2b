"""How much memory the tensors of a case take, and whether it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tirbench.tensors.arena import needed_bytes
from tirbench.tensors.errors import OutOfMemory
from tirbench.tensors.roles import kept, restored
from tirbench.tensors.spec import by_name, storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tirbench.tensors.spec import Computed, Tensor


def required_bytes(specs: Iterable[Tensor], computed: Sequence[Computed] = ()) -> int:
    """Bytes that `Tensors.allocate` takes at most: arena, kept initial contents, temporary tensors.

    What kernels, oracle and comparison allocate beside it is not in it.
    """
    named = by_name(specs)
    owned = {name: storage(spec) for name, spec in named.items() if spec.view is None}
    arena = sum(
        needed_bytes(
            {
                name: owned[name].nbytes
                for name in owned
                if named[name].memory == memory and not named[name].temporary
            }
        )
        for memory in {spec.memory for spec in named.values()}
    )
    pristine = sum(owned[name].nbytes for name in kept(named, computed, restored(named, computed)))
    temporary = sum(owned[name].nbytes for name in owned if named[name].temporary)
    return arena + pristine + temporary


def free_bytes(device: torch.device) -> int:
    """Bytes that can be allocated on the device now, those that torch's allocator keeps among them."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return _available_host_bytes()


def require(needed: int, free: int, device: torch.device) -> None:
    """Refuse what does not fit.

    Raises:
        OutOfMemory: with what is needed and what is free.
    """
    if needed > free:
        raise OutOfMemory(
            f"the tensors need {gib(needed)} on {device}, of which {gib(free)} are free"
        )


def gib(nbytes: int) -> str:
    """`1.50 GiB`."""
    return f"{nbytes / 2**30:.2f} GiB"


def _available_host_bytes() -> int:
    """Memory of the host that can be had without swapping; a cgroup's limit is respected."""
    import os
    from pathlib import Path

    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and used.is_file():
        text = limit.read_text(encoding="ascii").strip()
        if text != "max":
            available = min(available, int(text) - int(used.read_text(encoding="ascii")))
    return available
