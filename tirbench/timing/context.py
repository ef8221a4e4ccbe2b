"""What a rank of a distributed measurement brings along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class DistributedBenchContext:
    """Rank-local barrier, max-reduce callback, and actual CUDA timing stream.

    Launch closures that use auxiliary streams must make the timing stream wait for them before they
    return. Every rank must call `bench()` with the same names in the same order.

    Args:
        rank: this rank, 0 … world_size - 1.
        world_size: number of ranks.
        barrier: returns when every rank has called it; a host barrier.
        max_reduce: takes this rank's float and returns the largest of all ranks.
        stream: the CUDA stream that the closures launch on.
    """

    rank: int
    world_size: int
    barrier: Callable[[], object]
    max_reduce: Callable[[float], float]
    stream: Any

    def require_valid(self) -> None:
        """Check the fields in order.

        Raises:
            ValueError: world_size or rank out of range.
            TypeError: a callback cannot be called, or the stream is none.
        """
        if not _is_int(self.world_size) or self.world_size < 1:
            raise ValueError(f"world_size must be a positive int, got {self.world_size!r}")
        if not _is_int(self.rank) or not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be an int in [0, {self.world_size}), got {self.rank!r}")
        for name in ("barrier", "max_reduce"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be callable, got {getattr(self, name)!r}")
        if not hasattr(self.stream, "synchronize"):
            raise TypeError(f"stream must be a CUDA stream, got {self.stream!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
