"""Templates and schema travel: a wheel, the wheel of an sdist, and an editable install all compile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = "vector_add"


def command(*arguments: str | Path, cwd: Path, path: Path | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        list(map(str, arguments)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of the tree, and a wheel built from it: the way a release is made."""
    out = tmp_path_factory.mktemp("dist")
    command(sys.executable, "-m", "build", "--no-isolation", "-o", out, ROOT, cwd=out)
    return out


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a user: one workload of ours, outside of the checkout."""
    (tmp_path / "pyproject.toml").write_text("")
    folder = tmp_path / "workloads"
    (folder / "kernels").mkdir(parents=True)
    shutil.copy(ROOT / "workloads" / f"{WORKLOAD}.toml", folder)
    for file in (ROOT / "workloads" / "kernels").glob("*.py"):
        shutil.copy(file, folder / "kernels")
    return tmp_path


def installed(what: Path | str, tmp_path: Path, *flags: str) -> Path:
    """A fresh environment with `what` in it; dependencies come from the environment of the tests."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    command(
        *(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"),
        *(*flags, what),
        cwd=tmp_path,
        path=dependencies(),
    )
    return environment / "bin" / "tirbench"


def dependencies() -> Path:
    """Where the dependencies of the running interpreter are installed."""
    import jinja2

    return Path(jinja2.__file__).parents[1]


def uses(tirbench: Path, project: Path) -> None:
    checked = command(tirbench, "check", "workloads", cwd=project, path=dependencies())
    assert "1 workload" in checked
    command(tirbench, "compile", "workloads", "-o", "build", cwd=project, path=dependencies())
    text = (project / "build" / f"{WORKLOAD}.py").read_text()
    assert "def launch():" in text
    assert str(project) not in text


def test_a_wheel_built_from_an_sdist_checks_and_compiles(
    distributions: Path, project: Path, tmp_path: Path
) -> None:
    (wheel,) = distributions.glob("*.whl")
    uses(installed(wheel, tmp_path), project)


def test_an_editable_install_checks_and_compiles(project: Path, tmp_path: Path) -> None:
    uses(installed(ROOT, tmp_path, "-e"), project)
