"""Where the suite's kernel files lie, and how a test loads one: by path, as the harness does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).parents[2] / "workloads"
KERNELS = WORKLOADS / "kernels"


def load(name: str) -> Any:
    """The kernel file `name`.py as a module."""
    spec = importlib.util.spec_from_file_location(name, KERNELS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
