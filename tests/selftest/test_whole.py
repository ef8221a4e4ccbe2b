"""A self-test on a CPU, from workloads to decisions; its times are whatever they are."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from tirbench import selftest
from tirbench.commands.selftest import command
from tirbench.execute import describe
from tirbench.model import Job
from tirbench.selftest.readings import DELAYED, Record, Writer
from tirbench.selftest.trees import opened

ROWS = ("double/n256/ours", "double/n4096/ours")


def asked(project: Path, **changed: object) -> selftest.Asked:
    given = {
        "files": (str(project / "workloads"),),
        "device": "cpu",
        "seconds": 60.0,
        "workers": 2,
        "loads": 3,
        "sequences": 2,
        "planted": 1,
        **changed,
    }
    return selftest.Asked(**given)  # type: ignore[arg-type]  # of the types that it has there


def test_trees_are_whole_copies_and_gone_afterwards(project: Path) -> None:
    (project / ".hidden").write_text("not copied")
    with opened(asked(project)) as trees:
        assert tuple(one.key for one in trees.rows) == ROWS
        assert list(trees.trees) == ["base", "twin1", "twin2", *DELAYED]
        for side, tree in trees.trees.items():
            assert (tree / "workloads" / "kernels" / "ops.py").is_file()
            assert not (tree / ".hidden").exists()
            assert trees.harnesses[side]["double"].is_relative_to(tree)
        folder = trees.folder
    assert not folder.exists()


def test_kinds_of_launches_can_be_left_out(project: Path) -> None:
    from tirbench.errors import UsageError

    with (
        pytest.raises(UsageError, match="no kernel of these cases"),
        opened(asked(project, without=("call",))),
    ):
        pass


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record], list[str]]:
    """A project, the records of a self-test of it, and of one more that goes on from the first."""
    from tests.selftest.conftest import OPS, WORKLOAD

    project = tmp_path_factory.mktemp("project")
    (project / "pyproject.toml").write_text("")
    (project / "workloads" / "kernels").mkdir(parents=True)
    (project / "workloads" / "double.toml").write_text(WORKLOAD)
    (project / "workloads" / "kernels" / "ops.py").write_text(OPS)
    path, said = project / "readings.jsonl", list[str]()
    for lanes in ((), ("one", "two")):  # two devices share the second
        selftest.measure(
            asked(project, gpus=lanes),
            machine=describe("cpu"),
            readings=path,
            say=said.append,
        )
    return project, selftest.read([path]), said


def test_workloads_share_a_worker(project: Path) -> None:
    from tirbench.selftest import lanes
    from tirbench.selftest.engine import Engine

    text = (project / "workloads" / "double.toml").read_text()
    (project / "workloads" / "twice.toml").write_text(text)
    started: list[str] = []
    with opened(asked(project, planted=0)) as trees, ExitStack() as stack:
        engine = Engine(
            asked=asked(project),
            trees=trees,
            writer=Writer(project / "readings.jsonl"),
            run="r1",
            before=(),
            watch=lambda _: None,
            say=lambda _: None,
            hardware="cpu",
        )
        (lane,) = lanes.opened(engine.asked, trees.folder / "logs", stack)
        start = lane.workers.start

        def counting(job: Job) -> Any:
            started.append(job.workload)
            return start(job)

        lane.workers = cast("Any", SimpleNamespace(start=counting))
        row = {"sides": trees.loads(2), "calibrate": True, "sequences": []}
        rows: dict[str, dict[str, Any]] = {"double": {}, "twice": {}}
        for one in trees.rows:
            rows[one.row.workload][one.key] = row
        engine._worker(lane, 0, rows)
        assert started == ["double"]
        assert set(engine.budget.known) == {one.key for one in trees.rows}
        assert engine.budget.worker_s.keys() == rows.keys()
        assert engine.budget.failed == {}


def test_every_row_is_read_on_every_placement_in_every_virtual_run(
    measured: tuple[Path, list[Record], list[str]],
) -> None:
    _, records, _ = measured
    runs = [one["run"] for one in records if one["type"] == "run"]
    assert len(runs) == 2
    read = {
        (one["run"], one["row"], one["sequence"], one["placement"])
        for one in records
        if one["type"] == "reading"
    }
    wanted = {
        (run, row, sequence, placement)
        for run in runs
        for row in ROWS
        for sequence in (0, 1)
        for placement in (0, 1)
    }
    assert wanted <= read
    assert not [one for one in records if one["type"] == "failed"]


def test_pairs_are_those_of_the_loads_and_the_first_virtual_run_has_a_planted_one(
    measured: tuple[Path, list[Record], list[str]],
) -> None:
    _, records, _ = measured
    screening = [one for one in records if one["type"] == "reading" and one["placement"] < 2]
    loads = {"base~twin1", "base~twin2", "twin1~twin2"}
    for one in screening:
        if one["sequence"] == 0:
            slower = {"quiet~quiet2", "planted~planted2"} | {
                f"{quiet}~{planted}"
                for quiet in ("quiet", "quiet2")
                for planted in ("planted", "planted2")
            }
            assert set(one["pairs"]) in (loads | slower, loads)
        else:
            assert set(one["pairs"]) == loads
        assert set(one["launches"]) == set(one["midmean_us"])


def test_a_later_run_does_not_calibrate_again(
    measured: tuple[Path, list[Record], list[str]],
) -> None:
    _, records, _ = measured
    runs = [one["run"] for one in records if one["type"] == "run"]
    calibrated = Counter((one["run"], one["type"]) for one in records)
    assert calibrated[runs[0], "calibrated"] == 2
    assert calibrated[runs[1], "calibrated"] == 0
    assert calibrated[runs[1], "row"] == 2


def test_decisions_of_all_runs_are_counted(
    measured: tuple[Path, list[Record], list[str]],
) -> None:
    _, records, _ = measured
    found = selftest.tallied(records)
    assert found is not None
    whole = found.whole.equal
    # A busy CPU may hide the slope of a row's delay: then no slowdown is planted in it.
    quiet = {
        (one["run"], one["row"], one["sequence"])
        for one in records
        if one["type"] == "reading" and "quiet~quiet2" in one["pairs"]
    }
    assert whole.decisions + whole.unfinished == 2 * 2 * 2 * 3 + 2 * len(quiet)
    assert [one.row for one in found.rows] == list(ROWS)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(
        command, ["--device", "cpu", "--seconds", "0", *arguments], standalone_mode=False
    )


def test_the_command_shows_and_pins_what_is_kept(
    measured: tuple[Path, list[Record], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, records, _ = measured
    monkeypatch.chdir(project)
    assert invoke().return_value == 3
    hardware = describe("cpu").hardware
    readings = project / ".tirbench" / "selftest" / f"{hardware}.jsonl"
    for record in records:
        Writer(readings).add(record)
    shown = invoke("--pin")
    assert shown.return_value == 0, shown.output
    assert shown.stdout.startswith("Equal code\n")
    assert f"self-test of {hardware}" in shown.stdout
    assert f"wrote workloads/baselines/{hardware}/selftest.json" in shown.stderr
    data = json.loads(invoke("--format", "json").stdout)
    assert data["kept"]["runs"] == 2
    assert [one["row"] for one in data["rows"]] == list(ROWS)
    assert invoke("--format", "markdown").stdout.startswith("### Equal code\n\n| kernels | rows |")


def test_the_command_needs_something_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    done = invoke()
    assert "no folder workloads here" in str(done.exception)
