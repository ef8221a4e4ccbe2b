"""The suite's kernels, compiled here, are those that an H200 ran: under the compiler that it had."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from tirbench import compiling, store
from tirbench.reading import read
from tirbench.selection import Selection

ROOT = Path(__file__).parents[2]
PINNED_BY = "3.6.0"
"""The Triton that the committed baselines were measured with."""

WORKLOADS = ("vector_add", "rmsnorm")


def installed() -> str | None:
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


@pytest.mark.skipif(installed() != PINNED_BY, reason=f"needs Triton {PINNED_BY}: digests are its")
def test_digests_are_those_that_were_recorded_on_an_h200() -> None:
    files = tuple(str(ROOT / f"workloads/{name}.toml") for name in WORKLOADS)
    suite = compiling.compiled(read(Selection(files=files)), ("sm_90",))
    recorded = {
        (name, row.case, row.implementation): row.code
        for name in WORKLOADS
        if (found := store.read_baseline(ROOT, f"workloads/baselines/nvidia-h200/{name}.toml"))
        for row in found.rows
    }
    for one in suite.compilations:
        key = (one.row.workload, one.row.case, one.row.implementation)
        if key in recorded:
            assert one.code is not None, one.failure
            assert one.code.digest == recorded[key], key
