"""What `--help` says of the command line and of each command."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tirbench import __version__, cli


def test_the_help_lists_every_command_once_below_the_job_that_it_is_for() -> None:
    shown = CliRunner().invoke(cli.commands, ["--help"]).output
    for job, entries in cli.JOBS.items():
        section = shown.partition(f"\n{job}:\n")[2].partition("\n\n")[0]
        lines = [line.split(maxsplit=1) for line in section.splitlines()]
        assert lines == [[name, entry.line] for name, entry in entries.items()]
    assert len(cli.MODULES) == sum(map(len, cli.JOBS.values()))


def test_every_module_of_a_command_stands_in_the_table() -> None:
    modules = (Path(cli.__file__).parent / "commands").glob("*.py")
    found = {path.stem for path in modules if "\ndef command(" in path.read_text("utf-8")}
    assert found == set(cli.MODULES)


@pytest.mark.parametrize("name", cli.MODULES)
def test_every_command_explains_itself_and_ends_in_an_example(name: str) -> None:
    runner = CliRunner()
    command = cli.commands.get_command(click.Context(cli.commands), name)
    shown = runner.invoke(cli.commands, [name, "--help"])
    assert shown.exit_code == 0
    assert command is not None
    assert command.name == name
    assert command.help
    assert command.help.splitlines()[0] in " ".join(shown.output.split())
    example = cli.MODULES[name].example
    assert " ".join(shown.output.split()).endswith(f"Example: tirbench {example}")


@pytest.mark.parametrize("name", cli.MODULES)
def test_every_example_is_a_call_that_the_command_takes(name: str) -> None:
    words = shlex.split(cli.MODULES[name].example.partition(" > ")[0])
    assert words[0] == name
    command = cli.commands.get_command(click.Context(cli.commands), name)
    assert command is not None
    command.make_context(name, words[1:])


def test_the_version_is_that_of_the_package() -> None:
    assert __version__ in CliRunner().invoke(cli.commands, ["--version"]).output
