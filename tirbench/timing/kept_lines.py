"""Lines of the L2 cache that a kernel asked to be evicted last: what makes the cache let them go.

A load or store may ask for that (`eviction_policy="evict_last"` in Triton; PTX ISA, `createpolicy`), as
inductor's reductions do for what they read twice. Such lines outlast any amount of traffic of normal
priority, a flush among it: whoever reads them next finds them, and whoever does not has a smaller cache. On
an H200 that is 33 % of a read of 4 MiB one way and 8 % of a read of 16 MiB the other
(`benchmarks/kept_lines.py`).

The cache keeps so many of them and no more. So more than that of other lines are written at the same
priority, in a buffer that nobody needs, and given normal priority again. This happens on the stream, like the
flush that follows, and can be captured. `cuCtxResetPersistingL2Cache` does as much, but cannot be captured.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tirbench.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tirbench.timing.plan import Closure

PERSISTING: Final = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE, what a process has set aside: 11.25 MiB of 60 on an H200, if nothing."""

MOST_PERSISTING: Final = 108
"""CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, what it may: 37.5 MiB on an H200, 0 if it keeps none."""

SPARE: Final = 1.5
"""How much more than that is written, as sets of the cache do not fill evenly: on an H200 a read is 1.5 %
short after 12 MiB and as long as it should be after 16."""

OUT_OF_MEMORY: Final = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""

WITHOUT: Final = "l2='warm' flushes nothing and needs none of it"

LINE: Final = 128
VECTOR: Final = 16
THREADS: Final = 256

# In PTX, which every driver compiles by itself: a kernel of Triton would bring its compiler, its hooks and
# its host time into every measurement. `createpolicy` and `applypriority` need sm_80, as keeping lines does.
ENTRY: Final = """
.visible .entry %s(.param .u64 buffer, .param .u32 things)
{
    .reg .pred  %%outside;
    .reg .b32   %%block, %%width, %%thread, %%index, %%count;
    .reg .b64   %%base, %%offset, %%at, %%last;
    mov.u32     %%block, %%ctaid.x;
    mov.u32     %%width, %%ntid.x;
    mov.u32     %%thread, %%tid.x;
    mad.lo.u32  %%index, %%block, %%width, %%thread;
    ld.param.u32 %%count, [things];
    setp.ge.u32 %%outside, %%index, %%count;
    @%%outside ret;
    ld.param.u64 %%base, [buffer];
    cvta.to.global.u64 %%base, %%base;
    mul.wide.u32 %%offset, %%index, %d;
    add.u64     %%at, %%base, %%offset;
    %s
    ret;
}
"""
"""A kernel of a thread for each thing of so many bytes."""

KEEP: Final = """\
createpolicy.fractional.L2::evict_last.b64 %last, 1.0;
    st.global.L2::cache_hint.v4.u32 [%at], {%index, %index, %index, %index}, %last;"""

LET_GO: Final = "applypriority.global.L2::evict_normal [%at], 128;"

PTX: Final = (
    ".version 7.4\n.target sm_80\n.address_size 64\n"
    + ENTRY % ("keep", VECTOR, KEEP)
    + ENTRY % ("let_go", LINE, LET_GO)
).encode()


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of `PTX` with its arguments, ready to be launched again and again.

    Attributes:
        pointed_to: keeps alive what `arguments` points to.
    """

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
    """The few functions of the CUDA driver that are needed here, on the context that is current first."""

    def __init__(self, library: Any = None) -> None:
        """Open the driver's library, which a process that has a context has loaded.

        Raises:
            MeasurementError: it is not there under its name.
        """
        try:
            self._cuda = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise MeasurementError(f"{error}; {WITHOUT}") from error

    def context(self) -> int | None:
        """The handle of the context that is current in this thread, if any is."""
        current = ctypes.c_void_p()
        self._do("cuCtxGetCurrent", ctypes.byref(current))
        return current.value

    @contextmanager
    def on(self, context: int | None) -> Iterator[None]:
        """Make a context current, if it is not: in another thread none is, beside another device its own."""
        if self.context() == context:
            yield
            return
        self._do("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
        try:
            yield
        finally:
            self._do("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def attribute(self, which: int, ordinal: int) -> int:
        """An attribute of a device."""
        device, value = ctypes.c_int(), ctypes.c_int()
        self._do("cuDeviceGet", ctypes.byref(device), ordinal)
        self._do("cuDeviceGetAttribute", ctypes.byref(value), which, device)
        return value.value

    def limit(self, which: int) -> int:
        """A limit of the current context."""
        value = ctypes.c_size_t()
        self._do("cuCtxGetLimit", ctypes.byref(value), which)
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
        if error == OUT_OF_MEMORY:
            raise MeasurementError(f"out of memory in {name}, before a flush; {WITHOUT}")
        if error:
            # Of a launch before this one, most likely: a fault shows in whatever call comes next.
            raise MeasurementError(f"CUDA error: {self._text(error)}, in {name} before a flush")

    def _text(self, error: int) -> str:
        """What the driver calls an error."""
        said = ctypes.c_char_p()
        if self._cuda.cuGetErrorString(error, ctypes.byref(said)) or not said.value:
            return f"number {error}"
        return f"{said.value.decode(errors='replace')} ({error})"


def kept(driver: Driver, ordinal: int) -> int:
    """How many bytes the cache of the current device keeps, now or, where it does not say, at most."""
    most = driver.attribute(MOST_PERSISTING, ordinal)
    return min(most, driver.limit(PERSISTING)) or most


def letting_go(
    driver: Driver, ordinal: int, address: int, nbytes: int, stream: Callable[[], int]
) -> Closure | None:
    """The closure that makes the current device let kept lines go, from any thread; None where none are kept.

    Args:
        driver: of CUDA.
        ordinal: of the current device, as CUDA counts.
        address: of a buffer that is overwritten, a multiple of 128.
        nbytes: size of the buffer.
        stream: the handle of the stream to launch on.

    Raises:
        MeasurementError: the driver refuses something.
    """
    written = min(int(SPARE * kept(driver, ordinal)), nbytes) // LINE * LINE
    if not written:
        return None
    context = driver.context()
    keep, let_go = driver.functions(PTX, "keep", "let_go")
    kernels = (
        Kernel.over(keep, address, written // VECTOR),
        Kernel.over(let_go, address, written // LINE),
    )

    def run() -> None:
        on = stream()
        with driver.on(context):
            for kernel in kernels:
                driver.launch(kernel, on)

    run()  # the driver may load a kernel at its first launch, which a capture forbids
    return run
