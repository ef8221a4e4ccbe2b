"""A project with the workloads of this folder and the stand-ins that they call."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tirbench.expand import expand
from tirbench.load import load
from tirbench.model import Harness
from tirbench.render import render

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("render")
    (root / "pyproject.toml").touch()
    shutil.copy(HERE / "ops.py.txt", root / "ops.py")
    shutil.copy(HERE / "scale.cu.txt", root / "scale.cu")
    (root / "include").mkdir()
    (root / "tables.npz").touch()
    for file in HERE.glob("*.toml"):
        shutil.copy(file, root)
    return root


@pytest.fixture(scope="session")
def rendered(project: Path) -> Callable[[str, str | None], Harness]:
    """Renders all cases of a workload of the project; with a text, of a file that says that instead."""

    def render_file(name: str, text: str | None = None) -> Harness:
        path = project / f"{name}.toml"
        if text is not None:
            path.write_text(text, encoding="utf-8")
        workload = load(path)
        return render(workload, expand(workload))

    return render_file
