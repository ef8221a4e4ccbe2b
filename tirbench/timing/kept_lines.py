"""Lines of the L2 cache that a kernel asked to be evicted last: what makes the cache let them go.

A load or store may ask for that (`eviction_policy="evict_last"` in Triton; PTX ISA, `createpolicy`), as
inductor's reductions do for what they read twice. Such lines outlast any amount of traffic of normal
priority, a flush among it: whoever reads them next finds them, and whoever does not has a smaller cache. On
an H200 that is a third of a softmax of 128 x 1024 one way and 8 % of a read of 16 MiB the other
(`benchmarks/kept_lines.py`).

The cache keeps so many of them and no more. So that many other lines are written at the same priority, in a
buffer that nobody needs, and given normal priority again. This happens on the stream, like the flush that
follows, and can be captured. `cuCtxResetPersistingL2Cache` does as much, but cannot be captured.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tirbench.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.timing.plan import Closure

MOST_PERSISTING: Final = 108
"""CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: 11.25 MiB of 60 on an H200, 0 where nothing is kept."""

SPARE: Final = 1.5
"""How much more than that is written, as sets of the cache do not fill evenly: 12 MiB leave 2 % of a tensor
on an H200 and 16 MiB none."""

LINE: Final = 128
VECTOR: Final = 16
THREADS: Final = 256

# In PTX, which every driver compiles by itself: a kernel of Triton would bring its compiler, its hooks and
# its host time into every measurement. `createpolicy` and `applypriority` need sm_80, as keeping lines does.
PTX: Final = b"""
.version 7.4
.target sm_80
.address_size 64

.visible .entry keep(.param .u64 buffer, .param .u32 vectors)
{
    .reg .pred  %outside;
    .reg .b32   %block, %width, %thread, %index, %count;
    .reg .b64   %base, %offset, %at, %last;
    mov.u32     %block, %ctaid.x;
    mov.u32     %width, %ntid.x;
    mov.u32     %thread, %tid.x;
    mad.lo.u32  %index, %block, %width, %thread;
    ld.param.u32 %count, [vectors];
    setp.ge.u32 %outside, %index, %count;
    @%outside ret;
    ld.param.u64 %base, [buffer];
    cvta.to.global.u64 %base, %base;
    mul.wide.u32 %offset, %index, 16;
    add.u64     %at, %base, %offset;
    createpolicy.fractional.L2::evict_last.b64 %last, 1.0;
    st.global.L2::cache_hint.v4.u32 [%at], {%index, %index, %index, %index}, %last;
    ret;
}

.visible .entry let_go(.param .u64 buffer, .param .u32 lines)
{
    .reg .pred  %outside;
    .reg .b32   %block, %width, %thread, %index, %count;
    .reg .b64   %base, %offset, %at;
    mov.u32     %block, %ctaid.x;
    mov.u32     %width, %ntid.x;
    mov.u32     %thread, %tid.x;
    mad.lo.u32  %index, %block, %width, %thread;
    ld.param.u32 %count, [lines];
    setp.ge.u32 %outside, %index, %count;
    @%outside ret;
    ld.param.u64 %base, [buffer];
    cvta.to.global.u64 %base, %base;
    mul.wide.u32 %offset, %index, 128;
    add.u64     %at, %base, %offset;
    applypriority.global.L2::evict_normal [%at], 128;
    ret;
}
"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of `PTX` with its arguments, ready to be launched again and again."""

    function: Any
    blocks: int
    arguments: Any
    pointed_to: Any

    @classmethod
    def over(cls, function: Any, address: int, count: int) -> Kernel:
        """The kernel with one thread for each of `count` things from `address` on."""
        values = (ctypes.c_uint64(address), ctypes.c_uint32(count))
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        return cls(function, -(-count // THREADS), pointers, values)


class Driver:
    """The few functions of the CUDA driver that are needed here, on the current context."""

    def __init__(self, library: Any = None) -> None:
        """Open the driver's library, which a process that has a context has loaded."""
        self._cuda = library or ctypes.CDLL("libcuda.so.1")

    def attribute(self, which: int, ordinal: int) -> int:
        """An attribute of a device."""
        device, value = ctypes.c_int(), ctypes.c_int()
        self._do("cuDeviceGet", ctypes.byref(device), ordinal)
        self._do("cuDeviceGetAttribute", ctypes.byref(value), which, device)
        return value.value

    def functions(self, ptx: bytes, *names: str) -> list[Any]:
        """Compile a module, which lives as long as its context, and find its kernels."""
        module = ctypes.c_void_p()
        self._do("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
        found = []
        for name in names:
            function = ctypes.c_void_p()
            self._do("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            found.append(function)
        return found

    def launch(self, kernel: Kernel, stream: int) -> None:
        """Launch it on a stream, given as its handle."""
        grid, block = (kernel.blocks, 1, 1), (THREADS, 1, 1)
        on = ctypes.c_void_p(stream)
        self._do("cuLaunchKernel", kernel.function, *grid, *block, 0, on, kernel.arguments, None)

    def _do(self, name: str, *arguments: Any) -> None:
        error = getattr(self._cuda, name)(*arguments)
        if error:
            raise MeasurementError(
                f"{name} failed with CUDA error {error} while lines of the L2 cache were let go that a "
                "kernel had asked to keep; l2='warm' needs nothing of the kind"
            )


def letting_go(
    driver: Driver, ordinal: int, address: int, nbytes: int, stream: Callable[[], int]
) -> Closure | None:
    """The closure that makes the current device let kept lines go; None where its cache keeps none.

    Args:
        driver: of CUDA.
        ordinal: of the current device, as CUDA counts.
        address: of a buffer that is overwritten, a multiple of 128.
        nbytes: size of the buffer.
        stream: the handle of the stream to launch on.

    Raises:
        MeasurementError: the driver refuses something.
    """
    kept = driver.attribute(MOST_PERSISTING, ordinal)
    written = min(int(SPARE * kept), nbytes) // LINE * LINE
    if not written:
        return None
    keep, let_go = driver.functions(PTX, "keep", "let_go")
    kernels = (
        Kernel.over(keep, address, written // VECTOR),
        Kernel.over(let_go, address, written // LINE),
    )

    def run() -> None:
        on = stream()
        for kernel in kernels:
            driver.launch(kernel, on)

    run()  # the driver may load a kernel at its first launch, which a capture forbids
    return run
