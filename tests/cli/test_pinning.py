"""`exec --pin` in a repository: what was right is pinned, and pinned again changes nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import HEAD, QUICK, Done, Project, implementation, make_project

STEADY = HEAD + implementation("steady", "kernels/ops.py:steady")
STEADY += implementation("wrong", "kernels/ops.py:tripled")
STEADY += implementation("raises", "kernels/ops.py:raises")
STEADY += implementation("absent", "no_such_package.double", "references")


def git(project: Project, *arguments: str) -> str:
    identity = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    return subprocess.run(
        ["git", *identity, *arguments],  # noqa: S607 - the git of the machine
        cwd=project.root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def baseline(project: Project) -> Path:
    (found,) = project.root.glob("workloads/baselines/*/steady.toml")
    return found


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    """A repository whose baselines are committed, and the command that made them."""
    project = make_project(tmp_path_factory.mktemp("pinned"))
    project.write("steady", STEADY)
    (project.root / ".gitignore").write_text(".tirbench/\nheavy\n__pycache__/\n")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "A workload")
    done = project.run("exec", "workloads", *QUICK, "--pin")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "Its baselines")
    return project, done


def test_only_what_was_right_and_timed_is_pinned(pinned: tuple[Project, Done]) -> None:
    project, done = pinned
    assert done.code == 1  # for the kernels that are wrong
    text = baseline(project).read_text(encoding="utf-8")
    assert text.count("midmean_us") == 1
    assert "steady" in text
    for name in ("wrong", "raises", "absent", "n1048576", str(project.root)):
        assert name not in text
    assert "not pinned: n64/wrong: wrong: y: " in done.err
    assert "1 added" in done.err


def test_the_pinned_time_is_the_time_it_takes(pinned: tuple[Project, Done]) -> None:
    lines = baseline(pinned[0]).read_text(encoding="utf-8").splitlines()
    (midmean,) = (line for line in lines if line.startswith("midmean_us"))
    assert 500 <= float(midmean.partition("=")[2]) < 600


def test_pinning_the_same_run_again_changes_nothing(pinned: tuple[Project, Done]) -> None:
    project, _ = pinned
    before = baseline(project).read_bytes()
    again = project.run("pin", "latest")
    assert (again.code, again.out) == (0, ""), again.err
    assert baseline(project).read_bytes() == before
    assert "1 kept" in again.err


def test_a_run_is_pinned_from_a_folder_below_the_project(pinned: tuple[Project, Done]) -> None:
    project, _ = pinned
    before = baseline(project).read_bytes()
    below = Project(project.root / "workloads").run("pin", "latest")
    assert (below.code, below.out) == (0, ""), below.err
    assert baseline(project).read_bytes() == before


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("n64/steady", "--accept n64/steady: write workload/case/implementation"),
        (
            "stady/n64/steady",
            "--accept stady/n64/steady: the run has no workload 'stady', but steady",
        ),
    ],
)
def test_accepting_a_row_that_is_none_is_refused(
    pinned: tuple[Project, Done], row: str, said: str
) -> None:
    refused = pinned[0].run("pin", "latest", "--accept", row, "--reason", "known")
    assert refused.code == 2
    assert said in refused.err


def test_measuring_and_pinning_again_changes_no_committed_byte(
    pinned: tuple[Project, Done],
) -> None:
    project, _ = pinned
    again = project.run("exec", "workloads", *QUICK, "--pin")
    assert again.code == 1, again.err
    assert git(project, "status", "--porcelain") == "", again.err


def test_an_uncommitted_kernel_is_refused_before_anything_is_measured(
    pinned: tuple[Project, Done],
) -> None:
    project, _ = pinned
    ops = project.root / "workloads" / "kernels" / "ops.py"
    text = ops.read_text()
    ops.write_text(text + "\n")
    try:
        refused = project.run("exec", "workloads", *QUICK, "--pin")
    finally:
        ops.write_text(text)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: uncommitted changes in workloads/kernels/ops.py;")
