"""The GitHub Action and the hooks, as far as a machine that is not GitHub's can run them.

The steps of the action are run in their order by bash as a runner starts it, with the variables that GitHub
sets, in a repository made by the tests; pip and gh are stand-ins that note how they are called.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import pytest

from tests.diff.conftest import Project
from tirbench.report.diffs import MARKER

ROOT = Path(__file__).parents[2]
ACTION = (ROOT / "action.yml").read_text(encoding="utf-8")
RUNNER = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""How a runner starts `shell: bash`."""


@dataclass
class Step:
    """One step as it is written."""

    name: str = ""
    id: str = ""
    condition: str = ""
    run: str = ""
    env: dict[str, str] = field(default_factory=dict)


def steps() -> list[Step]:
    """The steps of the action: no YAML is needed for what it is written in, and none is installed."""
    found: list[Step] = []
    lines = ACTION.partition("  steps:\n")[2].splitlines()
    for index, line in enumerate(lines):
        match = re.match(r"    [- ] (\w+): ?(.*)$", line)
        if match is None:
            continue
        key, value = match.groups()
        block = indented(lines[index + 1 :])
        if key == "name":
            found.append(Step(name=value))
        elif key == "run":
            found[-1].run = "\n".join(block) if value == "|" else value
        elif key == "env":
            found[-1].env = dict(one.split(": ", 1) for one in block)
        elif key == "if":
            found[-1].condition = value
        elif key == "id":
            found[-1].id = value
    return found


def indented(lines: list[str]) -> list[str]:
    """The block that begins here."""
    inside = takewhile(lambda one: not one.strip() or one.startswith(" " * 8), lines)
    return [one[8:] for one in inside]


STEPS = steps()


def test_the_action_is_read_whole() -> None:
    assert [one.name for one in STEPS] == ["Install", "Compare", "Comment", "Verdict"]
    assert ACTION.count("shell: bash") == len(STEPS)
    assert all(one.run and one.env for one in STEPS)
    assert "uses:" not in ACTION


@pytest.mark.parametrize("step", STEPS, ids=lambda one: one.name)
def test_every_script_is_bash_and_no_input_becomes_text_of_it(step: Step) -> None:
    assert "${{" not in step.run
    done = subprocess.run(
        ["bash", "-n"],  # noqa: S607 - bash of the machine
        input=step.run,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["diff", "check"])
def test_what_the_action_and_the_hooks_call_is_a_command(name: str) -> None:
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert f"tirbench {name}" in ACTION + hooks


def test_the_marker_of_the_comment_is_the_one_that_the_report_writes() -> None:
    assert f'startswith("{MARKER}")' in ACTION


def test_formats_that_the_action_asks_for_are_there() -> None:
    from tirbench.commands.diff import command

    (form,) = (one for one in command.params if one.name == "form")
    asked = set(re.findall(r"--format (\w+)", ACTION))
    assert asked <= set(form.type.choices)  # type: ignore[attr-defined]


# --- Run ------------------------------------------------------------------------------------------

STAND_IN = """\
#!/bin/bash
printf '%s\\n' "$*" >> "$CALLS"
"""

PYTHON = f"""\
#!/bin/bash
if [ "$1 $2" = "-m pip" ]; then printf 'pip %s\\n' "$*" >> "$CALLS"; exit 0; fi
exec {sys.executable} "$@"
"""

TIRBENCH = f"""\
#!/bin/bash
exec {sys.executable} -m tirbench "$@"
"""


class Runner:
    """Runs the steps of the action in a project, one after the other, until one fails."""

    def __init__(self, project: Project, scratch: Path) -> None:
        self.project = project
        self.scratch = scratch
        self.bin = scratch / "bin"
        self.bin.mkdir()
        self.calls = scratch / "calls"
        self.comments = ""
        for name in ("outputs", "summary.md"):
            (scratch / name).touch()
        (scratch / "temp").mkdir()
        for name, text in (("python", PYTHON), ("tirbench", TIRBENCH), ("gh", STAND_IN)):
            self.program(name, text)

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, **inputs: str) -> dict[str, int]:
        """Exit codes by step; a step after one that failed is not run."""
        values = {
            "inputs.base": "main",
            "inputs.facts": "",
            "inputs.gate": "false",
            "inputs.comment": "false",
            "inputs.token": "secret",
            "github.action_path": "/action",
            "github.event.pull_request.number": "7",
            **{f"inputs.{name}": value for name, value in inputs.items()},
        }
        codes: dict[str, int] = {}
        for step in STEPS:
            if step.condition and values["inputs.comment"] != "true":
                continue
            codes[step.name] = self._step(step, values)
            if codes[step.name]:
                break
            for name, value in self.outputs.items():
                values[f"steps.{step.id}.outputs.{name}"] = value
        return codes

    def _step(self, step: Step, values: Mapping[str, str]) -> int:
        script = self.scratch / "script.sh"
        script.write_text(step.run)
        own = {name: filled(text, values) for name, text in step.env.items()}
        done = subprocess.run(
            [*RUNNER, str(script)],
            cwd=self.project.root,
            env={
                "PATH": f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin",
                "PYTHONPATH": str(ROOT),
                "CALLS": str(self.calls),
                "GITHUB_OUTPUT": str(self.scratch / "outputs"),
                "GITHUB_STEP_SUMMARY": str(self.scratch / "summary.md"),
                "GITHUB_REPOSITORY": "owner/project",
                "RUNNER_TEMP": str(self.scratch / "temp"),
                **own,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.said = done.stdout
        self.complained = done.stderr
        return done.returncode

    @property
    def outputs(self) -> dict[str, str]:
        lines = (self.scratch / "outputs").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def summary(self) -> str:
        return (self.scratch / "summary.md").read_text()


def filled(text: str, values: Mapping[str, str]) -> str:
    """A value of `env:` with its expression evaluated; one that is unknown fails the test."""
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: values[match[1]], text)


@pytest.fixture
def runner(project: Project, tmp_path: Path) -> Runner:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    project.git("checkout", "--quiet", "-b", "work")
    scratch = tmp_path / "runner"
    scratch.mkdir()
    return Runner(project, scratch)


def test_a_branch_that_changes_nothing_passes(runner: Runner) -> None:
    assert runner.run() == {"Install": 0, "Compare": 0, "Verdict": 0}
    assert runner.outputs == {
        "exit": "0",
        "verdict": "9 of 9 rows unchanged",
        "measure": "0",
    }
    assert runner.calls.read_text().startswith("pip -m pip install --quiet --extra-index-url ")


def test_a_branch_that_weakens_fails_with_annotations_a_summary_and_a_comment(
    runner: Runner,
) -> None:
    runner.project.replace("rtol = 1e-4", "rtol = 1e-3")
    runner.project.commit("looser")
    codes = runner.run(comment="true")
    assert codes == {"Install": 0, "Compare": 0, "Comment": 0, "Verdict": 1}
    assert runner.outputs["verdict"].startswith("1 weakening without a reason")
    assert runner.summary.startswith(f"{MARKER}\n### ❌ 1 weakening without a reason")
    comment = (runner.scratch / "temp/tirbench-diff.md").read_text()
    assert comment == runner.summary  # both fit whole
    listed, posted = runner.calls.read_text().splitlines()[1:]
    assert listed.startswith("api --paginate repos/owner/project/issues/7/comments --jq ")
    assert posted.startswith("api --silent --method POST repos/owner/project/issues/7/comments ")


def test_annotations_are_printed_where_the_runner_looks_for_them(runner: Runner) -> None:
    runner.project.replace("rtol = 1e-4", "rtol = 1e-3")
    runner.project.commit("looser")
    values = {"inputs.base": "main", "inputs.facts": "", "inputs.gate": "false"}
    assert runner._step(STEPS[1], values) == 0
    commands = [line for line in runner.said.splitlines() if line.lstrip().startswith("::")]
    assert len(commands) == 1
    text = (runner.project.root / "workloads/double.toml").read_text().splitlines()
    line = text.index("rtol = 1e-3") + 1
    assert commands[0].startswith(f"::error file=workloads/double.toml,line={line},")


def test_the_comment_of_before_is_edited_and_not_followed_by_another(runner: Runner) -> None:
    runner.program("gh", STAND_IN + 'if [ "$2" = --paginate ]; then printf "41\\n42\\n"; fi\n')
    runner.run(comment="true")
    edited = runner.calls.read_text().splitlines()[-1]
    assert edited.startswith("api --silent --method PATCH repos/owner/project/issues/comments/41 ")
    assert "body=@" in edited


def test_the_gate_asks_for_measurement_where_code_changed(runner: Runner) -> None:
    runner.project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", "workloads/kernels/ops.py")
    runner.project.commit("faster")
    assert runner.run()["Verdict"] == 0
    assert runner.outputs["measure"] == "6"
    (runner.scratch / "outputs").write_text("")
    assert runner.run(gate="true")["Verdict"] == 3


def test_a_base_that_is_no_revision_is_an_error_and_no_silence(runner: Runner) -> None:
    assert runner.run(base="origin/nowhere")["Verdict"] == 2
    assert runner.outputs["verdict"] == "not compared"
    assert "no revision of this repository" in runner.complained or runner.outputs["exit"] == "2"


def test_what_was_handed_over_is_read(runner: Runner) -> None:
    runner.project.write("../facts.json", json.dumps({"schema": 1}))
    assert runner.run(facts=str(runner.project.root.parent / "facts.json"))["Verdict"] == 2


def test_a_hostile_name_of_a_base_is_only_ever_an_argument(runner: Runner) -> None:
    hostile = '$(touch pwned)"; touch pwned; "'
    assert runner.run(base=hostile)["Verdict"] == 2
    assert not list(runner.project.root.rglob("pwned"))


# --- Hooks ----------------------------------------------------------------------------------------


def hooks() -> dict[str, dict[str, str]]:
    """What `.pre-commit-hooks.yaml` says, by id."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = {}
    for block in re.split(r"(?m)^- ", text)[1:]:
        pairs = dict(re.findall(r"(?m)^ *(\w+): (.+)$", block))
        found[pairs["id"]] = pairs
    return found


def test_hooks_name_what_they_run_and_on_which_files() -> None:
    assert set(hooks()) == {"tirbench-check", "tirbench-diff"}
    files = re.compile(hooks()["tirbench-check"]["files"])
    assert files.search("workloads/rmsnorm.toml")
    assert not files.search("workloads/baselines/nvidia-h200/rmsnorm.toml")


def run_hook(runner: Runner, name: str, *files: str) -> subprocess.CompletedProcess[str]:
    """A hook as pre-commit runs one of `language: system`: its entry, with the files behind it."""
    hook = hooks()[name]
    assert hook["language"] == "system"
    given = () if hook.get("pass_filenames") == "false" else files
    return subprocess.run(
        [*hook["entry"].split(), *given],
        cwd=runner.project.root,
        env={"PATH": f"{runner.bin}{os.pathsep}/usr/bin{os.pathsep}/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_hook_before_a_commit_checks_the_files_that_are_committed(runner: Runner) -> None:
    assert run_hook(runner, "tirbench-check", "workloads/double.toml").returncode == 0
    runner.project.replace("[matrix]", "[matrixx]")
    found = run_hook(runner, "tirbench-check", "workloads/double.toml")
    assert found.returncode == 2
    assert "did you mean matrix" in found.stdout.replace("'", "")


def test_the_hook_before_a_push_compares_with_what_the_remote_has(
    runner: Runner, tmp_path: Path
) -> None:
    remote = tmp_path / "remote"
    subprocess.run(
        ["git", "clone", "--quiet", "--bare", str(runner.project.root), str(remote)],  # noqa: S607
        check=True,
        capture_output=True,
    )
    runner.project.git("remote", "add", "origin", str(remote))
    runner.project.git("fetch", "--quiet", "origin")
    runner.project.git("remote", "set-head", "origin", "main")
    assert run_hook(runner, "tirbench-diff").returncode == 0
    runner.project.replace("rtol = 1e-4", "rtol = 1e-3")
    found = run_hook(runner, "tirbench-diff")
    assert found.returncode == 1
    assert found.stdout.startswith("1 weakening without a reason")
