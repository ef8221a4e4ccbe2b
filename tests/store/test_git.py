"""What git says of the tree that is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tirbench.errors import UsageError
from tirbench.store.git import Tree, read_tree, require_committed


def test_a_folder_without_a_repository_or_a_commit_has_none(
    git: Callable[..., str], tmp_path: Path
) -> None:
    assert read_tree(tmp_path) == Tree(commit=None)
    with pytest.raises(UsageError, match="no commit holds this tree"):
        require_committed(read_tree(tmp_path), allow_dirty=False)
    git("status")


def test_dirty_paths_are_relative_to_the_root_of_the_project(
    git: Callable[..., str], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside.txt").write_text("1")
    for name in ("old name.py", "edited.py", "gone.py"):
        (project / name).write_text(f"{name}\n" * 9)
    git("add", "-A")
    git("commit", "--quiet", "-m", "base")
    assert read_tree(project).dirty == ()
    git("mv", "project/old name.py", "project/né.py")
    (project / "edited.py").write_text("2")
    (project / "gone.py").unlink()
    (project / "new").mkdir()
    (project / "new" / "file.toml").write_text("3")
    (tmp_path / "outside.txt").write_text("4")
    tree = read_tree(project)
    assert tree.commit == git("rev-parse", "HEAD").strip()
    assert tree.dirty == ("edited.py", "gone.py", "new/file.toml", "né.py", "old name.py")


def test_baselines_and_run_folders_are_results_and_do_not_count() -> None:
    tree = Tree(
        commit="c0ffee",
        dirty=("workloads/baselines/nvidia-h200/add.toml", ".tirbench/runs/latest"),
    )
    require_committed(tree, allow_dirty=False)


def test_uncommitted_inputs_are_refused_with_what_to_do() -> None:
    tree = Tree(commit="c0ffee", dirty=tuple(f"kernels/k{i}.py" for i in range(7)))
    with pytest.raises(UsageError) as raised:
        require_committed(tree, allow_dirty=False)
    assert str(raised.value) == (
        "uncommitted changes in kernels/k0.py, kernels/k1.py, kernels/k2.py, kernels/k3.py, "
        "kernels/k4.py and 2 more; commit them, or allow it (--allow-dirty), "
        "which every row then says"
    )
    require_committed(tree, allow_dirty=True)
