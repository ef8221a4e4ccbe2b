"""Programs beside the tests, run in processes of their own.

Triton decides when it is imported whether kernels are interpreted or compiled, so the tests' process can
do neither both nor twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def printed(program: str, *arguments: str, given: object = None) -> Any:
    """The JSON that `tests/workloads/PROGRAM.py` prints.

    Args:
        program: name of the file.
        arguments: of the program.
        given: what it reads from its standard input, as JSON.
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
