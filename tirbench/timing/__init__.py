"""The public `bench()` and what its harnesses need beside it; needs torch alone.

`triton.profiler` and `torch.profiler` are imported by the timers that use them, when they are used.
"""

from tirbench.averages import midmean
from tirbench.timing.api import bench
from tirbench.timing.context import DistributedBenchContext

__all__ = ["DistributedBenchContext", "bench", "midmean"]
