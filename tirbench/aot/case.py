"""A case whose launches compile: its tensors have addresses and no memory, and nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final

import torch

from tirbench.errors import UsageError
from tirbench.harness.case import Case, Launch, Shared
from tirbench.harness.program import Program
from tirbench.launch import cuda, tirx
from tirbench.launch.facts import of_kernels
from tirbench.launch.nvrtc import CudaSource, compiled, name_expression
from tirbench.launch.resources import machine_code, with_occupancy
from tirbench.launch.sass import text_digest
from tirbench.model import CodeFacts, CompileJob, CompileTarget, MachineCode
from tirbench.tensors import Arena, Computed, Tensor, Tensors
from tirbench.tensors.contents import plan as plan_contents
from tirbench.tensors.spec import base_of, by_name

ALIGNED: Final = 512
"""Every tensor of an arena begins at a multiple of this many bytes, so address 512 stands for all."""


class NoDevice:
    """A device that is not there, with the names that expressions read: a `harness.device.Device`.

    Of several ranks it is the first.
    """

    rank = local_rank = 0

    def __init__(self, target: CompileTarget, world_size: int = 1) -> None:
        """Stand for a device of the target's architecture, among so many."""
        self.world_size = world_size
        self.kind = "cuda"
        self.torch = torch.device("cpu")
        self.arch: str = target.arch
        self.capability = target.capability
        self.sm_count = target.sm_count
        self.l2_bytes = target.l2_bytes
        self.smem_bytes = target.smem_bytes
        self.memory_bytes = target.memory_bytes

    def synchronize(self) -> None:
        """Nothing runs."""


class Placed:
    """A tensor without memory: what Triton looks at when it specialises a kernel.

    A real tensor's address is a multiple of 512 bytes and its offset, so `data_ptr` has what divides it.
    """

    def __init__(self, spec: Tensor, dtype: torch.dtype, offset_bytes: int) -> None:
        """Stand for the tensor that `spec` describes."""
        self.dtype = dtype
        self.shape = tuple(spec.shape or ())
        self.numel = prod(self.shape)
        self._address = ALIGNED + offset_bytes

    def data_ptr(self) -> int:
        """Its address, as far as divisibility goes."""
        return self._address

    @staticmethod
    def ptr_range() -> int:
        """Bytes from the address on; only AMD's compiler asks."""
        return 0


class CompiledCase(Case):
    """A case whose launches compile: what `Case` is to a measurement."""

    def __init__(self, program: Program, request: CompileJob, folder: Path) -> None:
        """Begin a case.

        Args:
            program: the harness.
            request: what is compiled of it.
            folder: where the workload lies.
        """
        self.kernels: list[MachineCode] = []
        self.facts: list[CodeFacts] = []
        self._contents = frozenset(request.contents)
        super().__init__(
            name=request.case,
            folder=folder,
            device=NoDevice(  # type: ignore[arg-type]  # by its names
                request.target, program.cases[request.case].processes
            ),
            seed=program.seed,
            placement=0,
            shared=Shared(arena=Arena("cpu"), chosen=dict(request.configurations)),
        )

    def tensors(self, *specs: Tensor, computed: tuple[Computed, ...] = ()) -> tuple[Any, ...]:
        """Addresses of all tensors; memory and contents only of those that decide an argument."""
        named = by_name(specs)
        real = self._real(named, computed)
        return tuple(
            real[spec.name] if spec.name in self._contents else _placed(named, spec)
            for spec in specs
            if not spec.temporary
        )

    def _real(self, named: dict[str, Tensor], computed: tuple[Computed, ...]) -> Any:
        """Those tensors whose contents decide an argument, with all that these depend on."""
        if not self._contents:
            return {}
        steps = plan_contents(named, computed)
        wanted = {base_of(named, name) for name in self._contents} | set(self._contents)
        for step in reversed(steps):
            if wanted & {base_of(named, name) for name in step.makes}:
                wanted |= {one for name in step.reads for one in (name, base_of(named, name))}
                wanted |= {one for name in step.makes for one in (name, base_of(named, name))}
        makers = [step.action for step in steps if wanted & set(step.makes)]
        return Tensors.allocate(
            [replace(spec, temporary=False) for name, spec in named.items() if name in wanted],
            [action for action in makers if isinstance(action, Computed)],
            device="cpu",
            seed=self._seed,
            placement=0,
            folder=self._folder,
        )

    def load(self, target: str) -> Any:
        """A function that does nothing: only what is named as a kernel is compiled."""
        del target
        return _nothing

    def compile(self, function: Callable[..., Any], *, mode: str) -> Callable[..., Any]:
        """What torch.compile would make is not known without running."""
        del mode
        return function

    def backward(self, function: Callable[..., Any], **_: Any) -> Callable[..., Launch]:
        """As `compile`."""
        del function
        return _nothing

    def enter(self, context: Any) -> None:
        """No context is needed: nothing runs."""

    def triton(self, target: str) -> Any:
        """The kernel as a measurement launches it; only here the file of the kernel is imported."""
        own = self.__dict__
        own["load"] = super().load  # `Case.triton` loads through `load`, which here loads nothing
        try:
            return super().triton(target)
        finally:
            del own["load"]

    def tune(self, launch: Launch) -> None:
        """Nothing chooses without a device: `compile_row` has cut every tuner to one configuration."""

    def cuda(
        self,
        target: str,
        *,
        template: tuple[Any, ...] = (),
        flags: tuple[str, ...] = (),
        include: tuple[str, ...] = (),
    ) -> Any:
        """A kernel of a `.cu` file: compiled when a launch of it is bound, which knows its block."""
        file, _, name = target.rpartition(":")
        source = CudaSource(
            folder=self._folder,
            file=file,
            expression=name_expression(name, template),
            flags=flags,
            include=include,
        )
        return _Bindable(self, source)

    def tirx(self, target: str) -> Callable[..., Launch]:
        """A TIRx function, compiled for the architecture; the digest is of the CUDA it generates."""
        function = super().load(target)

        def bind(**arguments: Any) -> Launch:
            concrete, _ = tirx.specialized(function, arguments, target)
            executable, _ = tirx.compiled(concrete, self.device.arch)
            if self._building is not None:
                self._building.executables.append(executable)
            return _nothing

        return bind


class _Bindable:
    """`case.cuda(…)`: its `bind` compiles and notes what the code needs."""

    def __init__(self, case: CompiledCase, source: CudaSource) -> None:
        self.case = case
        self.source = source

    def bind(
        self, *args: Any, block: Sequence[int], shared_bytes: int = 0, **_: Any
    ) -> Callable[[], None]:
        """Compile for the target; returns a launch that does nothing."""
        del args
        arch = cuda.specific(str(self.case.device.arch))
        cubin = bytes(compiled(self.source, arch).code)
        kernels = tuple(
            with_occupancy(replace(code, threads=prod(map(int, block))), arch)
            for code in machine_code(cubin, int(shared_bytes))
        )
        self.case.kernels += kernels
        self.case.facts.append(of_kernels("sass:" + text_digest([cubin]), kernels))
        return _nothing


def _placed(named: dict[str, Tensor], spec: Tensor) -> Placed:
    """A tensor by its address: the offsets of a view and of everything it is a view of."""
    offset_bytes, dtype, at = 0, spec.dtype, spec
    while True:
        own = at.dtype or _dtype_of(named, at)
        offset_bytes += int(at.offset) * int(own.itemsize)
        dtype = dtype or own
        if at.view is None:
            return Placed(spec, dtype, offset_bytes)
        at = named[at.view]


def _dtype_of(named: dict[str, Tensor], spec: Tensor) -> torch.dtype:
    """The element type of a view that does not name one."""
    while spec.dtype is None and spec.view is not None:
        spec = named[spec.view]
    if spec.dtype is None:
        raise UsageError(f"{spec.name}: has no dtype")
    return spec.dtype


def _nothing(*_: Any, **__: Any) -> Any:
    """Stands for every function that is not compiled; also for a builder of launches and a context."""
    return _nothing
