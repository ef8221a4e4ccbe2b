"""Repositories with a workload, runs made by hand, and commands started in them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tirbench import again, digest, store
from tirbench.model import (
    Case,
    CodeFacts,
    Estimate,
    Machine,
    Outcome,
    Row,
    Timed,
    Verification,
)
from tirbench.plan import rows_of
from tirbench.reading import Reading, read
from tirbench.selection import Selection

MACHINE = Machine(hardware="nvidia-h200", device="NVIDIA H200", kind="cuda", unit="3f9a")

OPS = '''\
"""Operations on one tensor."""

import torch


def double(x, y):
    torch.mul(x, 2, out=y)


def other(x, y):
    torch.add(x, x, out=y)


def doubled(x):
    return x * 2
'''

SCALE = """\
schema = 1
description = "Twice the input"
id = "n{n}"

[matrix]
n = [64, 128, 256]

[select]
default = ["*"]

[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }

[kernels.ours]
target = "kernels/ops.py:double"
args = ["x", "y"]

[kernels.theirs]
target = "kernels/theirs.py:other"
args = ["x", "y"]

[check.oracle]
target = "kernels/oracle.py:doubled"
args = ["x"]
returns = "y"
"""

THEIRS = '''\
"""Another way."""

import torch


def other(x, y):
    torch.add(x, x, out=y)
'''

ORACLE = '''\
"""What is right."""


def doubled(x):
    return x * 2
'''


@dataclass(frozen=True, slots=True)
class Repository:
    """A project in a git repository of its own."""

    root: Path

    def git(self, *arguments: str, check: bool = True) -> str:
        """Run git as somebody who does not exist."""
        identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid"]
        result = subprocess.run(
            ["git", "-C", str(self.root), *identity, *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def write(self, path: str, text: str) -> Path:
        """Write a file of the project."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that is there."""
        text = (self.root / path).read_text(encoding="utf-8")
        assert old in text
        self.write(path, text.replace(old, new))

    def commit(self, subject: str) -> str:
        """Commit everything; returns the commit."""
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", subject)
        return self.git("rev-parse", "HEAD").strip()

    @property
    def reading(self) -> Reading:
        """The workload as it is now, with every case."""
        return read(Selection(files=(str(self.root / "workloads"),), select="all"))


def make_repository(root: Path, files: dict[str, str]) -> Repository:
    """A repository with these files, not committed yet."""
    repository = Repository(root)
    repository.git("init", "--quiet", "--initial-branch=main")
    repository.write("pyproject.toml", "")
    repository.write(".gitignore", ".tirbench/\n__pycache__/\n")
    for path, text in files.items():
        repository.write(path, text)
    return repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One workload of three cases and two kernels in files of their own, committed."""
    made = make_repository(
        tmp_path,
        {
            "workloads/scale.toml": SCALE,
            "workloads/kernels/ops.py": OPS,
            "workloads/kernels/theirs.py": THEIRS,
            "workloads/kernels/oracle.py": ORACLE,
        },
    )
    made.commit("A workload")
    return made


def estimate(midmean_us: float, timer: Any = "proton") -> Estimate:
    return Estimate(
        timer=timer,
        midmean_us=midmean_us,
        half_width_us=0.01,
        mean_us=midmean_us,
        median_us=midmean_us,
        min_us=midmean_us,
        p10_us=midmean_us,
        p90_us=midmean_us,
        calls=320,
        placements_us=(midmean_us,) * 5,
        within_sd=0.001,
    )


Times: TypeAlias = "dict[str, float]"
"""µs by `case/implementation`; what is not named takes 10."""


def timed(case: Case, row: Row, root: Path, midmean_us: float) -> Timed:
    """A row as a run on an H200 would answer it, its digests those of the files as they are."""
    source = digest.source(case, row.implementation, digest.reader(root))
    return Timed(
        row=row,
        verification=Verification(method="oracle", worst=0.1),
        estimate=estimate(midmean_us),
        code=CodeFacts(digest=f"sass:{source}"),
        problem=digest.problem(case, digest.reader(root)),
        protocol=digest.protocol(case, "proton", 5, 2),
        source=source,
    )


def outcomes_of(repository: Repository, times: Times) -> list[Outcome]:
    return [
        timed(case, row, repository.root, times.get(f"{row.case}/{row.implementation}", 10.0))
        for chosen in repository.reading.chosen
        for case in chosen.cases
        for row in rows_of(case)
    ]


MakeRun: TypeAlias = "Callable[..., store.KeptRun]"


@pytest.fixture
def make_run(repository: Repository) -> MakeRun:
    """Keeps a run of every row, with these times."""

    def make(
        times: Times | None = None,
        *,
        machine: Machine = MACHINE,
        change: Callable[[Outcome], Outcome | None] = lambda outcome: outcome,
    ) -> store.KeptRun:
        every = outcomes_of(repository, times or {})
        outcomes: Iterable[Outcome] = [o for one in every if (o := change(one)) is not None]
        root = repository.root
        with store.open_run(
            root,
            machine=machine,
            rows=[outcome.row for outcome in every],
            tree=store.read_tree(root),
            workload_paths=[c.workload.source.path for c in repository.reading.chosen],
        ) as writer:
            writer.outcome(*outcomes)
        return store.read_run(root, writer.id)

    return make


@pytest.fixture
def pin(repository: Repository) -> Callable[[store.KeptRun], None]:
    """Accepts a run into the baselines, as `tirbench pin` does."""
    from tirbench import pipeline

    def accept(kept: store.KeptRun) -> None:
        reading = again.reading_of(repository.root, kept)
        tree = store.Tree(commit=kept.run.commit)
        run = replace(kept.run, dirty=())
        pipeline.pin(reading, run, tree, pipeline.PinOptions(), lambda rows: _same(kept, rows))

    return accept


def _same(kept: store.KeptRun, rows: tuple[Row, ...]) -> list[Outcome]:
    """Fresh workers that see what the first ones saw."""
    keys = {row.key for row in rows}
    return [outcome for outcome in kept.run.outcomes if outcome.row.key in keys]
