"""A launch kind of another package: installed as a user would, then checked, compiled and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tirbench import launch
from tirbench.errors import UsageError
from tirbench.launch import plug_ins
from tirbench.launch.call import KIND as CALL

pytest.importorskip("numpy")

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tests" / "plugin"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package in a folder of its own, as pip installs it."""
    built = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(PLUGIN, built, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path_factory.mktemp("packages")
    command = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder))
    done = subprocess.run(
        [*command, *options, str(built)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(PLUGIN / "workloads", tmp_path / "workloads")
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def tirbench(
    *arguments: str, cwd: Path, packages: Path | None = None
) -> subprocess.CompletedProcess[str]:
    path = [str(folder) for folder in (packages, ROOT) if folder is not None]
    return subprocess.run(
        [sys.executable, "-m", "tirbench", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_workload_of_an_installed_kind_is_checked(packages: Path, project: Path) -> None:
    done = tirbench("check", "workloads/scale.toml", cwd=project, packages=packages)
    assert (done.returncode, done.stdout) == (0, "1 workload with 1 case checked\n"), done.stderr


def test_the_options_of_an_installed_kind_are_held_against_its_schema(
    packages: Path, project: Path
) -> None:
    file = project / "workloads" / "scale.toml"
    file.write_text(file.read_text().replace('"raise"', '"explode"'))
    done = tirbench("check", "workloads/scale.toml", cwd=project, packages=packages)
    assert done.returncode == 2
    assert "workloads/scale.toml:24:19: error[" in done.stdout
    assert "'explode' is not a floating_errors" in done.stdout
    assert "help: one of ignore, warn, raise" in done.stdout


def test_without_the_package_its_kind_is_unknown(project: Path) -> None:
    done = tirbench("check", "workloads/scale.toml", cwd=project)
    assert done.returncode == 2
    assert "'numpy' is not a kind" in done.stdout
    assert "help: one of call, build, triton, cuda, tirx" in done.stdout


def test_a_launch_is_written_by_the_template_of_the_package(packages: Path, project: Path) -> None:
    done = tirbench("compile", "workloads/scale.toml", "-o", "out", cwd=project, packages=packages)
    assert done.returncode == 0, done.stderr
    text = (project / "out" / "scale.py").read_text()
    assert (
        """\
    @case.kernel('ours', requires=tb.Requires(device='cpu'))  # scale.toml:20
    def kernel_ours():
        return case.load('tirbench_numpy.runtime.bound')(
            case, case.load('kernels/scale.py:scale'), x, 0.5, y, floating_errors='raise'
        )
"""
        in text
    )


def test_an_installed_kind_is_verified_and_timed(packages: Path, project: Path) -> None:
    arguments = ("exec", "--device", "cpu", "--format", "json", "workloads/scale.toml")
    done = tirbench(*arguments, cwd=project, packages=packages)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {o["row"]["implementation"]: o for o in json.loads(done.stdout)["outcomes"]}
    assert {name: outcome["type"] for name, outcome in found.items()} == dict.fromkeys(
        ("ours", "numpy", "torch"), "timed"
    )
    assert found["ours"]["code"]["digest"].startswith("src:")
    assert found["numpy"]["code"] is None  # a function of C has no source to digest


class TestFound:
    """What is wrong with an entry point is said with the package it is of."""

    @pytest.fixture(autouse=True)
    def _forget(self) -> Iterator[None]:
        plug_ins.cache_clear()
        yield
        plug_ins.cache_clear()

    @staticmethod
    def entries(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
        found = [metadata.EntryPoint(name, value, launch.GROUP) for name, value in values.items()]
        monkeypatch.setattr(metadata, "entry_points", lambda **_: found)

    def test_a_name_of_a_built_in_kind_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries(monkeypatch, triton="other.triton:KIND")
        with pytest.raises(
            UsageError, match=r"the launch kind 'triton' of other\.triton:KIND exists already"
        ):
            plug_ins()

    def test_a_package_that_cannot_be_imported_is_named_with_pythons_message(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.entries(monkeypatch, tile="no_such_package:KIND")
        with pytest.raises(
            UsageError,
            match=r"'tile' of no_such_package:KIND cannot be loaded: ModuleNotFoundError: No module",
        ):
            plug_ins()

    def test_what_is_no_kind_of_that_name_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries(monkeypatch, tile="tirbench.launch.call:KIND")
        with pytest.raises(UsageError, match=r"is not the tirbench\.launch\.Kind named 'tile'"):
            plug_ins()

    def test_a_built_in_kind_is_found_without_looking_at_packages(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.entries(monkeypatch, tile="no_such_package:KIND")
        assert launch.kind_of("call") is CALL
