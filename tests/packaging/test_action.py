"""The GitHub Action and the hooks: what they call is there, and no input becomes part of a script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACTION = (ROOT / "action.yml").read_text(encoding="utf-8")


def scripts() -> list[str]:
    """The text of every `run:` of the action, by its indentation."""
    found = []
    lines = ACTION.splitlines()
    for index, line in enumerate(lines):
        match = re.match(r"( +)run: (.*)$", line)
        if match is None:
            continue
        block = [match[2]]
        for later in lines[index + 1 :]:
            if later.strip() and len(later) - len(later.lstrip()) <= len(match[1]):
                break
            block.append(later)
        found.append("\n".join(block))
    return found


def test_every_step_is_a_script_of_the_action() -> None:
    assert len(scripts()) == ACTION.count("- name:") == 4
    assert "uses:" not in ACTION


@pytest.mark.parametrize("script", scripts())
def test_no_input_becomes_text_of_a_script(script: str) -> None:
    assert "${{" not in script


@pytest.mark.parametrize("name", ["diff", "check"])
def test_what_the_action_and_the_hooks_call_is_a_command(name: str) -> None:
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert f"tirbench {name}" in ACTION + hooks


def test_the_marker_of_the_comment_is_the_one_that_the_report_writes() -> None:
    from tirbench.report.diffs import MARKER

    assert f'startswith("{MARKER}")' in ACTION


def test_formats_that_the_action_asks_for_are_there() -> None:
    from tirbench.commands.diff import command

    (form,) = (one for one in command.params if one.name == "form")
    asked = set(re.findall(r"--format (\w+)", ACTION))
    assert asked <= set(form.type.choices)  # type: ignore[attr-defined]
