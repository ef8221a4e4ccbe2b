"""What state of the L2 cache a timed call finds.

`cold-dirty` overwrites a buffer larger than the cache, as Triton does: the call under test pays for
writing these lines back. `cold-clean` then reads another buffer, so that the lines it evicts cost nothing.
`warm` does nothing. On an H200 the first two differ by 1 to 15 % and the last by up to 2 ×.

Before either, the cache lets go of what kernels asked it to keep, which no flush of normal priority does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import torch

from tirbench.errors import MeasurementError
from tirbench.timing.kept_lines import Driver, letting_go

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.model import L2Policy
    from tirbench.timing.device import CudaDevice
    from tirbench.timing.plan import Closure

POLICIES: Final[tuple[L2Policy, ...]] = ("cold-dirty", "cold-clean", "warm")


class FlushBuffers:
    """The buffers of every device that has been flushed: allocating 256 MiB for each call is not free.

    Kept for the life of the process, so that the addresses of everything else do not depend on when
    they were made.
    """

    def __init__(self, open_driver: Callable[[], Driver] = Driver) -> None:
        """Hold no buffer yet."""
        self._open_driver = open_driver
        self._buffers: dict[tuple[int, str], torch.Tensor] = {}
        self._let_go: dict[int, Closure | None] = {}

    def flush(self, device: CudaDevice, policy: L2Policy) -> Closure | None:
        """The closure that puts the L2 cache into that state; None where there is nothing to do.

        Raises:
            MeasurementError: the buffers do not fit into the device's memory, or the driver refuses to let
                kept lines go.
        """
        if policy == "warm":
            return None
        dirty = self._buffer(device, "dirty")
        steps: list[Closure] = [dirty.zero_]
        if (let_go := self._letting_go(device, dirty)) is not None:
            steps.insert(0, let_go)
        if policy == "cold-clean":
            clean = self._buffer(device, "clean")
            sink = torch.zeros((), dtype=torch.int64, device=clean.device)
            steps.append(partial(torch.sum, clean, dim=0, out=sink))

        def flush() -> None:
            for step in steps:
                step()

        return flush

    def _letting_go(self, device: CudaDevice, buffer: torch.Tensor) -> Closure | None:
        """What lets kept lines go, made once for each device; AMD's caches take no such wishes."""
        if device.is_hip:
            return None
        if device.index not in self._let_go:
            self._let_go[device.index] = letting_go(
                self._open_driver(), device.index, buffer.data_ptr(), buffer.nbytes, device.stream
            )
        return self._let_go[device.index]

    def _buffer(self, device: CudaDevice, role: str) -> torch.Tensor:
        key = (device.index, role)
        if key not in self._buffers:
            try:
                self._buffers[key] = torch.zeros(
                    device.flush_bytes // 4, dtype=torch.int32, device=f"cuda:{device.index}"
                )
            except torch.cuda.OutOfMemoryError as error:
                free, _ = torch.cuda.mem_get_info(device.index)
                raise MeasurementError(
                    f"the buffer that flushes the L2 cache takes {device.flush_bytes >> 20} MiB and "
                    f"{free >> 20} MiB are free on {device.name}; l2='warm' needs none"
                ) from error
        return self._buffers[key]


BUFFERS: Final = FlushBuffers()
