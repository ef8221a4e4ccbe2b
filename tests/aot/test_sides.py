"""Two revisions through one compiler: which rows are the same code, and what is handed over as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.diff import compiled
from tests.diff.compiled import BASELINE, add_scale
from tests.diff.conftest import Project
from tirbench import store
from tirbench.commands import aot, diff, gate
from tirbench.model import PinnedRow
from tirbench.store.baseline import is_sealed, sealed

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
WRITTEN = ("n1024/plain", "n1024/cleared", "n2048/plain", "n2048/cleared")
"""Every row, in the order of the workload."""


@pytest.fixture(scope="module")
def branch(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A compiled workload whose kernel file has a function more, which nothing calls."""
    project = Project(tmp_path_factory.mktemp("branch"))
    add_scale(project)
    project.git("checkout", "--quiet", "-b", "work")
    project.replace(
        "def scale(x_ptr",
        "def unused(x):\n    return x\n\n\n@triton.jit\ndef scale(x_ptr",
        "workloads/kernels/scale.py",
    )
    project.commit("a helper beside the kernel")
    return project


@pytest.fixture(scope="module")
def facts(branch: Project) -> Path:
    """What an unprivileged job would hand over."""
    found = invoke(branch, aot.command, "workloads", "--base", "main", "--format", "json")
    assert found.return_value == 0, found.output
    file = branch.root / "facts.json"
    file.write_text(found.stdout)
    return file


def invoke(project: Project, command: object, *arguments: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project.root)
        found: Result = CliRunner().invoke(command, arguments, standalone_mode=False)  # type: ignore[arg-type]
    assert found.exception is None or isinstance(found.exception, Exception)
    return found


def test_another_text_that_compiles_to_the_same_needs_no_measuring(
    branch: Project, facts: Path
) -> None:
    without = invoke(branch, diff.command, "main", "--needs-measuring")
    assert without.stdout.split() == [f"scale/{key}" for key in WRITTEN]
    found = invoke(branch, diff.command, "main", "--facts", str(facts), "--needs-measuring")
    assert (found.return_value, found.stdout) == (0, "")
    assert found.stderr == "3 of 3 kernels unchanged; nothing to measure\n"


def test_the_gate_takes_the_same_facts_or_compiles_by_itself(branch: Project, facts: Path) -> None:
    assert invoke(branch, gate.command, "--static", "main").return_value == 3
    handed = invoke(branch, gate.command, "--static", "main", "--facts", str(facts))
    assert handed.return_value == 0, handed.output
    made = invoke(branch, gate.command, "--static", "main", "--compile")
    assert made.return_value == 0, made.output
    assert "4 of 4 rows unchanged" in made.stdout


def test_only_what_is_written_otherwise_is_compiled(facts: Path) -> None:
    data = json.loads(facts.read_text())
    for side in ("base", "facts"):
        rows = {f"{one['row']['workload']}" for one in data[side]["compilations"]}
        assert rows == {"scale"}
    assert data["base"]["compilers"] == data["facts"]["compilers"]


def test_who_reads_facts_imports_nothing_that_compiles(branch: Project, facts: Path) -> None:
    code = (
        "import sys; from tirbench.commands.{0} import command; "
        "code = command(sys.argv[1:], standalone_mode=False); "
        "assert not {{'torch', 'numpy', 'triton'}} & set(sys.modules); sys.exit(code)"
    )
    for name, arguments in (
        ("diff", ["main", "--facts", str(facts)]),
        ("gate", ["--static", "main", "--facts", str(facts)]),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code.format(name), *arguments],
            cwd=branch.root,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 1, "facts": {}}', '{"schema": 2, "facts": 1, "base": 2}']
)
def test_what_are_no_facts_is_refused(branch: Project, tmp_path: Path, text: str) -> None:
    file = tmp_path / "facts.json"
    file.write_text(text)
    found = invoke(branch, diff.command, "main", "--facts", str(file))
    assert "facts" in str(found.exception)


def test_facts_and_compiling_are_one_too_many(branch: Project, facts: Path) -> None:
    found = invoke(branch, diff.command, "main", "--facts", str(facts), "--compile")
    assert "give one of them" in str(found.exception)


def test_the_text_names_what_changed_and_counts_what_did_not(branch: Project) -> None:
    found = invoke(branch, aot.command, "workloads", "--base", "main")
    assert found.stdout.endswith("against BASE: 0 rows with other code, 4 without\n")
    branch.replace("* 2, mask", "* 3 + at, mask", "workloads/kernels/scale.py")
    try:
        found = invoke(branch, aot.command, "workloads", "--base", "main")
    finally:
        branch.git("checkout", "--quiet", "--", ".")
    assert "scale/n1024/plain on sm_90: " in found.stdout
    assert "code sass:" in found.stdout
    assert found.stdout.endswith("against BASE: 4 rows with other code, 0 without\n")


# --- Rows that lack what only a compiler says -----------------------------------------------------


def rows(project: Project) -> dict[str, PinnedRow]:
    baseline = store.read_baseline(project.root, BASELINE)
    assert baseline is not None
    return {f"{row.case}/{row.implementation}": row for row in baseline.rows}


def test_rows_of_the_same_code_are_completed_and_nothing_else_of_them_moves(
    project: Project,
) -> None:
    add_scale(project)
    found = json.loads(
        invoke(project, aot.command, "workloads/scale.toml", "--format", "json").stdout
    )
    codes = {
        f"{one['row']['case']}/{one['row']['implementation']}": one["code"]["digest"]
        for one in found["facts"]["compilations"]
    }
    compiled.pin(project, "n1024/plain", code=codes["n1024/plain"])
    broken = sealed(replace(rows(project)["n2048/plain"], code=codes["n2048/plain"]))
    baseline = store.read_baseline(project.root, BASELINE)
    assert baseline is not None
    kept = [one for one in baseline.rows if (one.case, one.implementation) != ("n2048", "plain")]
    edited = replace(broken, midmean_us=1.0)
    store.write_baseline(project.root, BASELINE, replace(baseline, rows=(*kept, edited)))
    before = rows(project)

    done = invoke(project, aot.command, "workloads/scale.toml", "--write")
    assert f"{BASELINE}: resources of 1 row completed" in done.stderr
    after = rows(project)
    assert {key for key in after if after[key] != before[key]} == {"n1024/plain"}
    changed = after["n1024/plain"]
    assert is_sealed(changed)
    bare = replace(changed, resources=before["n1024/plain"].resources, seal="")
    assert bare == replace(before["n1024/plain"], seal="")
    assert {name for name, _ in changed.resources} == {
        "instructions",
        "occupancy_percent",
        "registers",
        "shared_bytes",
        "spills",
        "stack_bytes",
    }
    assert dict(changed.resources)["registers"] == 96  # what the device said stays

    text = (project.root / BASELINE).read_text()
    invoke(project, aot.command, "workloads/scale.toml", "--write")
    assert (project.root / BASELINE).read_text() == text


def test_branches_that_complete_and_pin_different_rows_merge_clean(project: Project) -> None:
    add_scale(project)
    project.git("checkout", "--quiet", "-b", "left")
    row = rows(project)["n1024/plain"]
    more = (("instructions", 40), *row.resources)
    compiled.pin(project, "n1024/plain", resources=tuple(sorted(more)))
    project.commit("completed")
    project.git("checkout", "--quiet", "-b", "right", "main")
    compiled.pin(project, "n2048/cleared", midmean_us=3.0, anchor_us=3.0, code="sass:3")
    project.commit("measured")
    project.git("merge", "--quiet", "--no-edit", "left")
    merged = rows(project)
    assert all(map(is_sealed, merged.values()))
    assert dict(merged["n1024/plain"].resources)["instructions"] == 40
    assert merged["n2048/cleared"].midmean_us == 3.0
