"""`check` of many files: dealt out to processes, and said as one process would say it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tirbench import reading

from .conftest import HEAD, OURS, Project, Tirbench

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files are dealt out on Linux")

MISTAKES = {
    3: ('"float32"', '"float23"'),
    11: ("schema = 1\n", "schema = 1\nnaïve\n"),
    17: ("[select]", "[selct]"),
}


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.mark.usefixtures("two_cores")
def test_what_several_processes_find_is_what_one_finds(
    project: Project, tirbench: Tirbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(24):
        old, new = MISTAKES.get(index, ("", ""))
        project.write(f"w{index:02}", (HEAD + OURS).replace(old, new))
    started: list[int] = []
    fork = os.fork

    def counted() -> int:
        started.append(os.getpid())
        return fork()

    monkeypatch.setattr(os, "fork", counted)
    several = {form: tirbench("check", "workloads", "--format", form) for form in ("text", "json")}
    assert len(started) == 2
    monkeypatch.setattr(reading, "FILES_A_PROCESS", 1_000)
    for form, done in several.items():
        assert tirbench("check", "workloads", "--format", form) == done
    assert len(started) == 2
    files = [problem["file"] for problem in json.loads(several["json"].out)["problems"]]
    assert files == [f"workloads/w{index:02}.toml" for index in MISTAKES]


@pytest.mark.usefixtures("two_cores")
def test_a_share_whose_process_dies_is_read_again(
    project: Project, tirbench: Tirbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(24):
        project.write(f"w{index:02}", HEAD + OURS)
    here = os.getpid()
    packed = reading._packed

    def dying(checked: reading.Checked) -> bytes:
        if os.getpid() != here:
            os._exit(9)
        return packed(checked)

    monkeypatch.setattr(reading, "_packed", dying)
    done = tirbench("check", "workloads")
    assert (done.code, done.out) == (0, "25 workloads with 50 cases checked\n")


@pytest.mark.usefixtures("two_cores")
def test_files_are_dealt_by_their_size_and_those_of_one_stem_together(tmp_path: Path) -> None:
    files = []
    for index in range(20):
        path = tmp_path / ("a" if index % 2 else "b") / f"w{index // 2}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("#" * (40_000 if path.stem == "w7" else 1_000))
        files.append(path)
    shares = reading._shares(files)
    assert len(shares) == 2
    assert sorted(path for share in shares for path in share) == sorted(files)
    stems = [{path.stem for path in share} for share in shares]
    assert not stems[0] & stems[1]
    alone = next(names for names in stems if "w7" in names)
    assert len(alone) == 1  # twenty times the others: it has a process for itself


def test_a_few_files_are_read_without_another_process(tmp_path: Path) -> None:
    assert reading._shares([tmp_path / f"w{index}.toml" for index in range(15)]) == []
