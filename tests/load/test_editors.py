"""Both TOML language servers accept every workload offline, and see the mistakes that the schema can see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tirbench import scaffold
from tirbench.load import SCHEMA_FILE

ROOT = Path(__file__).parents[2]
HERE = Path(sys.executable).parent
MISTAKES = {
    'dtype = "dtype"': ('dtyp = "dtype"', "dtyp"),
    'kind = "triton"': ('kind = "tritn"', "tritn"),
    "num_warps = 4": ("num_warp = 4", "num_warp"),
    'role = "out"': ('role = "output"', "output"),
}
"""What stands in a new workload, a slip of the hand, and the word that is then wrong."""


def program(name: str) -> str:
    """A language server beside this Python or on the path; both are on PyPI under their own names."""
    found = shutil.which(name, path=f"{HERE}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def lint(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    arguments = {
        "tombi": ("lint", "--offline", "--error-on-warnings", "."),
        "taplo": ("lint", "--no-auto-config", "--config", ".taplo.toml"),
    }
    return subprocess.run(
        [program(name), *arguments[name]],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The repository as far as an editor looks at it, with the examples among the workloads."""
    shutil.copytree(SCHEMA_FILE.parent, tmp_path / "tirbench" / "schema")
    (tmp_path / "workloads" / "baselines" / "nvidia-h200").mkdir(parents=True)
    for name in ("tombi.toml", ".taplo.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for path in (ROOT / "workloads").glob("*.toml"):
        shutil.copy(path, tmp_path / "workloads")
    for folder in ("load/examples", "render"):
        for path in (ROOT / "tests" / folder).glob("*.toml"):
            other = f"{folder.replace('/', '_')}_{path.name}"
            shutil.copy(path, tmp_path / "workloads" / other)
    baseline = tmp_path / "workloads" / "baselines" / "nvidia-h200" / "softmax.toml"
    shutil.copy(ROOT / "tests" / "store" / "baseline.toml", baseline)
    return tmp_path


@pytest.mark.parametrize("name", ["tombi", "taplo"])
def test_a_language_server_accepts_every_workload_offline(name: str, checkout: Path) -> None:
    done = lint(name, checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arning" not in done.stdout + done.stderr.replace("--error-on-warnings", "")


@pytest.mark.parametrize("name", ["tombi", "taplo"])
@pytest.mark.parametrize("right", sorted(MISTAKES))
def test_a_language_server_sees_a_slip(name: str, right: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    shutil.copytree(SCHEMA_FILE.parent, tmp_path / "tirbench" / "schema")
    for config in ("tombi.toml", ".taplo.toml"):
        shutil.copy(ROOT / config, tmp_path)
    workload, *_ = scaffold.new("swish", tmp_path)
    assert lint(name, tmp_path).returncode == 0
    text = workload.read_text()
    assert right in text
    slip, word = MISTAKES[right]
    workload.write_text(text.replace(right, slip, 1))
    done = lint(name, tmp_path)
    assert done.returncode != 0
    assert word in done.stdout + done.stderr


def test_the_schema_says_its_dialect_and_every_key_can_be_shown() -> None:
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    assert schema["x-tombi-toml-version"] == "v1.0.0"
