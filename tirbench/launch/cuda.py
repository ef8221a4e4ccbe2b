"""`kind = "cuda"`: a kernel of a `.cu` file with its grid and block, compiled for the device that runs it.

Tensors are passed as pointers to their first element, `None` as the null pointer, and numbers with the C
width that the workload gives them: a kernel's parameters are bytes, and a bare number has no size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Final

from tirbench.errors import UsageError
from tirbench.launch.emit import Source, emit, emit_arguments, emit_tuple, literal
from tirbench.launch.kind import Kind, Option, Syntax
from tirbench.model import BoundLaunch
from tirbench.values import Phase

if TYPE_CHECKING:
    from tirbench.launch.nvrtc import CudaSource
    from tirbench.model import CodeFacts

SHARED_WITHOUT_ASKING: Final = 48 << 10
"""Dynamic shared memory of a block that needs no opt-in, in bytes (CUDA C++ programming guide)."""


def arguments(launch: BoundLaunch) -> tuple[Source, ...]:
    """The kernel's arguments, then grid, block and what else the launch is given, by name."""
    given = dict(launch.options)
    sizes = tuple(
        Source(f"{name}={emit_tuple(given[name])}")
        for name in ("grid", "block", "cluster")
        if given.get(name) is not None
    )
    shared = given.get("shared_bytes")
    if shared not in (None, 0):
        sizes += (Source(f"shared_bytes={emit(shared)}"),)
    return emit_arguments(launch.args) + sizes


def options(launch: BoundLaunch) -> Mapping[str, Source]:
    """What decides the machine code: template arguments, flags and include folders."""
    given = dict(launch.options)
    template = given.get("template")
    written = {
        name: literal(given[name]) if given.get(name) else "" for name in ("flags", "include")
    }
    written["template"] = emit_tuple(template) if template else ""
    return {name: Source(f"{name}={text}" if text else "") for name, text in written.items()}


KIND = Kind(
    name="cuda",
    template="launch/cuda.py.jinja",
    returns=False,
    closure=True,
    arguments=arguments,
    options=options,
    syntax=Syntax(
        device="cuda",
        suffix=".cu",
        arguments="positional",
        c_scalars=True,
        options={
            "grid": Option(form="exprs"),
            "block": Option(form="exprs"),
            "cluster": Option(form="exprs", latest=Phase.DEVICE),
            "shared_bytes": Option(form="expr"),
            "template": Option(form="exprs", latest=Phase.DEVICE),
            "flags": Option(form="texts"),
            "include": Option(form="texts"),
        },
    ),
)


@dataclass(frozen=True)
class CudaKernel:
    """One kernel as machine code of one device.

    Attributes:
        source: what was compiled.
        code: the `cuda.core.ObjectCode` of it.
        device: index of the device in torch.
        note: is given a function that says what a launch runs, when one is bound.
        core: the module `cuda.core`.
        arch: what it was compiled for, `sm_90`.
    """

    source: CudaSource
    code: Any
    device: int
    note: Callable[[Callable[[], CodeFacts]], None]
    core: Any
    arch: str = ""

    def bind(
        self,
        *args: Any,
        grid: Sequence[int],
        block: Sequence[int],
        cluster: Sequence[int] | None = None,
        shared_bytes: int = 0,
    ) -> Callable[[], None]:
        """The launch of the kernel with these arguments, on the stream that is torch's current one then.

        Everything is turned into C here, once: a launch allocates nothing and reads no tensor, so that it
        can be captured into a CUDA graph.

        Args:
            *args: tensors, `None`, or numbers with a width; as many as the kernel has parameters.
            grid: blocks along x, y, z, as CUDA counts them; a multiple of `cluster`.
            block: threads of a block along x, y, z.
            cluster: blocks of a cluster along x, y, z.
            shared_bytes: dynamic shared memory of a block.

        Raises:
            UsageError: the arguments are not those of the kernel, or the launch is larger than the device.
        """
        from tirbench.launch.c_values import c_value

        values = tuple(c_value(argument) for argument in args)
        self._check(values)
        self._allow(shared_bytes)
        self.note(lambda: code_facts(self, shared_bytes, prod(map(int, block))))
        config = self.core.LaunchConfig(
            grid=_in_clusters(grid, cluster),
            block=tuple(map(int, block)),
            cluster=None if cluster is None else tuple(map(int, cluster)),
            shmem_size=int(shared_bytes),
        )
        return _launcher(self, config, tuple(getattr(v, "pointer", v) for v in values), keep=args)

    @cached_property
    def kernel(self) -> Any:
        """The kernel, loaded onto the device."""
        self.core.Device(self.device).set_current()  # what torch made current already
        return self.code.get_kernel(self.source.expression)

    def _check(self, values: Sequence[Any]) -> None:
        """Hold the arguments against the parameters that the machine code declares."""
        from ctypes import sizeof

        try:
            widths = [parameter.size for parameter in self.kernel.arguments_info]
        except NotImplementedError:  # a driver before CUDA 12.4 cannot tell
            return
        if len(widths) != len(values):
            raise UsageError(
                f"{self.source.expression} takes {len(widths)} arguments, got {len(values)}"
            )
        for index, (width, value) in enumerate(zip(widths, values, strict=True), start=1):
            if sizeof(value) != width:
                raise UsageError(
                    f"argument {index} of {self.source.expression} has {width} bytes, "
                    f"got {sizeof(value)}: write the width that its parameter has"
                )

    def _allow(self, shared_bytes: int) -> None:
        """Opt in to more dynamic shared memory than every device gives by default."""
        if shared_bytes <= SHARED_WITHOUT_ASKING:
            return
        most = self.core.Device(self.device).properties.max_shared_memory_per_block_optin
        if shared_bytes > most:
            raise UsageError(
                f"{self.source.expression} asks for {shared_bytes:,} bytes of shared memory; "
                f"a block of this device has at most {most:,}"
            )
        opt_in(self.kernel, shared_bytes, self.device)


def opt_in(kernel: Any, shared_bytes: int, device: int) -> None:
    """Let a kernel use this much dynamic shared memory.

    Raises:
        UsageError: the driver refuses.
    """
    from cuda.bindings import driver

    which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(which, shared_bytes, kernel.handle, device)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise UsageError(f"{shared_bytes:,} bytes of shared memory were refused: {status.name}")


def _launcher(
    kernel: CudaKernel, config: Any, values: tuple[Any, ...], keep: tuple[Any, ...]
) -> Callable[[], None]:
    """The closure that is timed; `keep` holds the tensors whose addresses are among the values."""
    import torch

    core, loaded, device = kernel.core, kernel.kernel, kernel.device
    streams: dict[int, Any] = {0: core.LEGACY_DEFAULT_STREAM}

    def launch() -> None:
        handle = torch.cuda.current_stream(device).cuda_stream
        stream = streams.get(handle)
        if stream is None:
            stream = streams[handle] = core.Stream.from_handle(handle)
        core.launch(stream, config, loaded, *values)

    launch.tensors = keep  # type: ignore[attr-defined]  # as long as the launch, so long its arguments
    return launch


def _in_clusters(grid: Sequence[int], cluster: Sequence[int] | None) -> tuple[int, ...]:
    """The grid as cuda-core counts it: in clusters where there are any, in blocks where not."""
    if cluster is None:
        return tuple(map(int, grid))
    sides = (*cluster, 1, 1)
    for blocks, side in zip(grid, sides, strict=False):
        if blocks % side:
            raise UsageError(f"a grid of {tuple(grid)} blocks is no multiple of {tuple(cluster)}")
    whole = (*grid, 1, 1)[:3]
    return tuple(int(blocks) // int(side) for blocks, side in zip(whole, sides, strict=False))


def code_facts(kernel: CudaKernel, shared_bytes: int, threads: int) -> CodeFacts:
    """Digest and resources of a kernel.

    `spills` counts 32-bit registers, as Triton does: bytes of local memory of a thread, by four. Shared
    memory is what the kernel declares and what the launch adds.

    Args:
        kernel: loaded onto its device.
        shared_bytes: what the launch adds.
        threads: of a block.
    """
    from tirbench.launch.facts import of_kernels
    from tirbench.launch.resources import machine_code, with_occupancy
    from tirbench.launch.sass import text_digest
    from tirbench.model import MachineCode

    attributes = kernel.kernel.attributes
    cubin = bytes(kernel.code.code)
    code = MachineCode(
        name=kernel.source.expression,
        registers=attributes.num_regs,
        stack_bytes=attributes.local_size_bytes,
        shared_bytes=attributes.shared_size_bytes + int(shared_bytes),
        instructions=sum(one.instructions for one in machine_code(cubin)),
        threads=threads,
    )
    return of_kernels("sass:" + text_digest([cubin]), [with_occupancy(code, kernel.arch)])


def prepared(
    source: CudaSource,
    arch: str,
    device: int,
    note: Callable[[Callable[[], CodeFacts]], None],
) -> CudaKernel:
    """The kernel compiled for a device.

    Args:
        source: what is compiled.
        arch: `sm_90`, as `Device.arch` says it.
        device: index of the device in torch.
        note: see `CudaKernel`.
    """
    from tirbench.launch.nvrtc import compiled

    code = compiled(source, specific(arch))
    from cuda import core

    return CudaKernel(source=source, code=code, device=device, note=note, core=core, arch=arch)


def specific(arch: str) -> str:
    """The architecture with its own instructions: `sm_90a` for `sm_90`.

    The code runs on this device alone, so nothing is lost; without the `a` a kernel cannot use wgmma and
    its like (CUDA C++ programming guide, architecture-specific features; they begin with 9.0).
    """
    return f"{arch}a" if int(arch.removeprefix("sm_")) >= 90 else arch
