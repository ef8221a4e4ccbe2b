"""The process that compiles: it imports the kernel files of a workload, which is why it is one of its own.

    python -m tirbench.aot.worker REQUESTS ANSWERS

It runs the generated harness, as a measurement would, with two differences: tensors have addresses but
no memory, and a launch of a Triton kernel compiles and does not launch. So the specialisation of a kernel
(divisibility by 16, equality to 1, constants, the order of the sequence) is made by Triton itself from the
arguments that the case gets.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import metadata
from math import prod
from pathlib import Path
from typing import Any, Final

import torch

from tirbench import codec
from tirbench.errors import UsageError
from tirbench.harness.case import Case, Declared, Launch, Shared
from tirbench.harness.program import Program, open_program
from tirbench.harness.requires import unmet
from tirbench.launch import cuda, tirx, triton
from tirbench.launch.facts import together
from tirbench.launch.nvrtc import CudaSource, compiled, name_expression
from tirbench.launch.resources import machine_code, occupancy
from tirbench.launch.sass import text_digest
from tirbench.model import (
    CodeFacts,
    Compilation,
    CompileJob,
    CompileTarget,
    MachineCode,
    Row,
)
from tirbench.tensors import Arena, Computed, Tensor, Tensors
from tirbench.tensors.contents import plan as plan_contents
from tirbench.tensors.spec import base_of, by_name

ALIGNED: Final = 512
"""Every tensor of an arena begins at a multiple of this many bytes, so address 512 stands for all."""


class NoDevice:
    """A device that is not there, with the names that expressions read: a `harness.device.Device`."""

    def __init__(self, target: CompileTarget) -> None:
        """Stand for a device of the target's architecture."""
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
            device=NoDevice(request.target),  # type: ignore[arg-type]  # by its names
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
            replace(code, threads=prod(map(int, block)))
            for code in machine_code(cubin, int(shared_bytes))
        )
        self.case.kernels += kernels
        self.case.facts.append(_code_facts("sass:" + text_digest([cubin]), kernels))
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


def _code_facts(digest: str, kernels: Sequence[MachineCode]) -> CodeFacts:
    return CodeFacts(
        digest=digest,
        registers=max(code.registers for code in kernels),
        spills=max(code.stack_bytes for code in kernels) // 4,
        shared_bytes=max(code.shared_bytes for code in kernels),
    )


# --- Triton without a device ----------------------------------------------------------------------


@contextmanager
def compiling(target: CompileTarget) -> Iterator[list[Any]]:
    """Have every launch of a Triton kernel compile for the target and be collected, in order."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import jit
    from triton.runtime.driver import driver

    capability = int(target.arch.removeprefix("sm_"))
    found: list[Any] = []
    original = jit.JITFunction.run

    class Driver:
        """The names of a driver that compiling asks for."""

        def get_current_device(self) -> int:
            return capability  # the key of Triton's own cache of kernels: one an architecture

        def get_current_stream(self, _: int) -> int:
            return 0

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", capability, 32)

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        del warmup
        kernel = original(self, *args, grid=grid, warmup=True, **kwargs)
        if kernel is not None:
            found.append(kernel.result() if hasattr(kernel, "result") else kernel)
        return kernel

    before = driver._active  # noqa: SLF001 - asking for the active driver looks for a device
    driver.set_active(Driver())
    jit.JITFunction.run = run
    try:
        yield found
    finally:
        jit.JITFunction.run = original
        driver._active = before  # noqa: SLF001


def triton_code(found: Sequence[Any]) -> tuple[CodeFacts | None, tuple[MachineCode, ...]]:
    """Digest and resources of compiled Triton kernels, as a harness gives those that it launched."""
    cubins = [bytes(kernel.asm["cubin"]) for kernel in found if kernel.asm.get("cubin")]
    if not cubins:
        return None, ()
    kernels: list[MachineCode] = []
    for kernel, cubin in zip(found, cubins, strict=True):
        shared = int(kernel.metadata.shared)  # static or added by the launch, it is this many bytes
        kernels += [replace(code, shared_bytes=shared) for code in machine_code(cubin)]
    return _code_facts("sass:" + text_digest(cubins), kernels), tuple(kernels)


# --- One row --------------------------------------------------------------------------------------


def compile_row(program: Program, request: CompileJob, row: Row) -> Compilation:
    """Compile one implementation of one case; what goes wrong is in its `failure`."""
    arch = request.target.arch
    try:
        case = CompiledCase(program, request, program.folder)
        program.cases[request.case].function(case)
        declared = case.implementations[row.implementation]
        lacking = unmet(replace(declared.requires, memory=None), case.device)
        if lacking is not None:
            return Compilation(row=row, arch=arch, failure=lacking)
        code, notes = _compiled(case, declared, request.target)
    except Exception as error:  # noqa: BLE001 - kernels and compilers raise what they like
        return Compilation(row=row, arch=arch, failure=_one_line(error))
    if code is None:
        return Compilation(row=row, arch=arch, failure="nothing was compiled")
    cut = dict(request.cut).get(row.implementation, "")
    return Compilation(
        row=row,
        arch=arch,
        code=code,
        kernels=tuple(_with_occupancy(kernel, arch) for kernel in case.kernels),
        notes=(*notes, *([cut] if cut else [])),
    )


def _compiled(
    case: CompiledCase, declared: Declared, target: CompileTarget
) -> tuple[CodeFacts | None, tuple[str, ...]]:
    notes: list[str] = []
    with compiling(target) as found:
        original, triton.prepared = triton.prepared, _untuned(notes, triton.prepared)
        try:
            case.build(declared)()
        finally:
            triton.prepared = original
    facts, kernels = triton_code(found)
    case.kernels = [*kernels, *case.kernels]
    code = together(facts, tirx.code_facts(declared.executables), *case.facts)
    chosen = [triton.chosen_configuration(kernel) for kernel in declared.tuned]
    if code is not None:
        text = triton.NEXT_KERNEL.join(filter(None, chosen)) or None
        code = replace(code, configuration=text)
    return code, tuple(dict.fromkeys(notes))


def _untuned(notes: list[str], prepared: Callable[..., Any]) -> Callable[..., Any]:
    """`triton.prepared` that leaves one configuration: the pinned one, or else the first."""

    def one(kernel: Any, configuration: str | None = None) -> Any:
        made = prepared(kernel, configuration)
        if triton.is_tuned(made):
            tuner = triton._tuner(made)  # noqa: SLF001 - the launch kind's own view of its decorators
            notes.append(f"first of {len(tuner.configs)} configurations: none is pinned")
            tuner.configs = tuner.configs[:1]
        return made

    return one


def _with_occupancy(code: MachineCode, arch: str) -> MachineCode:
    found = occupancy(code, arch)
    return code if found is None else replace(code, occupancy=found[0], limited_by=found[1])


def _one_line(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def compilers() -> dict[str, str]:
    """Versions of what compiles here, by name; equal code has equal digests only under equal ones.

    They are asked of the compilers themselves: what runs may be another one than what is installed.
    """
    asked: dict[str, Callable[[], str]] = {
        "triton": _triton_version,
        "ptxas": _ptxas_version,
        "nvrtc": _nvrtc_version,
        "tirx": lambda: metadata.version("apache-tvm-tirx"),
    }
    found = {}
    for name, ask in asked.items():
        # A compiler that is not installed, or an older one without the name that is asked for.
        with suppress(ImportError, AttributeError, RuntimeError, metadata.PackageNotFoundError):
            found[name] = ask()
    return found


def _triton_version() -> str:
    import triton

    return str(triton.__version__)


def _ptxas_version() -> str:
    from triton import knobs

    return str(knobs.nvidia.ptxas.version)


def _nvrtc_version() -> str:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def main(requests_file: str, answers_file: str) -> None:
    """Answer every row of every request: a line when it is begun, a line when it is done."""
    listed = json.loads(Path(requests_file).read_text(encoding="utf-8"))
    requests = [codec.load(CompileJob, item) for item in listed]
    programs: dict[str, Program] = {}
    with Path(answers_file).open("a", encoding="utf-8") as answers:

        def say(line: dict[str, Any]) -> None:
            answers.write(json.dumps(line, ensure_ascii=False) + "\n")
            answers.flush()

        say({"compilers": compilers()})
        for request in requests:
            for row in request.rows:
                say({"begun": row.key, "arch": request.target.arch})
                if request.harness not in programs:
                    programs[request.harness] = open_program(request.harness)  # type: ignore[assignment]
                done = compile_row(programs[request.harness], request, row)
                say({"done": codec.dump(done)})


if __name__ == "__main__":
    main(*sys.argv[1:])
