"""Readings made by hand, and a small project whose kernels a CPU times."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tirbench.digest import PROTOCOL_VERSION
from tirbench.selftest.readings import DELAYED, PLANTEDS, Record, pair_of, pairs_of

LOADS = ("base", "twin1", "twin2", "twin3")

WORKLOAD = """\
schema = 1
description = "Twice the input"
id = "n{n}"

[matrix]
n = [256, 4096]

[select]
default = ["*"]
cpu = ["*"]

[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }

[kernels.ours]
target = "kernels/ops.py:double"
args = ["x", "y"]

[check.oracle]
target = "kernels/ops.py:doubled"
args = ["x"]
returns = "y"
"""

OPS = '''\
"""Operations on one tensor."""

import torch


def double(x, y):
    torch.mul(x, 2, out=y)


def doubled(x):
    return x * 2
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One workload of two cases, in no repository."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "workloads" / "kernels").mkdir(parents=True)
    (tmp_path / "workloads" / "double.toml").write_text(WORKLOAD)
    (tmp_path / "workloads" / "kernels" / "ops.py").write_text(OPS)
    return tmp_path


def run_record(run: str = "r1", **changed: Any) -> Record:
    return {
        "type": "run",
        "run": run,
        "date": "2026-11-29",
        "command": "tirbench selftest",
        "hardware": "nvidia-h200",
        "device": "NVIDIA H200",
        "versions": "driver 580, torch 2.11.0, triton 3.6.0",
        "units": ["97eb"],
        "protocol": {"version": PROTOCOL_VERSION, "workers": 5, "loads": 4, "planted": 4},
        **changed,
    }


def row_record(row: str, midmean_us: float = 5.0, run: str = "r1", **changed: Any) -> Record:
    return {
        "type": "row",
        "run": run,
        "row": row,
        "source": "5a",
        "slower_than": 0.01,
        "unplanted": "",
        "worker_s": 1.0,
        "midmean_us": midmean_us,
        "flush_us": 60.0,
        "sequence_s": 0.05,
        "arm_s": 0.1,
        "strength": 40,
        "outputs": {},
        "configuration": None,
        "build_s": 0.01,
        **changed,
    }


def reading_record(
    row: str,
    sequence: int,
    placement: int,
    logs: Mapping[str, float],
    *,
    run: str = "r1",
    quad_sd: float = 0.004,
    quads: int = 60,
) -> Record:
    """What one worker reads, from the mean log time of each side."""
    sides = tuple(logs)
    return {
        "type": "reading",
        "run": run,
        "unit": "97eb",
        "row": row,
        "placement": placement,
        "sequence": sequence,
        "pairs": {
            pair_of(one, other): [logs[other] - logs[one], quad_sd**2, quads]
            for one, other in pairs_of(sides)
        },
        "midmean_us": dict.fromkeys(sides, 5.0),
        "launches": dict.fromkeys(sides, 600),
        "seconds": 0.1,
    }


def virtual_run(
    rows: Iterable[str],
    sequence: int,
    *,
    placements: Sequence[int] = range(5),
    planted: float | None = None,
    sd: float = 0.0005,
    run: str = "r1",
    seed: int = 1,
) -> list[Record]:
    """Readings of every row with this noise of a side; `planted` is the log-ratio of the delayed sides."""
    rng = random.Random(f"{seed} {sequence} {run}")  # noqa: S311 - a simulation
    sides = LOADS if planted is None else (*LOADS, *DELAYED)
    return [
        reading_record(
            row,
            sequence,
            placement,
            {
                side: rng.gauss(planted if side in PLANTEDS and planted else 0.0, sd)
                for side in sides
            },
            run=run,
        )
        for row in rows
        for placement in placements
    ]
