"""A program like a harness whose implementations try what measuring needs: each timer, each compiler.

It runs in workers like every harness, so a probe that hangs or takes its process along costs only its own
answer. Each probe is one row; what it says stands in the verification's detail.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from tirbench import codec
from tirbench.model import CaseJob, Failed, Plan, Row, Verification, Verified

SOURCE: Final = """\
import triton
import triton.language as tl


@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n)
    tl.store(y_ptr + offsets, x + 1, offsets < n)
"""
ELEMENTS: Final = 1024


def timer(name: str, device: str) -> str:
    """Time an addition with one timer."""
    from tirbench.timing import bench

    x = torch.zeros(ELEMENTS, device=device)
    result = bench({"add": lambda: x.add_(1)}, timer=name, calls=16, cooldown_s=0.0)  # type: ignore[arg-type]
    if result["errors"] or "add" not in result["impls"]:
        raise RuntimeError(str(result["errors"] or result["skipped"]))
    return f"{result['impls']['add']:.2f} µs for an addition of {ELEMENTS} numbers"


def device(_: str, kind: str) -> str:
    """Compute on the device."""
    x = torch.arange(ELEMENTS, device=kind, dtype=torch.float32)
    total = float((x + x).sum())
    if total != ELEMENTS * (ELEMENTS - 1):
        raise ValueError(f"the sum of the first {ELEMENTS} even numbers came out as {total}")
    if kind == "cpu":
        return f"{torch.get_num_threads()} threads"
    major, minor = torch.cuda.get_device_capability()
    free, total_bytes = torch.cuda.mem_get_info()
    return f"sm_{major}{minor}, {free / 2**30:.0f} of {total_bytes / 2**30:.0f} GiB free"


def triton(_: str, kind: str) -> str:
    """Compile (on a CPU: interpret) a Triton kernel and run it."""
    import importlib.util
    import tempfile

    with (
        tempfile.TemporaryDirectory() as folder
    ):  # Triton reads the source of a kernel from its file
        path = Path(folder) / "tirbench_probe.py"
        path.write_text(SOURCE)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None  # noqa: S101 - it names a Python file
        assert spec.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = torch.zeros(ELEMENTS, device=kind)
        y = torch.empty_like(x)
        module.add_one[(8,)](x, y, ELEMENTS, BLOCK=128)
    if not bool((y == 1).all()):
        raise ValueError("a kernel that adds one gave something else")
    return "compiled and run" if kind == "cuda" else "in the interpreter"


def compile_(_: str, kind: str) -> str:
    """Compile an expression with torch.compile and run it."""
    x = torch.zeros(ELEMENTS, device=kind)
    y = torch.compile(lambda x: (x + 1) * 2)(x)
    if not bool((y == 2).all()):
        raise ValueError("a compiled expression gave something else")
    return "compiled and run"


def nvrtc(_: str, __: str) -> str:
    """Compile CUDA C++ for the device."""
    import tempfile

    from tirbench.launch.nvrtc import CudaSource, compiled

    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "probe.cu").write_text(
            'extern "C" __global__ void probe(float* x) { *x = 1; }'
        )
        compiled(
            CudaSource(folder=Path(folder), file="probe.cu", expression="probe"),
            f"sm_{major}{minor}",
        )
    return "compiled"


PROBES: Final[dict[str, Callable[[str, str], str]]] = {
    "device": device,
    "triton": triton,
    "torch.compile": compile_,
    "cuda C++": nvrtc,
}
"""What is no timer; every other name is one."""


class Probes:
    """Tries the rows of a job, one after the other."""

    def run(self, job: CaseJob, plan: Plan, report: Callable[[dict[str, Any]], None]) -> None:
        """Answer every row: `Verified` where it works."""
        for row in job.rows:
            stage = {"implementation": row.implementation, "stage": "time"}
            report({"event": "stage", "case": job.case, **stage})
            outcome = codec.dump(tried(row, plan))
            report({"event": "outcome", "outcome": outcome})
        report({"event": "case_done", "case": job.case})


def tried(row: Row, plan: Plan) -> Verified | Failed:
    """The answer of one probe."""
    import traceback

    try:
        detail = PROBES.get(row.implementation, timer)(row.implementation, plan.device)
    except Exception as error:  # noqa: BLE001 - whatever does not work here
        lines = str(error).strip().splitlines() or [""]
        return Failed(
            row=row,
            stage="time",
            reason=f"{type(error).__name__}: {lines[0]}",
            detail="".join(traceback.format_exception(error)),
        )
    method = Verification(method="unchecked", worst=None, detail=detail)
    return Verified(row=row, verification=method, untimed="a probe")


program = Probes()
