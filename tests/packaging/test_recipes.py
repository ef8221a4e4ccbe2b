"""The recipes of docs/ci.md: every command that they show is one, with the options it is shown with."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import click
import pytest

from tirbench.cli import commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
SHOWN = sorted(
    {
        line.partition("#")[0].partition(" > ")[0].strip()
        for line in re.findall(r"(?m)^ *(?:- run: )?(tirbench .*)$", PAGE)
    }
    | set(re.findall(r"`(tirbench [^`]+)`", PAGE))
)


def test_the_page_shows_commands() -> None:
    assert len(SHOWN) >= 8


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_that_is_shown_is_one(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    command = commands.get_command(click.Context(commands), name)
    assert command is not None, name
    known = {option: one for one in command.params for option in one.opts + one.secondary_opts}
    for word in arguments:
        if word.startswith("-"):
            assert word in known, f"{name} has no {word}"
    values = dict(pairwise(arguments))
    for option, value in values.items():
        choices = getattr(getattr(known.get(option), "type", None), "choices", None)
        assert choices is None or value in choices, (option, value)


def test_inputs_and_outputs_of_the_action_are_those_that_it_has() -> None:
    action = (ROOT / "action.yml").read_text(encoding="utf-8")
    has = set(re.findall(r"(?m)^  ([a-z-]+):$", action.partition("runs:")[0]))
    (given,) = re.findall(r"uses: OWNER/tirbench@VERSION\n +with: \{ (.*) \}", PAGE)
    asked = set(re.findall(r"(\w+): ", given)) | set(
        re.findall(r"steps\.tirbench\.outputs\.(\w+)", PAGE)
    )
    assert asked <= has, asked - has


def test_hooks_that_the_page_names_are_there() -> None:
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    named = re.findall(r"- id: (tirbench-\w+)", PAGE)
    assert named == re.findall(r"- id: (tirbench-\w+)", hooks)


def test_the_job_that_compiles_has_no_permission_and_keeps_no_credentials() -> None:
    job = PAGE.partition("  compile:\n")[2].partition("  compare:\n")[0]
    assert "permissions: {}" in job
    assert "persist-credentials: false" in job
