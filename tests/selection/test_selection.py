"""FILES, `-k` and `--select`: what is named is chosen, and what names nothing is an error that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirbench.errors import UsageError
from tirbench.expand import expand
from tirbench.load import load
from tirbench.selection import Chosen, Selection, choose, paths

pytestmark = pytest.mark.usefixtures("folder")

TEXT = """\
schema = 1
description = "A copy"
id = "n{n}_{kind}"
[matrix]
n = [1, 64, 4096]
kind = ["even", "odd"]
[select]
default = ["n64_*"]
smoke = ["n1_even"]
cpu = ["n4096_even"]
LISTS
[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }
[kernels.copy]
target = "torch.clone"
args = ["x if kind == 'even' else x"]
returns = "y"
[check.oracle]
target = "torch.clone"
args = ["x"]
returns = "y"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of two workloads, which is the working directory."""
    (tmp_path / "pyproject.toml").touch()
    workloads = tmp_path / "workloads"
    (workloads / "baselines").mkdir(parents=True)
    (workloads / "baselines" / "copy.toml").touch()
    (workloads / "copy.toml").write_text(TEXT.replace("LISTS", ""))
    (workloads / "move.toml").write_text(TEXT.replace("LISTS", 'nightly = ["*_odd"]'))
    (workloads / "notes.md").touch()
    monkeypatch.chdir(tmp_path)
    return workloads


def named(*files: str) -> dict[str, tuple[str, ...]]:
    found = paths(Selection(files=files))
    return {path.as_posix(): globs for path, globs in found.items()}


def chosen(
    *files: str,
    keyword: str | None = None,
    select: str | None = None,
    beside: frozenset[str] = frozenset(),
) -> tuple[Chosen, ...]:
    asked = Selection(files=files, keyword=keyword, select=select, beside=beside)
    expanded = [
        (workload, expand(workload), globs)
        for path, globs in paths(asked).items()
        for workload in [load(path)]
    ]
    return choose(expanded, asked)


def keys(found: tuple[Chosen, ...]) -> list[str]:
    return [case.key for one in found for case in one.cases]


def test_a_file_a_folder_and_a_glob_name_workloads(folder: Path) -> None:
    both = {"workloads/copy.toml": (), "workloads/move.toml": ()}
    assert named("workloads/copy.toml") == {"workloads/copy.toml": ()}
    assert named("workloads") == both
    assert named("workloads/*") == both
    assert named("workloads/c*.toml") == {"workloads/copy.toml": ()}
    assert list(named(str(folder / "m*.toml"))) == [(folder / "move.toml").as_posix()]


def test_a_folder_holds_no_workloads_below_it(folder: Path) -> None:
    assert folder / "baselines" / "copy.toml" not in paths(Selection(files=(str(folder),)))


def test_the_file_of_a_project_is_no_workload(folder: Path) -> None:
    assert (folder.parent / "pyproject.toml").is_file()
    with pytest.raises(UsageError):
        named(".")
    with pytest.raises(UsageError):
        named("*.toml")


def test_a_file_named_twice_is_read_once_with_both_globs() -> None:
    found = named("workloads/copy.toml::n1_*", "workloads", "workloads/copy.toml::n64_*")
    assert found == {"workloads/copy.toml": ("n1_*", "n64_*"), "workloads/move.toml": ()}


@pytest.mark.parametrize("name", ["workloads/cpoy.toml", "workload", "workloads/*.tml", "w*/z*"])
def test_what_names_no_file_is_an_error(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        named(name)
    assert str(caught.value) == f"{name}: no such workload file, folder or glob"


def test_without_more_the_default_cases_are_chosen() -> None:
    assert keys(chosen("workloads/copy.toml")) == ["copy/n64_even", "copy/n64_odd"]


def test_lists_that_stand_beside_join_the_default_ones() -> None:
    found = chosen("workloads/copy.toml", beside=frozenset({"smoke", "cpu"}))
    assert keys(found) == ["copy/n1_even", "copy/n64_even", "copy/n64_odd", "copy/n4096_even"]


def test_a_list_of_the_workload_takes_the_place_of_the_default_one() -> None:
    assert keys(chosen("workloads", select="smoke")) == ["copy/n1_even", "move/n1_even"]
    beside = frozenset({"smoke", "cpu"})
    assert keys(chosen("workloads", select="nightly", beside=beside)) == [
        *("move/n1_odd", "move/n64_odd", "move/n4096_odd"),
    ]
    assert len(keys(chosen("workloads", select="all"))) == 12


def test_a_glob_behind_a_file_chooses_cases_whatever_lists_they_are_in() -> None:
    found = chosen("workloads/copy.toml::n4096_odd", select="smoke")
    assert keys(found) == ["copy/n4096_odd"]
    assert found[0].explicit
    assert not chosen("workloads/copy.toml")[0].explicit


def test_a_keyword_is_part_of_a_key_or_a_glob_over_it() -> None:
    assert keys(chosen("workloads", keyword="move/n64")) == ["move/n64_even", "move/n64_odd"]
    assert keys(chosen("workloads", keyword="*odd")) == ["copy/n64_odd", "move/n64_odd"]


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (
            ("workloads",),
            {"select": "nigthly"},
            "--select nigthly: no workload has such a list; did you mean nightly?",
        ),
        (
            ("workloads",),
            {"select": "quux"},
            "--select quux: no workload has such a list",
        ),
        (
            ("workloads",),
            {"keyword": "copy/n64_evn"},
            "-k copy/n64_evn: no selected case matches; did you mean copy/n64_even?",
        ),
        (
            ("workloads/copy.toml::n64_evn",),
            {},
            "workloads/copy.toml::n64_evn matches no case; did you mean n64_even?",
        ),
        (
            ("workloads/copy.toml::n1_*", "workloads/copy.toml::zzz"),
            {},
            "workloads/copy.toml::zzz matches no case",
        ),
    ],
)
def test_what_chooses_nothing_is_an_error_with_one_suggestion(
    files: tuple[str, ...], options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(*files, **options)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_workload_without_a_chosen_case_is_left_out() -> None:
    assert [one.workload.name for one in chosen("workloads", select="nightly")] == ["move"]
