"""Compile the Triton kernels of the suite for sm_90 as the default cases launch them, with no GPU.

Prints one JSON object per case: registers, bytes of local memory, shared memory, and how often an
instruction occurs in the PTX. A program of its own, so that it cannot meet an interpreted Triton.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.workloads.kernel_files import WORKLOADS, load
from tirbench.expand import expand
from tirbench.load import load as load_workload
from tirbench.model import BoundLaunch, Case
from tirbench.values import TensorRef

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
STREAMING = (
    "vector_add",
    "rmsnorm",
    "fused_add_rmsnorm",
    "softmax",
    "layernorm",
    "silu_and_mul",
    "rope",
    "cross_entropy",
    "matmul",
    "flash_attention",
)
"""Workloads whose kernels walk over contiguous memory and should look alike in what they compile to."""

POINTERS = {
    "float64": "*fp64",
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float8_e4m3fn": "*fp8e4nv",
    "float8_e5m2": "*fp8e5",
    "int64": "*i64",
    "int32": "*i32",
    "int16": "*i16",
    "int8": "*i8",
    "uint8": "*u8",
    "bool": "*i1",
}


def main() -> None:
    """Print the facts of every Triton launch of every default case of these workloads."""
    facts = {
        f"{case.key} {implementation.name} step {number}": compile_kernel(case, step)
        for workload in STREAMING
        for case in expand(load_workload(WORKLOADS / f"{workload}.toml"))
        if "default" in case.selected_by
        for implementation in case.implementations
        for number, step in enumerate(implementation.steps, 1)
        if step.kind == "triton"
    }
    json.dump(facts, sys.stdout)


def compile_kernel(case: Case, step: BoundLaunch) -> dict[str, int]:
    """Compile one launch with the specialisation Triton would choose for it."""
    file, _, name = step.target.rpartition(":")
    kernel = getattr(load(Path(file).stem), name)
    dtypes = {tensor.name: str(tensor.dtype) for tensor in case.tensors}
    named = dict(step.args.named)
    signature, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(kernel.params):
        value: Any = named.get(parameter.name, parameter.default)
        if parameter.is_constexpr or value is None:  # an omitted argument is compiled in as None
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
            continue
        pointer = isinstance(value, TensorRef)
        if pointer:
            signature[parameter.name] = POINTERS[dtypes[value.name]]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
        if pointer or (isinstance(value, int) and value % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    options = {key: value for key, value in step.options if key.startswith("num_")}
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs=constants, attrs=attributes),
        target=GPUTarget("cuda", 90, 32),
        options=options,
    )
    return {
        **resources(compiled.asm["cubin"]),
        "shared_bytes": compiled.metadata.shared,
        "wgmma": compiled.asm["ptx"].count("wgmma.mma_async"),
        "loads_128": len(re.findall(r"ld\.global[.\w:]*v4|cp\.async\.cg", compiled.asm["ptx"])),
    }


def resources(cubin: bytes) -> dict[str, int]:
    """Registers and local memory of the one kernel in a cubin; local memory is what spills use."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        dump = subprocess.run(
            [str(CUOBJDUMP), "-res-usage", file.name], capture_output=True, text=True, check=True
        )
    registers, stack, local = map(
        int,
        re.findall(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", dump.stdout + dump.stderr)[0],
    )
    return {"registers": registers, "local_bytes": stack + local}


if __name__ == "__main__":
    main()
