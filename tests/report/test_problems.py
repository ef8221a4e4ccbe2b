"""What is wrong with files, in every form: schemas hold, limits hold, nothing escapes its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tirbench
from tirbench.diagnostics import CODES, Diagnostic
from tirbench.model import Failed, Row
from tirbench.report import terminal
from tirbench.report.problems import render

SCHEMA = json.loads(
    (Path(tirbench.__file__).parent / "schema" / "check.schema.json").read_text(encoding="utf-8")
)
SARIF = json.loads((Path(__file__).parent / "sarif_subset.schema.json").read_text(encoding="utf-8"))
EVIL = "bad\x1b[31m|<b>`@you`\u202e\n::error::x```%,:\x9b"

ERROR = Diagnostic(
    code="TB010",
    file="workloads/a b.toml",
    path=("tensors", "x", 0),
    message="unknown key 'dtyp'",
    hint="did you mean 'dtype'?",
    line=3,
    column=7,
    length=4,
    text='x = { dtyp = "float32" }',
)
WARNING = Diagnostic(
    severity="warning", code="TB007", file="workloads/b.toml", message="no schema", text="#"
)
HOSTILE = Diagnostic(
    code="TB021", file=EVIL, path=(EVIL,), message=EVIL, hint=EVIL, line=1, column=2, text=EVIL
)


def shown(*problems: Diagnostic, form: str) -> str:
    return render(problems, form, workloads=2, cases=7)


def test_people_read_place_line_caret_and_remedy() -> None:
    assert shown(ERROR, WARNING, form="text") == (
        "workloads/a b.toml:3:7: error[TB010]: unknown key 'dtyp'\n"
        "  |\n"
        '3 | x = { dtyp = "float32" }\n'
        "  |       ^^^^\n"
        "help: did you mean 'dtype'?\n"
        "\n"
        "workloads/b.toml:1:1: warning[TB007]: no schema\n"
        "  |\n"
        "1 | #\n"
        "  | ^\n"
        "\n"
        "1 problem; 1 warning; 2 workloads with 7 cases checked\n"
    )


@pytest.mark.parametrize("problems", [(), (ERROR,), (ERROR, WARNING, HOSTILE)])
def test_the_json_form_is_that_of_its_schema(problems: tuple[Diagnostic, ...]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    data = json.loads(shown(*problems, form="json"))
    jsonschema.validate(data, SCHEMA)
    assert len(data["problems"]) == len(problems)


def test_the_schema_of_the_json_form_has_the_fields_of_a_diagnostic() -> None:
    problem = SCHEMA["$defs"]["problem"]
    fields = list(Diagnostic.__dataclass_fields__)
    assert sorted(problem["properties"]) == sorted(problem["required"]) == sorted(fields)


@pytest.mark.parametrize("problems", [(), (ERROR,), (ERROR, WARNING, HOSTILE)])
def test_the_sarif_form_is_sarif(problems: tuple[Diagnostic, ...]) -> None:
    """The subset holds every object that is written, with all that the standard says of it."""
    jsonschema.Draft7Validator.check_schema(SARIF)
    log = json.loads(shown(*problems, form="sarif"))
    validator = jsonschema.Draft7Validator(SARIF, format_checker=jsonschema.FormatChecker())
    validator.validate(log)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [
        result["ruleId"] for result in run["results"]
    ]


def test_sarif_places_a_problem_and_explains_its_code() -> None:
    log = json.loads(shown(ERROR, form="sarif"))
    (run,) = log["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "workloads/a%20b.toml", "uriBaseId": "ROOT"}
    region = place["region"]
    assert (region["startLine"], region["startColumn"], region["endColumn"]) == (3, 7, 11)
    (rule,) = run["tool"]["driver"]["rules"]
    assert (rule["id"], rule["shortDescription"]["text"]) == ("TB010", CODES["TB010"])
    assert "Wrong:" in rule["help"]["text"]


def test_sarif_counts_what_code_hosts_would_drop() -> None:
    log = json.loads(shown(*[ERROR] * 5_003, form="sarif"))
    (run,) = log["runs"]
    assert len(run["results"]) == 5_000
    (notice,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notice["message"]["text"] == "3 more problems; a run holds 5,000"


def test_github_shows_ten_of_a_kind_and_the_last_counts_the_rest() -> None:
    lines = shown(*[ERROR] * 25, *[WARNING] * 3, form="github").splitlines()
    errors = [line for line in lines if line.startswith("::error")]
    assert len(errors) == 10
    assert errors[0] == (
        "::error file=workloads/a b.toml,line=3,col=7,title=TB010,endColumn=11"
        "::unknown key 'dtyp'. did you mean 'dtype'?"
    )
    assert errors[-1] == "::error::16 more problems in the summary"
    assert sum(line.startswith("::warning") for line in lines) == 3
    assert lines[-1] == "25 problems; 3 warnings; 2 workloads with 7 cases checked"


@pytest.mark.parametrize("form", ["text", "markdown", "json", "github", "sarif"])
def test_no_name_drives_a_terminal_or_a_runner(form: str) -> None:
    text = shown(HOSTILE, form=form)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    commands = [line for line in text.splitlines() if line.startswith("::")]
    assert len(commands) == (1 if form == "github" else 0)


def test_no_text_ends_the_fence_of_the_markdown_form() -> None:
    lines = shown(HOSTILE, form="markdown").splitlines()
    fence = lines[0]
    assert set(fence) == {"`"}
    assert len(fence) > 3
    assert [n for n, line in enumerate(lines) if line == fence] == [0, len(lines) - 3]
    assert not any(fence in line for line in lines[1:-3])


def test_files_that_are_right_are_counted_in_every_form() -> None:
    for form in ("text", "markdown", "github"):
        assert shown(form=form) == "2 workloads with 7 cases checked\n"
    data: dict[str, Any] = json.loads(shown(form="json"))
    assert data == {"schema": 1, "problems": [], "workloads": 2, "cases": 7}


def test_a_failure_names_the_line_of_the_toml_then_that_of_the_harness() -> None:
    trace = "".join(f'  File "lib.py", line {n}, in f\n' for n in range(30))
    row = Row(workload="w", case="n1", implementation="ours", role="kernel")
    failed = Failed(
        row=row,
        stage="build",
        reason="ValueError: no",
        detail=f'  File "/home/x/.tirbench/runs/1/harness/w.py", line 37, in build\n{trace}ValueError: no',
        place="workloads/w.toml:12",
    )
    lines = terminal.table([failed]).splitlines()
    at = next(n for n, line in enumerate(lines) if "asked for at workloads/w.toml:12" in line)
    assert lines[at + 1] == "  harness at harness/w.py:37"
    assert not any("lib.py" in line and "line 0," in line for line in lines)
