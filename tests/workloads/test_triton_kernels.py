"""The suite's Triton kernels: right in the interpreter, and compiled for Hopper as they should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = (
    "vector_add",
    "rmsnorm",
    "fused_add_rmsnorm",
    "softmax",
    "softmax_online",
    "layernorm",
    "silu_and_mul",
    "rope",
    "cross_entropy",
    "matmul",
    "matmul_tma",
    "attention",
)
SHARED_BYTES_OF_A_PROGRAM = 227 * 1024  # compute capability 9.0, CUDA programming guide


def facts_from(program: str) -> dict[str, Any]:
    """What one of the programs beside this file prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-m", f"tests.workloads.{program}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    return facts_from("interpreted")


@pytest.fixture(scope="module")
def compiled() -> dict[str, dict[str, int]]:
    return facts_from("compiled")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_triton_kernel_agrees_with_the_float64_oracle_also_at_ragged_shapes(
    errors: dict[str, float], kernel: str
) -> None:
    shares = {label: share for label, share in errors.items() if label.split()[0] == kernel}
    assert len(shares) >= 2
    assert not {label: share for label, share in shares.items() if not share <= 1.0}


def test_no_default_case_spills_registers_or_exceeds_the_shared_memory_of_hopper(
    compiled: dict[str, dict[str, int]],
) -> None:
    bad = {
        case: facts
        for case, facts in compiled.items()
        if facts["local_bytes"] or facts["shared_bytes"] > SHARED_BYTES_OF_A_PROGRAM
    }
    assert not bad


def test_default_cases_load_128_bits_at_a_time(compiled: dict[str, dict[str, int]]) -> None:
    assert not [case for case, facts in compiled.items() if not facts["loads_128"]]


def test_products_run_on_the_tensor_cores_of_hopper(compiled: dict[str, dict[str, int]]) -> None:
    products = {
        case: facts for case, facts in compiled.items() if case.startswith(("matmul", "flash"))
    }
    assert len(products) == 6
    assert all(facts["wgmma"] for facts in products.values())
