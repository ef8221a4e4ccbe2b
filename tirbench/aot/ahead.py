"""What a builder does with one case: compiles its Triton kernels into Triton's own cache on disk.

It goes the way of `tirbench.aot.worker`, with the architecture of the device that the run measures on. What
it compiles is found by content: the key of the cache holds the source, the arguments' specialisation, the
options, the target and the versions of the compilers. So a launch that is not the one that was built finds
nothing and compiles for itself, and one that finds something runs what it would have compiled.

Only Triton is built ahead. NVRTC compiles in memory alone, TIRx hands its source to NVRTC when a kernel is
launched for the first time (`launch.cubins` keeps what comes of it), and torch.compile cannot without a
context of the device, which a builder must not have while another process measures on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from triton import knobs  # noqa: F401 - what is imported before the first kernel counts it

from tirbench import codec
from tirbench.aot.case import CompiledCase
from tirbench.aot.worker import compiling
from tirbench.harness.program import Program, open_program
from tirbench.launch import triton
from tirbench.launch.counting import counting
from tirbench.model import CompileJob

if TYPE_CHECKING:
    from tirbench.harness.case import Case

_programs: dict[str, Program] = {}


class AheadCase(CompiledCase):
    """A case whose tuned kernels are compiled in every configuration that they may be tried in."""

    def triton(self, target: str) -> Any:
        """The kernel as a measurement launches it, with a tuner that compiles instead of timing."""
        return triton.compiling_tuner(super().triton(target))


def build(request: Any, goes_on: Callable[[str], bool]) -> dict[str, Any]:
    """Compile one case.

    Args:
        request: a `CompileJob` as JSON.
        goes_on: asked with each row, before it is built; false ends it.

    Returns:
        How many kernels were looked up, how many of them were compiled, and how many rows failed.
    """
    torch.set_num_threads(1)
    job = codec.load(CompileJob, request)
    if job.harness not in _programs:
        _programs[job.harness] = open_program(job.harness)  # type: ignore[assignment]  # a harness
    program = _programs[job.harness]
    kernels = compiled = failed = 0
    for row in job.rows:
        if not goes_on(row.key):
            break
        with counting() as counts:
            try:
                found = _built(program, job, row.implementation)
            except Exception as error:  # noqa: BLE001 - kernels and compilers raise what they like
                failed += 1
                print(f"{row.key}: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - a log
            else:
                _launchers(found)
        kernels += counts.found + counts.compiled
        compiled += counts.compiled
    return {"kernels": kernels, "compiled": compiled, "failed": failed}


def _built(program: Program, job: CompileJob, name: str) -> list[Any]:
    """Compile what one implementation launches."""
    case: Case = AheadCase(program, job, program.folder)
    program.cases[job.case].function(case)
    with triton.own_compiler(compiled_by_torch=False), compiling(job.target) as found:
        case.build(case.implementations[name])()
    return found


def _launchers(kernels: list[Any]) -> None:
    """Compile the C function that launches a kernel, where this Triton has one for each signature."""
    for kernel in kernels:
        with suppress(Exception):  # a launcher that needs a driver is compiled where one is
            from triton.backends.nvidia.driver import CudaLauncher

            CudaLauncher(kernel.src, kernel.metadata)
