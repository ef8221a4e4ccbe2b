"""A ranked workload from its TOML to rows: compiled, started by torchrun on two processes of this CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tirbench.expand import expand
from tirbench.load import load
from tirbench.render import render

ROOT = Path(__file__).parents[2]

WORKLOAD = """\
schema = 1
description = "Rows of every rank, added up"
id = "tp{tp}"

[matrix]
tp = [1, 2, 3]

[ranks]
world_size = "tp"
prepare = { target = "ops.py:refill", args = ["tickets", "rank"] }

[tensors]
x = { shape = [8, 4], dtype = "float32", init = "normal" }
tickets = { role = "scratch", shape = [1], dtype = "int64", init = "zeros", memory = "symmetric" }
total = { role = "out", shape = [4], dtype = "float32" }

[kernels.ours]
kind = "call"
target = "ops.py:add_up"
args = ["x", "tickets", "total", "rank", "world_size"]

[kernels.late]
kind = "call"
target = "ops.py:late"
args = ["x", "tickets", "total", "rank", "world_size"]

[check.oracle]
target = "ops.py:oracle"
args = ["gathered(x)"]
returns = "total"
"""

OPS = """\
import torch
import torch.distributed as dist


def refill(tickets, rank):
    tickets.fill_(rank + 1)


def add_up(x, tickets, total, rank, world_size):
    assert int(tickets) == rank + 1, "no ticket left"
    tickets.zero_()
    torch.sum(x, 0, out=total)
    dist.all_reduce(total)


def late(x, tickets, total, rank, world_size):
    add_up(x, tickets, total, rank, world_size)
    total.add_(rank)


def oracle(x):
    return x.sum(0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "sums.toml").write_text(WORKLOAD)
    workload = load(tmp_path / "sums.toml")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "sums.py").write_text(render(workload, expand(workload)).text)
    return tmp_path


def started(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command, "build/sums.py", "--device", "cpu"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_torchrun_starts_the_cases_of_so_many_ranks_and_the_first_rank_reports(
    folder: Path,
) -> None:
    done = started(folder, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert done.stdout.count("ours") == 1, done.stderr
    ours, late = (
        next(line for line in done.stdout.splitlines() if name in line) for name in ("ours", "late")
    )
    assert "oracle" in ours
    assert "several ranks are timed on CUDA devices only" in ours
    assert "rank 1: total: 4 of 4 elements off" in late
    assert done.returncode == 1  # `late` is wrong
    assert done.stderr.count("tp2 ours: verify") == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("not run: ")]
    assert told == [
        "not run: tp1 needs 1 process and runs as 2: python sums.py tp1",
        "not run: tp3 needs 3 ranks and runs as 2: torchrun --nproc-per-node 3 sums.py tp3",
    ]


def test_without_torchrun_only_the_case_of_one_rank_runs(folder: Path) -> None:
    done = started(folder)
    assert done.returncode == 0, done.stderr
    assert "tp1" in done.stdout
    assert "tp2" not in done.stdout
    assert "not run: tp2 needs 2 ranks and runs as 1" in done.stderr
