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
from pathlib import Path
from typing import Any

from tirbench import codec
from tirbench.aot.case import CompiledCase
from tirbench.harness.case import Declared
from tirbench.harness.program import Program, open_program
from tirbench.harness.requires import unmet
from tirbench.launch import tirx, triton
from tirbench.launch.facts import together
from tirbench.model import (
    CodeFacts,
    Compilation,
    CompileJob,
    CompileTarget,
    MachineCode,
    Row,
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
    compiled = [kernel for kernel in found if kernel.asm.get("cubin")]
    kernels = [code for kernel in compiled for code in triton.machine_code_of(kernel)]
    return triton.code_facts(compiled), tuple(kernels)


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
        kernels=tuple(case.kernels),
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
