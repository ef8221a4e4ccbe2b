"""Commands that run: verify and exec on a CPU, with everything that can go wrong beside what is right."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tirbench import pipeline, standalone
from tirbench.harness import open_program
from tirbench.reading import read
from tirbench.selection import Selection
from tirbench.store import read_run

from .conftest import (
    HEAD,
    OURS,
    QUICK,
    TORCH,
    TRITON,
    Done,
    Project,
    implementation,
    make_project,
)

FAULTS = (
    HEAD
    + OURS
    + implementation("wrong", "kernels/ops.py:tripled")
    + implementation("zeros", "kernels/ops.py:zeros")
    + implementation("raises", "kernels/ops.py:raises")
    + implementation("misfit", "kernels/ops.py:misfit")
    + implementation("absent", "no_such_package.double", "references")
    + implementation("off", "kernels/ops.py:tripled", "references")
    + TORCH
)

GRADIENTS = """\
schema = 1
description = "Gradient of the sum of a product"
id = "n{n}"

[matrix]
n = [64]

[select]
smoke = ["*"]

[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
gain = { like = "x", init = "normal" }
dx = { role = "out", like = "x" }
dgain = { role = "out", like = "x" }

[kernels.ours]
target = "kernels/ops.py:gained"
args = ["x", "gain"]
grad = { of = ["x", "gain"] }
returns = ["dx", "dgain"]

[check.oracle]
target = "kernels/ops.py:gained"
args = ["x", "gain"]
grad = { of = ["x", "gain"] }
returns = ["dx", "dgain"]
"""


def rows(done: Done, workload: str, case: str) -> dict[str, dict[str, Any]]:
    """The outcomes of a case by implementation."""
    return {
        outcome["row"]["implementation"]: outcome
        for outcome in done.document["outcomes"]
        if (outcome["row"]["workload"], outcome["row"]["case"]) == (workload, case)
    }


def line_of(project: Project, workload: str, text: str) -> str:
    """Where a text first stands in a workload."""
    path = f"workloads/{workload}.toml"
    lines = (project.root / path).read_text().splitlines()
    return f"{path}:{next(n for n, line in enumerate(lines, start=1) if text in line)}"


# --- One run with everything in it ----------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    """`exec` of good, faulty and unreadable workloads, as JSON."""
    project = make_project(tmp_path_factory.mktemp("mixed"))
    project.write("faults", FAULTS)
    project.write("gradients", GRADIENTS)
    project.write("good", HEAD + OURS + TRITON + TORCH)
    project.write("unreadable", HEAD.replace("[select]", "[selct]") + OURS)
    project.write("missing", HEAD + implementation("ours", "kernels/none.py:double"))
    return project, project.run("exec", "workloads", *QUICK, "--format", "json")


def test_a_bad_file_among_good_ones_costs_exit_2_and_no_other_row(
    mixed: tuple[Project, Done],
) -> None:
    project, done = mixed
    assert done.code == 2
    assert done.err.count("error[") == 2
    assert "workloads/unreadable.toml:8:1: error[TB010]: unknown key 'selct'" in done.err
    assert f"{line_of(project, 'missing', 'none.py')}:" in done.err
    assert {outcome["row"]["workload"] for outcome in done.document["outcomes"]} == {
        *("faults", "good", "gradients"),
    }
    assert rows(done, "good", "n64")["ours"]["type"] == "timed"
    assert done.document["complete"]


def test_stdout_is_the_document_and_stderr_the_progress(mixed: tuple[Project, Done]) -> None:
    _, done = mixed
    assert done.out.endswith("}\n")
    assert json.loads(done.out)["schema"] == 1
    progress = [line for line in done.err.splitlines() if line.startswith("[")]
    assert len(progress) == 3, done.err  # one line for each case that ran
    assert "Traceback" not in done.err


def test_the_command_itself_imports_no_heavy_module(mixed: tuple[Project, Done]) -> None:
    assert mixed[1].heavy == ""


def test_right_rows_stand_beside_wrong_ones(mixed: tuple[Project, Done]) -> None:
    _, done = mixed
    found = rows(done, "faults", "n64")
    assert {name: outcome["type"] for name, outcome in found.items()} == {
        "ours": "timed",
        "torch": "timed",
        "wrong": "wrong",
        "zeros": "wrong",
        "off": "wrong",
        "raises": "failed",
        "misfit": "failed",
        "absent": "failed",
    }
    assert found["ours"]["estimate"]["timer"] == "wall"
    assert found["ours"]["estimate"]["midmean_us"] > 0
    assert found["ours"]["rates"]["gbytes_per_s"] > 0


def test_wrong_values_say_how_many_how_far_and_where(mixed: tuple[Project, Done]) -> None:
    found = rows(mixed[1], "faults", "n64")
    assert re.match(r"y: 6[0-4] of 64 elements off by more than rtol", found["wrong"]["reason"])
    assert "all got values are 0" in found["zeros"]["reason"]


def test_a_failure_says_what_python_said_and_the_line_of_the_toml(
    mixed: tuple[Project, Done],
) -> None:
    project, done = mixed
    found = rows(done, "faults", "n64")
    raises, misfit, absent = found["raises"], found["misfit"], found["absent"]
    assert (raises["stage"], raises["reason"]) == ("verify", "RuntimeError: out of registers")
    assert "in raises" in raises["detail"]
    assert raises["place"] == line_of(project, "faults", "[kernels.raises]")
    assert misfit["reason"].startswith("RuntimeError: The size of tensor a (64) must match")
    assert misfit["place"] == line_of(project, "faults", "[kernels.misfit]")
    assert (absent["stage"], absent["reason"]) == (
        "build",
        "ModuleNotFoundError: No module named 'no_such_package'",
    )
    assert absent["place"] == line_of(project, "faults", "[references.absent]")


def test_what_cannot_run_here_says_so(mixed: tuple[Project, Done]) -> None:
    found = rows(mixed[1], "good", "n1048576")
    assert {outcome["type"] for outcome in found.values()} == {"skipped"}
    assert all(outcome["reason"].startswith("no GPU here") for outcome in found.values())


def test_a_triton_kernel_is_verified_in_the_interpreter_and_not_timed(
    mixed: tuple[Project, Done],
) -> None:
    triton = rows(mixed[1], "good", "n64")["triton"]
    assert (triton["type"], triton["verification"]["method"]) == ("verified", "interpreter")
    assert "interpreter" in triton["untimed"]


def test_gradients_are_timed_and_held_against_those_of_the_oracle(
    mixed: tuple[Project, Done],
) -> None:
    ours = rows(mixed[1], "gradients", "n64")["ours"]
    assert ours["type"] == "timed", ours
    assert ours["verification"]["method"] == "oracle"


def test_every_row_that_was_asked_for_is_answered_once(mixed: tuple[Project, Done]) -> None:
    project, done = mixed
    parts = ("workload", "case", "implementation")
    keys = ["/".join(o["row"][part] for part in parts) for o in done.document["outcomes"]]
    assert len(keys) == len(set(keys)) == 8 * 2 + 1 + 3 * 2
    kept = read_run(project.root, "latest")
    assert kept.run.complete
    assert len(kept.run.outcomes) == len(keys)


def test_nothing_that_is_kept_or_printed_names_the_machine(mixed: tuple[Project, Done]) -> None:
    project, done = mixed
    kept = [path for path in (project.root / ".tirbench").rglob("*") if path.is_file()]
    assert len(kept) > 5
    for text in [done.out, done.err, *(path.read_text(encoding="utf-8") for path in kept)]:
        assert str(project.root) not in text
        assert str(Path(sys.prefix)) not in text


def test_a_run_of_an_uncommitted_tree_is_pinned_only_where_that_is_allowed(
    mixed: tuple[Project, Done],
) -> None:
    project, _ = mixed
    refused = project.run("pin")
    assert (refused.code, refused.out) == (2, "")
    assert "commit it, or allow it (--allow-dirty)" in refused.err
    assert not list(project.root.glob("**/baselines"))


# --- What the commands print and answer -----------------------------------------------------------


def test_verify_of_a_good_workload_is_a_table_and_exit_0(project: Project) -> None:
    done = project.run("verify", "workloads", "--format", "markdown")
    assert done.code == 0, done.err
    assert "| n64 " in done.out
    assert "only verified, as asked" in done.out
    assert done.out.startswith("**2 verified · 2 skipped")


def test_a_wrong_kernel_is_exit_1_and_stands_beside_its_line(project: Project) -> None:
    project.write("faults", FAULTS)
    done = project.run("verify", "workloads/faults.toml", "--format", "github")
    assert done.code == 1
    annotations = [line for line in done.out.splitlines() if line.startswith("::")]
    place = line_of(project, "faults", "[kernels.raises]").rpartition(":")
    assert any(
        line.startswith(f"::error file={place[0]},line={place[2]},title=") for line in annotations
    ), annotations
    warnings = [line for line in annotations if line.startswith("::warning")]
    assert any("BASELINE_ERROR" in line and "absent" in line for line in warnings)
    assert not any("/ours" in line for line in annotations)


def test_a_run_that_is_interrupted_keeps_what_it_has_finished(project: Project) -> None:
    project.write("slow", HEAD + OURS + implementation("endless", "kernels/ops.py:endless"))
    files = ("workloads/double.toml", "workloads/slow.toml")
    with project.start("exec", *files, *QUICK) as process:
        try:
            assert process.stderr is not None
            assert "double/n64" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert out == ""
    assert err.lstrip("\n") == "interrupted; what was finished is kept\n"
    kept = read_run(project.root, "latest")
    assert not kept.run.complete
    assert {o.row.implementation for o in kept.run.outcomes if o.row.workload == "double"} == {
        *("ours", "torch"),
    }
    assert any("incomplete" in note for note in kept.notes)


# --- Programs that run by themselves --------------------------------------------------------------


def test_a_compiled_program_prints_its_table_and_says_1_where_a_kernel_is_wrong(
    project: Project,
) -> None:
    project.write("faults", FAULTS)
    compiled = project.run("compile", "workloads/faults.toml", "--select", "smoke")
    assert compiled.out == "build/faults.py\n"
    done = project.run("n64", "--only", "wrong", program=("build/faults.py",))
    assert done.code == 1, done.err
    assert "wrong" in done.out
    assert "of 64 elements off" in done.out
    assert "n64 wrong: verify" in done.err


def test_a_compiled_program_interprets_triton_where_there_is_no_gpu(project: Project) -> None:
    project.write("interpreted", HEAD + TRITON)
    project.run("compile", "workloads/interpreted.toml", "--select", "smoke")
    program = ("build/interpreted.py",)
    assert "import triton.language as tl" in (project.root / program[0]).read_text()
    done = project.run("--device", "cpu", program=program)
    assert done.code == 0, done.err
    assert re.search(r"n64 +triton +interpreter 0\.0 %", done.out)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("n65",), 2, "no case of double matches; it has n64"),
        (("--only", "their"), 2, "no implementation is called their; there are ours, torch"),
        (("--placements", "3"), 2, "unrecognized arguments: --placements"),
    ],
)
def test_a_compiled_program_refuses_what_it_does_not_have(
    project: Project,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # without it the program starts itself again
    path = project.root / "build" / "double.py"
    reading = read(Selection(files=(str(project.root / "workloads"),), select="smoke"))
    pipeline.compile_(reading, path.parent)
    with pytest.raises(SystemExit) as ended:
        standalone.main(open_program(path), ("--device", "cpu", *arguments))  # type: ignore[arg-type]
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (code, "")
    assert message in err


def test_a_compiled_program_launches_alone_for_a_profiler(project: Project) -> None:
    compiled = project.run("compile", "workloads/double.toml", "--select", "smoke")
    assert compiled.code == 0
    ops = project.root / "workloads" / "kernels" / "ops.py"
    head = "def double(x, y):\n"
    ops.write_text(ops.read_text().replace(head, head + "    print('launched')\n"))
    done = project.run("--only", "ours", "--launch", "2", program=("build/double.py",))
    assert (done.code, done.err) == (0, "")
    assert done.out == "launched\nlaunched\n"
