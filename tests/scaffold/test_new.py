"""`tirbench new` writes a workload that is right and runs, and never touches what is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tirbench import scaffold
from tirbench.diagnostics import CODES
from tirbench.errors import UsageError

ROOT = Path(__file__).parents[2]


def tirbench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    return subprocess.run(
        [sys.executable, "-m", "tirbench", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_a_new_workload_passes_check_and_verify_and_can_be_timed(project: Path) -> None:
    written = tirbench(project, "new", "swish")
    assert (written.returncode, written.stdout) == (
        0,
        "workloads/swish.toml\nworkloads/kernels/swish.py\n",
    )
    assert written.stderr == (
        "next:\n"
        "  tirbench schema > workloads/workload.schema.json\n"
        "  tirbench check workloads/swish.toml\n"
        "  tirbench verify workloads/swish.toml --select smoke\n"
    )
    schema = tirbench(project, "schema")
    (project / "workloads" / "workload.schema.json").write_text(schema.stdout)
    checked = tirbench(project, "check", "workloads")
    assert (checked.returncode, checked.stdout) == (0, "1 workload with 3 cases checked\n")
    select = ("workloads/swish.toml", "--select", "smoke", "--device", "cpu")
    verified = tirbench(project, "verify", *select)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "2 verified" in verified.stdout
    timed = tirbench(project, "exec", *select, "--placements", "1", "--rounds", "1")
    assert timed.returncode == 0, timed.stdout + timed.stderr
    assert "1 timed" in timed.stdout


def test_without_the_schema_beside_it_check_warns_and_says_how_to_write_it(project: Path) -> None:
    scaffold.new("swish", project)
    checked = tirbench(project, "check", "workloads")
    assert checked.returncode == 0
    assert "warning[TB007]: there is no schema './workload.schema.json'" in checked.stdout
    assert (
        "help: write it with 'tirbench schema > workloads/workload.schema.json'" in checked.stdout
    )


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("#:schema /etc/hostname", "the schema '/etc/hostname' is outside the project"),
        ("#:schema ../../x.json", "the schema '../../x.json' is outside the project"),
        ("#:schema other.json", "the schema 'other.json' is not that of this tirbench"),
        ("#:schema = ./workload.schema.json", "there is no schema '= ./workload.schema.json'"),
        ("#:schema a\x00b.json", ""),
    ],
)
def test_a_schema_that_is_not_ours_is_a_warning(project: Path, first: str, message: str) -> None:
    workload, *_ = scaffold.new("swish", project)
    (project / "workloads" / "other.json").write_text("{}")
    text = workload.read_text().partition("\n")[2]
    workload.write_text(f"{first}\n{text}")
    checked = tirbench(project, "check", "workloads")
    if message:
        assert (checked.returncode, checked.stdout.count("TB007")) == (0, 1)
        assert message in checked.stdout
    else:
        assert checked.returncode == 2  # a control character is an error of its own


def test_in_a_checkout_the_schema_of_the_tree_is_named(project: Path) -> None:
    schema = project / "tirbench" / "schema" / "workload.schema.json"
    schema.parent.mkdir(parents=True)
    schema.write_text(tirbench(project, "schema").stdout)
    workload, *rest = scaffold.new("swish", project)
    assert workload.read_text().startswith("#:schema ../tirbench/schema/workload.schema.json\n")
    assert len(rest) == 1, "the schema is there"
    checked = tirbench(project, "check", "workloads")
    assert (checked.returncode, checked.stdout) == (0, "1 workload with 3 cases checked\n")


@pytest.mark.parametrize("there", ["workloads/swish.toml", "workloads/kernels/swish.py"])
@pytest.mark.parametrize("link", [False, True])
def test_what_exists_is_never_touched(project: Path, there: str, link: bool) -> None:
    path = project / there
    path.parent.mkdir(parents=True)
    path.symlink_to(project / "nowhere") if link else path.write_text("mine")
    done = tirbench(project, "new", "swish")
    assert done.returncode == 2
    assert done.stderr == f"error: {there} exists; nothing was written\n"
    files = [p for p in project.rglob("*") if p.is_file() or p.is_symlink()]
    assert sorted(files) == sorted([project / "pyproject.toml", path])


@pytest.mark.parametrize(
    "name", ["torch", "random", "class", "a-b", "../x", "1x", "é", "", "a" * 61]
)
def test_a_name_that_cannot_be_a_module_of_its_own_is_refused(project: Path, name: str) -> None:
    with pytest.raises(UsageError):
        scaffold.new(name, project)
    assert [path.name for path in project.iterdir()] == ["pyproject.toml"]


def test_explain_says_what_a_code_means(project: Path) -> None:
    done = tirbench(project, "explain", "tb012")
    assert done.returncode == 0
    assert done.stdout.startswith(f"TB012: {CODES['TB012']}\n\n")
    unknown = tirbench(project, "explain", "TB912")
    assert unknown.returncode == 2
    assert unknown.stderr == "error: there is no error code TB912; did you mean 'TB012'?\n"
