"""Runs that go on where they were cut, and disks that are full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tirbench.errors import StorageError, UsageError
from tirbench.model import CaseJob, DeadlineChoice, Job, Machine, Plan, Row, Skipped, Spent, Timed
from tirbench.store.git import Tree
from tirbench.store.journal import open_run, resume_run
from tirbench.store.kept import read_run

MakeTimed: TypeAlias = "Callable[..., Timed]"
TREE = Tree(commit="c0ffee", dirty=())


def rows_of(*names: str) -> tuple[Row, ...]:
    return tuple(
        Row(workload="rmsnorm", case="hs4096_bs128", implementation=name, role="kernel")
        for name in names
    )


def test_a_run_goes_on_behind_its_last_whole_line(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    rows = rows_of("triton", "other", "third")
    with (  # noqa: PT012 - what a cut run is
        pytest.raises(RuntimeError),
        open_run(tmp_path, machine=machine, rows=rows, tree=TREE) as run,
    ):
        run.samples(rows[0], 0, 0, [1.0])
        run.outcome(timed())
        run.samples(rows[1], 0, 0, [2.0])
        raise RuntimeError
    for name in ("outcomes.jsonl", "samples.jsonl"):
        with (run.folder / name).open("ab") as file:
            file.write(b'{"row": "half')
    with resume_run(tmp_path, read_run(tmp_path)) as again:
        assert again.unanswered == rows[1:]
        with pytest.raises(ValueError, match="has an outcome already"):
            again.outcome(timed())
        again.samples(rows[1], 0, 0, [3.0])
        again.outcome(timed(implementation="other"), Skipped(row=rows[2], reason="because"))
    kept = read_run(tmp_path)
    assert kept.run.id == run.id
    assert kept.run.complete
    assert len(kept.run.outcomes) == 3
    # What was measured of a row before the cut is not mixed with what was measured after it.
    assert list(kept.samples()) == [(rows[0].key, 0, 0, (1.0,)), (rows[1].key, 0, 0, (3.0,))]


def test_where_the_time_went_adds_up_over_the_parts_of_a_run(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    rows = rows_of("triton", "other")
    part = Spent(elapsed_s=2.0, devices=1, stages=(("rmsnorm", (("load", 1.0), ("time", 1.0))),))
    with (  # noqa: PT012 - what a cut run is
        pytest.raises(RuntimeError),
        open_run(tmp_path, machine=machine, rows=rows, tree=TREE) as run,
    ):
        run.spent(part)
        raise RuntimeError
    assert read_run(tmp_path).run.spent == part
    with resume_run(tmp_path, read_run(tmp_path)) as again:
        again.outcome(timed(), timed(implementation="other"))
        again.spent(part)
    assert read_run(tmp_path).run.spent == part.plus(part)


def test_a_run_is_written_by_one_at_a_time(tmp_path: Path, machine: Machine) -> None:
    with open_run(tmp_path, machine=machine, rows=rows_of("triton"), tree=TREE):
        kept = read_run(tmp_path)
        with (
            pytest.raises(UsageError, match="is being written by another tirbench"),
            resume_run(tmp_path, kept),
        ):
            pass
    with resume_run(tmp_path, kept):
        pass


def test_the_plan_of_a_run_is_kept_with_it(tmp_path: Path, machine: Machine) -> None:
    rows = rows_of("triton")
    with open_run(tmp_path, machine=machine, rows=rows, tree=TREE) as run:
        job = Job(
            workload="rmsnorm",
            harness=str(run.harness("rmsnorm.py", "pass\n")),
            plan=Plan(device="cuda", placements=3),
            cases=(CaseJob(case="hs4096_bs128", rows=rows),),
            deadlines=DeadlineChoice(time=20),
        )
        run.jobs([job], ["rmsnorm"], "abc")
        assert read_run(tmp_path).unanswered == rows
    kept = read_run(tmp_path)
    assert kept.jobs == (job,)
    assert (kept.explicit, kept.inputs) == (frozenset({"rmsnorm"}), "abc")
    assert str(tmp_path) not in (run.folder / "run.json").read_text()


class Full:
    """A file on a disk that takes a few bytes more."""

    def __init__(self, file: object, room: int) -> None:
        self._file = file
        self._room = room

    def write(self, data: memoryview) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = min(self._room, len(data))
        self._room -= taken
        return int(self._file.write(data[:taken]))  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def test_a_full_disk_leaves_whole_lines_and_a_run_that_can_go_on(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    rows = rows_of("triton", "other")
    with (  # noqa: PT012 - what a full disk is
        pytest.raises(StorageError, match="No space left on device"),
        open_run(tmp_path, machine=machine, rows=rows, tree=TREE) as run,
    ):
        run.outcome(timed())
        run._outcomes = Full(run._outcomes, 100)  # type: ignore[assignment]
        run.outcome(timed(implementation="other"))
    kept = read_run(tmp_path)
    assert kept.run.outcomes == (timed(),)
    assert not kept.run.complete
    assert "cut off" not in " ".join(kept.notes)
    with resume_run(tmp_path, kept) as again:
        again.outcome(timed(implementation="other"))
    assert read_run(tmp_path).run.complete


# --- A power cut ----------------------------------------------------------------------------------


def test_what_a_power_cut_left_holes_in_is_read_up_to_them_and_goes_on_before_them(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    rows = rows_of("triton", "other")
    with (  # noqa: PT012 - what a cut run is
        pytest.raises(RuntimeError),
        open_run(tmp_path, machine=machine, rows=rows, tree=TREE) as run,
    ):
        run.samples(rows[0], 0, 0, [1.0])
        run.outcome(timed())
        raise RuntimeError
    for name in (
        "outcomes.jsonl",
        "samples.jsonl",
    ):  # a block that was not written, and one after it
        with (run.folder / name).open("ab") as file:
            file.write(bytes(70_000) + b'half"}\n{"row": "rmsnorm/other')
    cut = read_run(tmp_path)
    assert cut.run.outcomes == (timed(),)
    assert list(cut.samples()) == [("rmsnorm/hs4096_bs128/triton", 0, 0, (1.0,))]
    assert cut.unanswered == rows[1:]
    with resume_run(tmp_path, cut) as again:
        again.samples(rows[1], 0, 0, [3.0])
        again.outcome(timed(implementation="other"))
    whole = read_run(tmp_path)
    assert whole.run.complete
    assert [times for *_, times in whole.samples()] == [(1.0,), (3.0,)]


def test_every_name_of_a_run_is_on_the_disk_before_its_first_row(
    tmp_path: Path, timed: MakeTimed, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("the system does not tell what a descriptor is of")
    monkeypatch.setattr(os, "fsync", noted)
    with open_run(tmp_path, machine=machine, rows=rows_of("triton"), tree=TREE) as run:
        runs = run.folder.parent
        for place in (tmp_path, tmp_path / ".tirbench", runs, run.folder):
            assert str(place) in synced
        synced.clear()
        program = run.harness("rmsnorm.py", "print()\n")
        assert synced[-1] == str(program.parent)  # after the renaming, of which it is the record
        synced.clear()
        run.jobs([], (), "digest")
        assert synced[-1] == str(run.folder)
        synced.clear()
        run.samples(rows_of("triton")[0], 0, 0, [1.0])
        run.outcome(timed())
        assert synced == [str(run.folder / "samples.jsonl"), str(run.folder / "outcomes.jsonl")]
