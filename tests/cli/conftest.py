"""tirbench as its users start it: processes of its own, in projects that the tests make."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tirbench import cli

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("--placements", "1", "--rounds", "1")

START = """\
import os, sys
from tirbench.cli import main
try:
    main()
finally:
    heavy = {"torch", "triton", "numpy"} & set(sys.modules)
    if sys.argv[1:] and "HEAVY" in os.environ:
        with open(os.environ["HEAVY"], "w") as file:
            file.write(" ".join(sorted(heavy)))
"""

OPS = '''\
"""Operations on tensors of one dimension, right and wrong."""

import time

import torch


def double(x, y):
    torch.mul(x, 2, out=y)


def doubled(x):
    return x * 2


def steady(x, y):
    """Takes half a millisecond on every machine."""
    end = time.perf_counter_ns() + 500_000
    torch.mul(x, 2, out=y)
    while time.perf_counter_ns() < end:
        pass


def tripled(x, y):
    torch.mul(x, 3, out=y)


def zeros(x, y):
    y.zero_()


def raises(x, y):
    raise RuntimeError("out of registers")


def misfit(x, y):
    y.copy_(torch.cat([x, x]))


def endless(x, y):
    time.sleep(600)


def gained(x, gain):
    return (x * gain).sum()
'''

COPY_KERNEL = '''\
"""A Triton kernel that doubles."""

import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n)
    tl.store(y_ptr + offsets, x.to(TYPE) * 2, offsets < n)
'''

HEAD = """\
schema = 1
description = "Twice the input"
id = "n{n}"

[matrix]
n = [64, 1048576]

[select]
default = ["n1048576"]
smoke = ["n64"]

[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }

[check.oracle]
target = "kernels/ops.py:doubled"
args = ["x"]
returns = "y"

[work]
bytes = "nbytes(x) + nbytes(y)"
"""


def implementation(name: str, target: str, role: str = "kernels") -> str:
    """One implementation that takes `x` and writes `y`."""
    return f'\n[{role}.{name}]\ntarget = "{target}"\nargs = ["x", "y"]\n'


OURS = implementation("ours", "kernels/ops.py:double")
TORCH = '\n[references.torch]\ntarget = "torch.mul"\nargs = { input = "x", other = 2, out = "y" }\n'
TRITON = """
[kernels.triton]
kind = "triton"
target = "kernels/copy.py:double_kernel"
grid = ["cdiv(n, 32)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", TYPE = "float32", BLOCK = 32 }
"""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended; `heavy` are modules that no command may import, where it was asked."""

    code: int
    out: str
    err: str
    heavy: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """stdout as the one JSON document that it is."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass(frozen=True, slots=True)
class Project:
    """A folder of workloads."""

    root: Path

    def write(self, name: str, text: str) -> Path:
        """Write a workload."""
        path = self.root / "workloads" / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def start(
        self, *arguments: str, program: tuple[str, ...] = ("-c", START)
    ) -> subprocess.Popen[str]:
        """Start tirbench, or another program, in the project."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
            "HEAVY": str(self.root / "heavy"),
            "TIRBENCH_LOCK_DIR": str(self.root / ".tirbench"),  # waits for no run of others
        }
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def run(self, *arguments: str, program: tuple[str, ...] = ("-c", START)) -> Done:
        """Run it to its end."""
        heavy = self.root / "heavy"
        heavy.unlink(missing_ok=True)
        with self.start(*arguments, program=program) as process:
            try:
                out, err = process.communicate(timeout=120)
            finally:
                process.kill()
        found = heavy.read_text() if heavy.exists() else ""
        return Done(process.returncode, out, err, found)


def make_project(root: Path) -> Project:
    """An empty project with the operations of the tests."""
    (root / "pyproject.toml").touch()
    (root / "workloads" / "kernels").mkdir(parents=True)
    (root / "workloads" / "kernels" / "ops.py").write_text(OPS)
    (root / "workloads" / "kernels" / "copy.py").write_text(COPY_KERNEL)
    return Project(root)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with one good workload, `double`."""
    made = make_project(tmp_path)
    made.write("double", HEAD + OURS + TORCH)
    return made


Tirbench = Callable[..., Done]


@pytest.fixture
def tirbench(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Tirbench:
    """Runs a command of this process in the project: for what starts no worker."""
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["tirbench", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Done(code, out, err)

    return run
