"""A project under git, made by the tests: one workload with pinned rows, and what a branch does to it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tirbench import digest, store
from tirbench.expand import expand
from tirbench.load import load
from tirbench.model import Baseline, PinnedRow
from tirbench.store.baseline import sealed

WORKLOAD = """\
schema = 1
description = "y = 2 x"
id = "n{n}"

[matrix]
n = [1024, 2048, 4096]

[tensors]
x = { shape = ["n"], dtype = "float16", init = { kind = "uniform", low = -2.0, high = 2.0 } }
y = { role = "out", like = "x" }

[kernels.fast]
kind = "call"
target = "kernels/ops.py:fast"
args = ["x", "y"]

[references.torch]
kind = "call"
target = "torch.mul"
args = ["x", 2]
returns = "y"

[references.slow]
kind = "call"
target = "kernels/ops.py:slow"
args = ["x", "y"]
requires = { packages = ["torch>=2.6"] }

[check.oracle]
target = "kernels/right.py:doubled"
args = ["x"]
returns = "y"

[check.outputs.y]
rtol = 1e-4
atol = 1e-5

[work]
bytes = "nbytes(x) + nbytes(y)"

[timer]
l2 = "cold-dirty"
rounds = 2

[gate]
reference = "torch"
"""

OPS = '''\
"""Operations that double."""


def fast(x, y):
    y.copy_(x + x)


def slow(x, y):
    y.copy_(2 * x)
'''

RIGHT = """\
def doubled(x):
    return 2 * x
"""

HARDWARE = "nvidia-h200"
BASELINE = f"workloads/baselines/{HARDWARE}/double.toml"
TIMES = {"fast": 4.0, "torch": 5.0, "slow": 6.0}


class Project:
    """The repository, edited as an author would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("workloads/double.toml", WORKLOAD)
        self.write("workloads/kernels/ops.py", OPS)
        self.write("workloads/kernels/right.py", RIGHT)
        self.write("pyproject.toml", "")
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.email", "a@example.org")
        self.git("config", "user.name", "a")
        self.pin()
        self.commit("begin")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.root), *arguments],  # noqa: S607 - git of the machine
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def replace(self, old: str, new: str, path: str = "workloads/double.toml") -> None:
        text = (self.root / path).read_text(encoding="utf-8")
        assert old in text
        self.write(path, text.replace(old, new))

    @property
    def rows(self) -> dict[tuple[str, str], PinnedRow]:
        baseline = store.read_baseline(self.root, BASELINE)
        return {(row.case, row.implementation): row for row in (baseline.rows if baseline else ())}

    def pin(self, *, only: tuple[tuple[str, str], ...] = (), **changes: Any) -> None:
        """Pin rows as a run of now would; `changes` are fields that it says otherwise."""
        read = digest.reader(self.root)
        known = self.rows
        for case in expand(load(self.root / "workloads/double.toml", self.root)):
            for one in case.implementations:
                key = (case.id, one.name)
                if only and key not in only:
                    continue
                source = digest.source(case, one.name, read)
                row = known.get(key) or PinnedRow(
                    case=case.id,
                    implementation=one.name,
                    midmean_us=TIMES[one.name],
                    band=0.01,
                    anchor_us=TIMES[one.name],
                    problem="",
                    protocol="",
                    code="",
                    source="",
                    env="driver 580 · torch 2.11.0 · triton 3.6.0",
                    unit="97eb71098a6e",
                )
                fresh = replace(
                    row,
                    problem=digest.problem(case, read),
                    protocol=digest.protocol(case, "proton", 5, 2),
                    code=f"src:{source}",
                    source=source,
                )
                known[key] = sealed(replace(fresh, **changes))
        self.keep(known)

    def keep(self, rows: dict[tuple[str, str], PinnedRow]) -> None:
        baseline = Baseline(workload="double", hardware=HARDWARE, rows=tuple(rows.values()))
        store.write_baseline(self.root, BASELINE, baseline)


MakeProject: TypeAlias = "Callable[[], Project]"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")
