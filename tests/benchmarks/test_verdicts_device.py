"""`benchmarks/verdicts.py device`: what was kept is rendered, and held against the targets."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.selftest.conftest import row_record, run_record, virtual_run
from tirbench.selftest.readings import Record, Writer

ROOT = Path(__file__).parents[2]
ROWS = tuple(f"w/c{number}/k" for number in range(20))


@pytest.fixture(scope="module")
def device() -> Iterator[ModuleType]:
    """`benchmarks` is no installed package."""
    sys.path.insert(0, str(ROOT))
    try:
        yield import_module("benchmarks.verdicts_device")
    finally:
        sys.path.remove(str(ROOT))


def rendered(device: ModuleType, tmp_path: Path, *files: list[Record]) -> tuple[int, Path]:
    paths = []
    for number, records in enumerate(files):
        path = tmp_path / f"readings{number}.jsonl"
        for record in records:
            Writer(path).add(record)
        paths.append(str(path))
    given = [option for path in paths for option in ("--readings", path)]
    arguments = parsed(device, "--seconds", "0", "--out", str(tmp_path / "out"), *given)
    return device.run(arguments), tmp_path / "out"


def parsed(device: ModuleType, *given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    device.add_arguments(parser)
    return parser.parse_args(given)


def run_of(run: str, sequences: range, *, planted: float = 0.01) -> list[Record]:
    records = [run_record(run), *(row_record(row, run=run) for row in ROWS)]
    for number in sequences:
        records += virtual_run(ROWS, number, run=run, planted=planted, placements=range(10))
    return records


def test_runs_of_several_files_add_up_and_meet_the_targets(
    device: ModuleType, tmp_path: Path
) -> None:
    files = [run_of("r1", range(15)), run_of("r2", range(15))]
    code, out = rendered(device, tmp_path, *files)
    assert code == 0
    data = json.loads((out / "verdicts_h200.json").read_text(encoding="utf-8"))
    whole = data["classes"][0]
    assert whole["equal"]["decisions"] == 2 * 15 * 20 * 8
    assert whole["planted"]["found"] == 4 * 2 * 15 * 20
    text = (out / "verdicts_h200.md").read_text(encoding="utf-8")
    assert "runs: 2, units: 1." in text
    assert "| w/c0/k | 5 |" in text


def test_too_few_decisions_are_no_evidence(device: ModuleType, tmp_path: Path) -> None:
    assert rendered(device, tmp_path, run_of("r1", range(2)))[0] == 1


def test_nothing_kept_is_nothing_measured(device: ModuleType, tmp_path: Path) -> None:
    assert rendered(device, tmp_path, [])[0] == 3


def test_rows_that_could_not_be_tried_are_listed(device: ModuleType, tmp_path: Path) -> None:
    failed: Record = {"type": "failed", "run": "r1", "row": "w/bad/k", "reason": "hung"}
    _, out = rendered(device, tmp_path, [*run_of("r1", range(2)), failed])
    text = (out / "verdicts_h200.md").read_text(encoding="utf-8")
    assert "Not tried:\n\n* w/bad/k: hung\n" in text


def test_files_may_stand_behind_any_option(device: ModuleType) -> None:
    files = ["workloads/vector_add.toml::n65536", "workloads/matmul.toml::m2048*"]
    for before in (["--readings", "a.jsonl"], ["--without", "cuda,tirx", "--readings", "a.jsonl"]):
        arguments = parsed(device, *before, *files)
        assert arguments.files == files
        assert arguments.readings == [Path("a.jsonl")]
        assert device.asked_of(arguments, ()).files == tuple(files)
    assert device.asked_of(arguments, ()).without == ("cuda", "tirx")


def test_the_command_is_kept_with_the_files_and_without_where_readings_go(
    device: ModuleType,
) -> None:
    arguments = parsed(
        device,
        *("--seconds", "30", "--gpus", "2", "--readings", "out/a.jsonl", "w/matmul.toml::m2048*"),
    )
    assert device.command_of(arguments) == (
        "python -m benchmarks.verdicts device --seconds 30 --loads 7 --sequences 40 --planted 4 "
        "--gpus 2 'w/matmul.toml::m2048*'"
    )
    assert device.command_of(parsed(device)).endswith("--planted 4")


def test_measuring_needs_a_place_for_readings(device: ModuleType) -> None:
    assert device.run(parsed(device)) == 2


def test_a_plan_says_what_a_run_would_take_without_measuring(
    device: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    files = ["workloads/vector_add.toml", "workloads/matmul.toml::m2048*"]
    options = ["--hardware", "nvidia-h200", "--gpus", "2", "--without", "tirx,cuda"]
    assert device.run(parsed(device, "--plan", *options, *files)) == 0
    out = capsys.readouterr().out
    assert re.match(
        r"\d+ rows by the pins of nvidia-h200, \d+ virtual runs: about \d+ s on 2 devices, ", out
    )
    heads = [line.split(" | ")[0] for line in out.splitlines() if line.startswith("| ")]
    assert {"| vector_add", "| matmul", "| all", "| to 10 µs", "| 10–100 µs"} <= set(heads)
