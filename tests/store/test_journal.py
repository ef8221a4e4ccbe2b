"""Runs as they are kept: whole lines, cut lines, two at once, nothing of this machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from tirbench.errors import UsageError
from tirbench.model import Failed, Machine, Roofs, Row, Skipped, Timed
from tirbench.store.git import Tree
from tirbench.store.journal import open_run
from tirbench.store.kept import read_run, run_ids
from tirbench.store.lines import RunError

MakeTimed: TypeAlias = "Callable[..., Timed]"
TREE = Tree(commit="c0ffee", dirty=("workloads/rmsnorm.toml",))


def rows_of(*names: str) -> tuple[Row, ...]:
    return tuple(
        Row(workload="rmsnorm", case="hs4096_bs128", implementation=name, role="kernel")
        for name in names
    )


def test_a_run_is_read_back_as_it_was_written(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    rows = rows_of("triton", "other")
    outcomes = (timed(), Skipped(row=rows[1], reason="needs device cpu"))
    with open_run(
        tmp_path, machine=machine, rows=rows, tree=TREE, suite="ab12", workload_paths=["w/a.toml"]
    ) as run:
        program = run.harness("rmsnorm.py", "print()\n")
        for outcome in outcomes:
            run.outcome(outcome)
        run.samples(rows[0], 0, 1, [3.41234, 3.5])
        run.roofs(Roofs(copy_gbytes_per_s=4280.0, tflops=(("bfloat16", 775.0),)))
    kept = read_run(tmp_path)
    assert kept.run.outcomes == outcomes
    assert kept.run.machine == machine
    assert kept.run.roofs.tflops == (("bfloat16", 775.0),)
    assert (kept.run.commit, kept.run.dirty, kept.suite) == ("c0ffee", TREE.dirty, "ab12")
    assert kept.run.complete
    assert kept.notes == ()
    assert kept.harnesses == (program,)
    assert kept.workload_paths == ("w/a.toml",)
    assert list(kept.samples()) == [("rmsnorm/hs4096_bs128/triton", 0, 1, (3.4123, 3.5))]
    assert read_run(tmp_path, kept.run.id[:12]).run == kept.run


def test_what_a_run_has_finished_is_on_the_disk_before_the_next_row(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    rows = rows_of("triton", "other")
    with open_run(tmp_path, machine=machine, rows=rows, tree=TREE) as run:
        assert json.loads((run.folder / "run.json").read_text())["commit"] == "c0ffee"
        run.outcome(timed())
        kept = read_run(tmp_path)
        assert kept.run.outcomes == (timed(),)
        assert not kept.run.complete
        assert run.unanswered == (rows[1],)
        assert kept.notes == (
            "incomplete: 1 of 2 rows have no outcome (rmsnorm/hs4096_bs128/other)",
        )


def test_a_run_that_an_exception_ends_is_kept_and_incomplete(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    def interrupted() -> None:
        with open_run(tmp_path, machine=machine, rows=rows_of("triton"), tree=TREE) as run:
            run.outcome(timed())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    kept = read_run(tmp_path)
    assert kept.run.outcomes == (timed(),)
    assert not kept.run.complete
    assert kept.notes == ("incomplete: the run was ended before it was closed",)


def test_a_last_line_that_is_cut_off_is_left_out_and_said(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    rows = rows_of("triton", "other")
    with open_run(tmp_path, machine=machine, rows=rows, tree=TREE) as run:
        run.outcome(timed())
        run.outcome(Skipped(row=rows[1], reason="because"))
    lines = run.folder / "outcomes.jsonl"
    lines.write_bytes(lines.read_bytes()[:-5])
    kept = read_run(tmp_path)
    assert kept.run.outcomes == (timed(),)
    assert not kept.run.complete
    assert kept.notes[0] == "the last line of outcomes.jsonl is cut off and left out"


def test_a_broken_line_in_the_middle_is_an_error_with_its_place(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    with open_run(tmp_path, machine=machine, rows=rows_of("triton"), tree=TREE) as run:
        run.outcome(timed())
    lines = run.folder / "outcomes.jsonl"
    lines.write_bytes(b"{]\n" + lines.read_bytes())
    with pytest.raises(RunError, match=r"outcomes\.jsonl:1: "):
        read_run(tmp_path)


def test_two_runs_at_once_never_mix(tmp_path: Path, timed: MakeTimed, machine: Machine) -> None:
    tokens = iter(["aa", "aa", "bb"])
    same = {"now": lambda: 0.0, "token": lambda: next(tokens), "tree": TREE, "machine": machine}
    rows = rows_of("triton")
    with (
        open_run(tmp_path, rows=rows, **same) as first,  # type: ignore[arg-type]
        open_run(tmp_path, rows=rows, **same) as second,  # type: ignore[arg-type]
    ):
        second.outcome(timed(2.0))
        first.outcome(timed(1.0))
    assert run_ids(tmp_path) == ("19700101-000000-aa", "19700101-000000-bb")
    assert read_run(tmp_path).run.id == second.id
    (one,) = read_run(tmp_path, first.id).run.outcomes
    assert one == timed(1.0)


def test_a_row_is_answered_once_and_only_if_asked_for(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    with open_run(tmp_path, machine=machine, rows=rows_of("triton"), tree=TREE) as run:
        run.outcome(timed())
        with pytest.raises(ValueError, match="has an outcome already"):
            run.outcome(timed())
        with pytest.raises(ValueError, match="was not asked of this run"):
            run.outcome(timed(implementation="other"))


def test_nothing_kept_names_the_host_the_home_or_a_path_of_this_machine(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-box-17")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/somebody"))
    detail = (
        f'File "{tmp_path}/workloads/kernels/add.py", line 3\n'
        'File "/home/somebody/venv/torch.py", line 4, on gpu-box-17\n'
        "a root mean square of /home/somebodyelse stays"
    )
    failed = Failed(row=rows_of("triton")[0], stage="build", reason="E: x", detail=detail)
    with open_run(tmp_path, machine=machine, rows=rows_of("triton"), tree=TREE) as run:
        run.outcome(failed)
        (run.log_folder / "add.log").write_text(detail)
    kept = read_run(tmp_path).run.outcomes[0]
    assert isinstance(kept, Failed)
    assert kept.detail == (
        'File "./workloads/kernels/add.py", line 3\n'
        'File "~/venv/torch.py", line 4, on <private>\n'
        "a root mean square of /home/somebodyelse stays"
    )
    everything = "".join(
        path.read_text() for path in run.folder.rglob("*") if path.is_file()
    ) + str(run.folder.relative_to(tmp_path))
    for private in (str(tmp_path), "gpu-box-17", "/home/somebody/"):
        assert private not in everything


def test_a_run_that_is_not_kept_names_those_that_are(
    tmp_path: Path, timed: MakeTimed, machine: Machine
) -> None:
    with pytest.raises(RunError, match="no run is kept here yet"):
        read_run(tmp_path)
    with open_run(tmp_path, machine=machine, rows=rows_of("triton"), tree=TREE) as run:
        run.outcome(timed())
    with pytest.raises(UsageError, match=f"'1999' is not kept here; the latest are: {run.id}"):
        read_run(tmp_path, "1999")


def test_a_run_of_another_format_is_refused(tmp_path: Path, machine: Machine) -> None:
    with open_run(tmp_path, machine=machine, rows=(), tree=TREE) as run:
        pass
    metadata = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**metadata, "schema": 99}))
    with pytest.raises(RunError, match="in format 99, this version reads 1"):
        read_run(tmp_path)


def test_facts_that_a_worker_adds_replace_those_of_the_start(
    tmp_path: Path, machine: Machine
) -> None:
    later = replace(machine, facts=(*machine.facts, ("l2_bytes", "62914560")))
    with open_run(tmp_path, machine=machine, rows=(), tree=TREE) as run:
        run.machine(later)
    assert read_run(tmp_path).run.machine == later
