"""A self-test on a CPU, from workloads to decisions; its times are whatever they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tirbench import selftest
from tirbench.commands.selftest import command
from tirbench.execute import describe
from tirbench.selftest.readings import Record, Writer
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
        assert list(trees.trees) == ["base", "twin1", "twin2", "quiet", "quiet2", "planted"]
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
            slower = {"quiet~quiet2", "quiet~planted", "quiet2~planted"}
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
    assert whole.decisions + whole.unfinished == 2 * 2 * 2 * 3 + len(quiet)
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
