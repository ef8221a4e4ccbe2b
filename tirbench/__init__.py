"""A declarative workload language with a generated harness for GPU kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tirbench.timing import DistributedBenchContext, bench

__version__ = "0.1.0"
__all__ = ["DistributedBenchContext", "__version__", "bench"]


def __getattr__(name: str) -> Any:
    """Import `bench` when it is asked for: the command line must not pay for torch."""
    if name in {"DistributedBenchContext", "bench"}:
        from tirbench import timing

        return getattr(timing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
