"""What the tests of the workloads share: kernel files as modules, and programs run beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tirbench.launch.targets import load_file

ROOT = Path(__file__).parents[2]

Mistakes = Mapping[str, Sequence[tuple[str, str]]]


@pytest.fixture(scope="session")
def kernel_file() -> Callable[[str], Any]:
    """Loads a kernel file as the harness does, by path, its folder importable."""
    return lambda name: load_file(ROOT / "workloads" / "kernels" / f"{name}.py")


@pytest.fixture(scope="session")
def verdicts() -> Callable[[str, Mistakes], dict[str, str | None]]:
    """Verifies the smoke case of a workload with mistakes in its kernels; see `mutated.py`."""
    return lambda name, mistakes: printed("mutated", name, given=mistakes)


@pytest.fixture(scope="session")
def hopper_facts() -> Callable[[str], dict[str, dict[str, int]]]:
    """Compiles the default cases of a workload for Hopper; see `compiled_for_hopper.py`."""
    return lambda name: printed("compiled_for_hopper", name)


def printed(program: str, *arguments: str, given: object = None) -> Any:
    """The JSON that the program of that name beside this file prints.

    Triton decides when it is imported whether kernels are interpreted or compiled, so it needs a process
    of its own for either.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-m", f"tests.workloads.{program}", *arguments],
        cwd=ROOT,
        env=environment,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
