"""Run part of a test in a process of its own, whose Triton is interpreted, or is sure not to be.

`triton.language` decides when it is imported whether its functions are interpreted, so a test that wants
the interpreter starts its own file as a program, and one that compiles starts this file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def printed_by(module: str, *arguments: str, interpreted: bool) -> Any:
    """The JSON that a module below `tests.workloads` prints when it is run."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    if interpreted:
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", f"tests.workloads.{module}", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def interpreted(module: str) -> dict[str, str]:
    """What is wrong with each result of a test module's kernels, empty where nothing is."""
    found: dict[str, str] = printed_by(module, interpreted=True)
    return found


def compiled(workload: str) -> dict[str, dict[str, int]]:
    """The facts of the Triton kernels of a workload's default cases, compiled for sm_90."""
    found: dict[str, dict[str, int]] = printed_by("own_process", workload, interpreted=False)
    return found


def main(workload: str) -> None:
    """Print the facts of one workload."""
    from tests.workloads.compiled import compile_kernel
    from tests.workloads.kernel_files import WORKLOADS
    from tirbench.expand import expand
    from tirbench.load import load

    facts = {
        f"{case.id} {implementation.name}": compile_kernel(case, step)
        for case in expand(load(WORKLOADS / f"{workload}.toml"))
        if "default" in case.selected_by
        for implementation in case.implementations
        for step in implementation.steps
        if step.kind == "triton"
    }
    json.dump(facts, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
