"""Commands that read and never run: check, list, show, compile; and what the command line refuses."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tirbench import cli
from tirbench.commands import shared
from tirbench.load.read import _lenient_parser
from tirbench.model import TIMERS

from .conftest import HEAD, OURS, START, TORCH, Project, Tirbench, implementation

READING = (
    ("--help",),
    ("--version",),
    ("check", "workloads"),
    ("list", "workloads"),
    ("list", "--json", "workloads"),
    ("show", "workloads"),
    ("compile", "workloads"),
    ("schema",),
)

BAD = {
    "misspelt": HEAD.replace("[select]", "[selct]") + OURS,
    "dtype": HEAD.replace('"float32"', '"float23"') + OURS,
    "misfit": HEAD + implementation("ours", "kernels/ops.py:double").replace('"y"]', '"y", 3]'),
    "absent": HEAD + implementation("ours", "kernels/opps.py:double"),
    "nameless": HEAD + implementation("ours", "kernels/ops.py:duoble"),
}
"""Workloads that are wrong before anything runs, by the name of their file."""

MESSAGES = {
    "misspelt": ("workloads/misspelt.toml:8:1: error[", "selct", "did you mean 'select'?"),
    "dtype": ("workloads/dtype.toml:13:31: error[", "float23", "did you mean 'float32'?"),
    "misfit": ("workloads/misfit.toml:", "error[", "3"),
    "absent": ("workloads/absent.toml:25:10: error[", "kernels/opps.py", "kernels/ops.py"),
    "nameless": ("workloads/nameless.toml:25:10: error[", "duoble", "double"),
}


# --- What reading gives ---------------------------------------------------------------------------


def test_the_timers_of_the_command_line_are_those_of_the_model() -> None:
    assert shared.TIMERS == TIMERS


def test_check_counts_what_is_right(tirbench: Tirbench) -> None:
    done = tirbench("check", "workloads")
    assert (done.code, done.out, done.err) == (0, "1 workload with 2 cases checked\n", "")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_gives_its_place_its_fault_and_a_remedy(
    project: Project, tirbench: Tirbench, name: str
) -> None:
    project.write(name, BAD[name])
    done = tirbench("check", f"workloads/{name}.toml")
    assert done.code == 2
    assert done.err == ""
    assert done.out.count("error[") == 1, done.out
    for part in MESSAGES[name]:
        assert part in done.out
    assert str(project.root) not in done.out


def test_bad_files_do_not_hide_good_ones_nor_each_other(
    project: Project, tirbench: Tirbench
) -> None:
    for name, text in BAD.items():
        project.write(name, text)
    checked = tirbench("check", "workloads")
    assert checked.code == 2
    assert checked.out.count("error[") == len(BAD)
    assert checked.out.endswith(f"{len(BAD)} problems; 1 workload with 2 cases checked\n")
    listed = tirbench("list", "workloads")
    assert (listed.code, listed.out) == (2, "double/n1048576  [default]\n")
    assert listed.err.count("error[") == len(BAD)
    compiled = tirbench("compile", "workloads")
    assert (compiled.code, compiled.out) == (2, "build/double.py\n")


def test_check_writes_json_for_programs(project: Project, tirbench: Tirbench) -> None:
    project.write("misspelt", BAD["misspelt"])
    done = tirbench("check", "workloads", "--format", "json")
    assert done.code == 2
    (problem,) = done.document["problems"]
    assert (problem["file"], problem["line"]) == ("workloads/misspelt.toml", 8)
    assert (done.document["workloads"], done.document["cases"]) == (1, 2)


def test_check_annotates_pull_requests(project: Project, tirbench: Tirbench) -> None:
    project.write("dtype", BAD["dtype"])
    done = tirbench("check", "workloads", "--format", "github")
    assert done.code == 2
    assert done.out.startswith("::error file=workloads/dtype.toml,line=13,col=31,title=TB")


def test_list_says_ids_line_by_line_or_as_json(tirbench: Tirbench) -> None:
    assert tirbench("list", "workloads").out == "double/n1048576  [default]\n"
    both = tirbench("list", "workloads", "--select", "all").out.splitlines()
    assert [line.split() for line in both] == [
        ["double/n64", "[cpu,", "smoke]"],
        ["double/n1048576", "[default]"],
    ]
    done = tirbench("list", "--json", "workloads/double.toml::n6*")
    (listed,) = json.loads(done.out)
    assert listed["id"] == "n64"


def test_show_reads_as_the_expanded_workload(tirbench: Tirbench) -> None:
    done = tirbench("show", "workloads")
    assert done.code == 0
    assert "double/n1048576" in done.out
    assert "kernels/ops.py:double(x, y)" in done.out
    assert "8.0 MiB" in done.out or "8388608" in done.out


def test_compile_writes_one_program_a_workload_where_it_is_told(
    project: Project, tirbench: Tirbench
) -> None:
    done = tirbench("compile", "workloads", "--select", "all", "-o", "out/programs")
    assert (done.code, done.out) == (0, "out/programs/double.py\n")
    text = (project.root / "out" / "programs" / "double.py").read_text()
    assert "@program.case('n64'" in text
    ast.parse(text)
    assert str(project.root) not in text


@pytest.mark.parametrize("name", ["copy", "torch"])
def test_no_program_is_written_that_would_hide_a_module_from_those_beside_it(
    project: Project, tirbench: Tirbench, name: str
) -> None:
    project.write(name, HEAD + OURS)
    done = tirbench("compile", "workloads")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: workloads/{name}.toml: build/{name}.py would hide")
    assert not (project.root / "build").exists()


def test_the_schema_is_printed_as_it_is_shipped(tirbench: Tirbench) -> None:
    done = tirbench("schema")
    shipped = Path(cli.__file__).parent / "schema" / "workload.schema.json"
    assert (done.code, done.out) == (0, shipped.read_text(encoding="utf-8"))
    json.loads(done.out)


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_imports_no_heavy_module(project: Project, arguments: tuple[str, ...]) -> None:
    done = project.run(*arguments)
    assert done.code == 0, done.err
    assert done.heavy == ""
    assert done.err == ""


NEEDLESS = (
    *("ctypes", "difflib", "hashlib", "jinja2", "jsonschema", "pickle", "rich"),
    *("tirbench.model.measured", "tirbench.model.judged", "tirbench.launch.resources"),
    *("tirbench.pipeline", "tirbench.render", "tirbench.store"),
    *(() if _lenient_parser() else ("tirbench.diagnostics.positions",)),
)
"""What takes a millisecond or more to import; nobody needs it to say that a file is right.

A parser that accepts TOML 1.1 as well, the only one before Python 3.11, has every file scanned for it.
"""


def test_check_of_what_is_right_imports_nothing_needless(project: Project) -> None:
    program = START.replace('{"torch", "triton", "numpy"}', repr({*NEEDLESS}))
    done = project.run("check", "workloads", program=("-c", program))
    assert (done.code, done.heavy) == (0, "")
    assert project.run("schema", program=("-c", program)).heavy == ""


def test_the_help_imports_no_command(project: Project) -> None:
    commands = {f"tirbench.commands.{name}" for name in (*cli.MODULES, "shared")}
    program = START.replace('{"torch", "triton", "numpy"}', repr(commands))
    done = project.run("--help", program=("-c", program))
    assert (done.code, done.heavy) == (0, "")


def test_reading_runs_nothing_that_a_workload_names(project: Project, tirbench: Tirbench) -> None:
    ops = project.root / "workloads" / "kernels" / "ops.py"
    ops.write_text('raise SystemExit("imported")\n' + ops.read_text())
    for arguments in READING:
        assert tirbench(*arguments).code == 0, arguments


# --- What the command line refuses ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("chekc", "workloads"), "No such command 'chekc'"),
        (("check",), "Missing argument 'FILES...'"),
        (("check", "workloads/dobule.toml"), "error: workloads/dobule.toml: no such workload file"),
        (("list", "workloads", "--selcet", "all"), "Did you mean '--select'?"),
        (("list", "workloads", "--select", "smok"), "did you mean smoke?"),
        (("list", "workloads/double.toml::n65"), "did you mean n64?"),
        (("list", "workloads", "-k", "duoble"), "error: -k duoble: no selected case matches"),
        (("exec", "workloads", "--timer", "stopwatch"), "'stopwatch' is not one of"),
        (("exec", "workloads", "--placements", "0"), "0 is not in the range"),
        (("pin", "20250101"), "error: run '20250101' is not kept here; the latest are: none"),
        (("pin",), "error: no run is kept here yet; `tirbench exec` makes one"),
        (("exec", "workloads", "--pin"), "error: nothing to pin against: no commit holds this"),
    ],
)
def test_a_command_that_cannot_be_is_refused_with_one_message(
    tirbench: Tirbench, arguments: tuple[str, ...], message: str
) -> None:
    done = tirbench(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", ["exec", "verify"])
def test_a_device_that_is_not_there_is_no_fault_of_the_workload(
    tirbench: Tirbench, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("tirbench.execute.has_cuda", lambda: False)
    for option in ("--require", "--device"):
        done = tirbench(command, "workloads", option, "cuda")
        assert (done.code, done.out) == (3, "")
        assert done.err == (
            "error: no CUDA device here: --device cpu verifies and times what a CPU can\n"
        )


def test_workloads_of_two_projects_are_not_mixed(
    project: Project, tirbench: Tirbench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "pyproject.toml").touch()
    file = other / "double.toml"
    file.write_text((project.root / "workloads" / "double.toml").read_text())
    done = tirbench("check", "workloads", str(file))
    assert done.code == 2
    assert done.err == "error: name at least one workload, and workloads of one project only\n"


def test_a_pipe_that_is_closed_early_is_no_error(project: Project) -> None:
    sizes = str([*range(1, 3000)])
    head = HEAD.replace("[64, 1048576]", sizes).replace('"n1048576"', '"n*"').replace("n64", "n1")
    project.write("many", head + OURS + TORCH)
    with project.start("list", "workloads/many.toml") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().split() == ["many/n1", "[cpu,", "default,", "smoke]"]
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
