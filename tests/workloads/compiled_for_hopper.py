"""Compile the Triton kernels of one workload for sm_90 as its default cases launch them, with no GPU.

    python -m tests.workloads.compiled_for_hopper NAME

Prints one JSON object per case, launch and configuration of a tuner: registers, bytes of local and shared
memory, and how often an instruction occurs in the PTX.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.workloads.compiled import POINTERS, resources
from tests.workloads.kernel_files import WORKLOADS
from tirbench.expand import expand
from tirbench.launch.targets import load_target
from tirbench.load import load
from tirbench.model import BoundLaunch, Case
from tirbench.values import TensorRef


def main() -> None:
    """Print the facts of every Triton launch of every default case."""
    (workload,) = sys.argv[1:]
    facts = {
        f"{case.id} {implementation.name} {label}": compiled(case, step, constants, options)
        for case in expand(load(WORKLOADS / f"{workload}.toml"))
        if "default" in case.selected_by
        for implementation in case.implementations
        for step in implementation.steps
        if step.kind == "triton"
        for label, constants, options in configurations(step)
    }
    json.dump(facts, sys.stdout)


def configurations(step: BoundLaunch) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """What a launch can be compiled with: label, constants and options; several where it is tuned."""
    kernel = load_target(Path(WORKLOADS), step.target)
    name = step.target.rpartition(":")[2]
    own = {key: value for key, value in step.options if key.startswith("num_")}
    tuned = [(str(c), c.kwargs, c.num_warps, c.num_stages) for c in getattr(kernel, "configs", ())]
    if not tuned:
        yield name, dict(step.args.named), own
    for label, constants, warps, stages in tuned:
        options = {**own, "num_warps": warps, "num_stages": stages}
        yield f"{name} {label}", {**dict(step.args.named), **constants}, options


def compiled(
    case: Case, step: BoundLaunch, arguments: dict[str, Any], options: dict[str, Any]
) -> dict[str, int]:
    """Compile one launch with the specialisation Triton would choose for it."""
    kernel = load_target(WORKLOADS, step.target)
    while not hasattr(kernel, "params"):  # below @autotune and @heuristics
        for name, heuristic in getattr(kernel, "values", {}).items():
            arguments = {**arguments, name: heuristic(arguments)}
        kernel = kernel.fn
    dtypes = {tensor.name: str(tensor.dtype) for tensor in case.tensors}
    signature, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(kernel.params):
        value = arguments[parameter.name]
        if parameter.is_constexpr:
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
            continue
        if isinstance(value, TensorRef):
            signature[parameter.name] = POINTERS[dtypes[value.name]]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
        if isinstance(value, TensorRef) or (isinstance(value, int) and value % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    built = triton.compile(
        ASTSource(kernel, signature, constexprs=constants, attrs=attributes),
        target=GPUTarget("cuda", 90, 32),
        options=options,
    )
    ptx = built.asm["ptx"]
    return {
        **resources(built.asm["cubin"]),
        "shared_bytes": built.metadata.shared,
        "wgmma": ptx.count("wgmma.mma_async"),
        "mma": ptx.count("mma.sync"),
        "loads_128": len(re.findall(r"ld\.global[.\w:]*v4|cp\.async\.cg", ptx)),
    }


if __name__ == "__main__":
    main()
