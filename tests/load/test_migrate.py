"""Files of older versions are refused with what to do, and rewritten with comments and order.

Version 1 is the first that was published. What stands for version 0 here was never one: it shows what an
entry of the registry looks like, and that the way around it works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tirbench.commands import migrate as commands_migrate
from tirbench.errors import InputError, UsageError
from tirbench.load import VERSION, load, read
from tirbench.load import migrate as module
from tirbench.load.migrate import MIGRATIONS, Table, migrate, rename, tables

Golden = Callable[[Path, str], None]

FOLDER = Path(__file__).parent / "migrate"
OLD = (FOLDER / "version_0.toml").read_text(encoding="utf-8")


def from_0(document: Table) -> None:
    """What a version calls `shape` and `target` was called otherwise before it."""
    for tensor in tables(document, "tensors", "*"):
        rename(tensor, "dims", "shape")
    for launches in (("kernels", "*"), ("kernels", "*", "steps", "*"), ("check", "oracle")):
        for launch in tables(document, *launches):
            rename(launch, "function", "target")


@pytest.fixture
def version_0(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (module, read):
        monkeypatch.setattr(where, "MIGRATIONS", {0: from_0})


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands_migrate.command, arguments, standalone_mode=False)


def test_a_migrated_file_keeps_its_comments_and_its_order(golden: Golden, tmp_path: Path) -> None:
    text = migrate("old.toml", OLD, {0: from_0})
    golden(FOLDER / "version_1.toml", text)
    expected = OLD.replace("dims", "shape").replace("function", "target")
    assert text == expected.replace("schema = 0 ", "schema = 1 ")
    (tmp_path / "w.toml").write_text(text, encoding="utf-8")
    assert [kernel.name for kernel in load(tmp_path / "w.toml").kernels] == ["torch", "two"]


def test_versions_are_migrated_one_after_the_other() -> None:
    def to_1(document: Table) -> None:
        rename(document, "a", "b")

    def to_2(document: Table) -> None:
        rename(document, "b", "c")

    text = "schema = 0\n# one\na = 1 # two\n"
    assert migrate("w", text, {0: to_1, 1: to_2}, to=2) == "schema = 2\n# one\nc = 1 # two\n"


def test_every_older_version_since_the_oldest_can_be_migrated() -> None:
    assert sorted(MIGRATIONS) == list(range(min(MIGRATIONS, default=VERSION), VERSION))


def test_a_name_that_is_taken_is_not_overwritten() -> None:
    def both(document: Table) -> None:
        rename(document, "a", "b")

    with pytest.raises(ValueError, match="b stands beside a"):
        migrate("w", "schema = 0\na = 1\nb = 2\n", {0: both}, to=1)


@pytest.mark.usefixtures("version_0")
def test_an_older_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "old.toml"
    path.write_text(OLD, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value) == (
        "old.toml:2:10: error[TB005]: version 0 of the language is older than 1, the one read here\n"
        "  |\n"
        "2 | schema = 0   # of the language\n"
        "  |          ^\n"
        "help: tirbench migrate old.toml rewrites the file; --diff shows how"
    )


@pytest.mark.usefixtures("version_0")
def test_the_command_rewrites_files_of_older_versions_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.toml").write_text(OLD, encoding="utf-8")
    (tmp_path / "new.toml").write_text("schema = 1\n", encoding="utf-8")
    result = run("*.toml")
    assert result.exit_code == 0, result.output
    new = (FOLDER / "version_1.toml").read_text(encoding="utf-8")
    assert (tmp_path / "old.toml").read_text(encoding="utf-8") == new
    assert (tmp_path / "new.toml").read_text(encoding="utf-8") == "schema = 1\n"
    assert result.output == ("new.toml: of version 1 already\nold.toml: rewritten for version 1\n")
    assert run("old.toml").output == "old.toml: of version 1 already\n"


@pytest.mark.usefixtures("version_0")
def test_diff_shows_what_would_change_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.toml").write_text(OLD, encoding="utf-8")
    lines = run("--diff", "old.toml").output.splitlines()
    assert lines[:2] == ["--- old.toml", "+++ old.toml"]
    assert "-schema = 0   # of the language" in lines
    assert "+schema = 1   # of the language" in lines
    assert (tmp_path / "old.toml").read_text(encoding="utf-8") == OLD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = 2\n", "version 2 of the language is newer than 1, the newest read here"),
        ("schema = 0\n", "version 0 of the language does not exist"),
        ("schema = 'one'\n", "no version of the language"),
        ("x = 1\n", "no version of the language"),
        ("x = \n", "not TOML: a value is missing"),
    ],
)
def test_a_file_of_a_version_that_nothing_is_known_of_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        migrate("w.toml", text)
    (diagnostic,) = caught.value.diagnostics
    assert getattr(diagnostic, "message", "") == message


@pytest.mark.usefixtures("version_0")
def test_faults_of_some_files_keep_no_other_from_being_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text("schema = 7\n", encoding="utf-8")
    (tmp_path / "old.toml").write_text(OLD, encoding="utf-8")
    assert isinstance(run("a.toml", "old.toml").exception, InputError)
    assert "schema = 1" in (tmp_path / "old.toml").read_text(encoding="utf-8")


def test_without_tomlkit_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    with pytest.raises(UsageError, match=r"pip install 'tirbench\[migrate\]'"):
        migrate("w", OLD, {0: from_0})
    assert migrate("w", "schema = 1\n") == "schema = 1\n"


def test_the_command_is_one_of_click() -> None:
    assert isinstance(commands_migrate.command, click.Command)
