"""What is kept of a class of hardware is found again, said, and asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands.conftest import estimate
from tests.selftest.conftest import row_record, run_record, virtual_run
from tirbench import selftest
from tirbench.model import Row, Timed, Verification
from tirbench.selftest.kept import local_path, read_text, text_of

ROWS = tuple(f"w/c{number}/k" for number in range(6))


@pytest.fixture(scope="module")
def kept() -> selftest.Kept:
    records = [
        run_record(),
        *(row_record(row, 5.0 if index % 2 else 5000.0) for index, row in enumerate(ROWS)),
        *virtual_run(ROWS, 0, planted=0.01, placements=range(10)),
        *virtual_run(ROWS, 1, planted=0.01, placements=range(10)),
    ]
    found = selftest.tallied(records)
    assert found is not None
    return selftest.Kept.of([records[0]], found)


def timed(midmean_us: float) -> Timed:
    row = Row(workload="w", case="c", implementation="k", role="kernel")
    verification = Verification(method="oracle", worst=0.1)
    return Timed(row=row, verification=verification, estimate=estimate(midmean_us))


def test_what_is_kept_is_read_as_it_was_written(kept: selftest.Kept) -> None:
    assert read_text(text_of(kept)) == kept


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1}'])
def test_a_file_that_cannot_be_read_is_as_none(text: str) -> None:
    assert read_text(text) is None


def test_this_machine_comes_before_the_baselines(kept: selftest.Kept, tmp_path: Path) -> None:
    assert selftest.known(tmp_path, "nvidia-h200") is None
    folder = tmp_path / "workloads"
    written = selftest.keep(tmp_path, kept, [folder])
    assert written == [
        local_path(tmp_path, "nvidia-h200"),
        folder / "baselines" / "nvidia-h200" / "selftest.json",
    ]
    local_path(tmp_path, "nvidia-h200").unlink()
    assert selftest.known(tmp_path, "nvidia-h200") == kept
    selftest.keep(tmp_path, replace(kept, runs=7))
    found = selftest.known(tmp_path, "nvidia-h200")
    assert found is not None
    assert found.runs == 7
    assert selftest.known(tmp_path, "nvidia-b200") is None


def test_what_was_found_by_another_protocol_is_known_of_no_hardware(
    kept: selftest.Kept, tmp_path: Path
) -> None:
    selftest.keep(tmp_path, replace(kept, protocol=kept.protocol - 1))
    assert selftest.known(tmp_path, "nvidia-h200") is None


def test_the_sentence_says_both_rates_with_their_bounds(kept: selftest.Kept) -> None:
    assert selftest.sentence(kept) == (
        "self-test of nvidia-h200 (2026-11-29): equal code called different in 0 of 96 (at most 3.07 %), "
        "slower by 0.85 to 1.15 % found in 48 of 48 (at least 88.3 %)"
    )


def test_without_a_self_test_the_note_says_how_to_come_by_one(tmp_path: Path) -> None:
    assert selftest.notes(tmp_path, "nvidia-h200") == (
        "no self-test of nvidia-h200 is kept: `tirbench selftest` says how often it is right",
    )
    assert selftest.notes(tmp_path, "cpu-x", hint=False) == ()


def test_a_launch_is_judged_by_its_class_of_duration(kept: selftest.Kept) -> None:
    names = [one.name if (one := kept.of_time(us)) else None for us in (5.0, 150.0, 9e9)]
    # Nothing between was tried: the next class stands for it.
    assert names == ["to 10 µs", "from 2000 µs", "from 2000 µs"]


def test_a_threshold_is_refused_on_evidence_alone(kept: selftest.Kept, tmp_path: Path) -> None:
    assert selftest.resolver(tmp_path, "nvidia-h200")(timed(5.0), 0.0001) == ""
    selftest.keep(tmp_path, kept)
    resolve = selftest.resolver(tmp_path, "nvidia-h200")
    assert resolve(timed(5.0), 0.01) == ""
    assert "for kernels to 10 µs" in resolve(timed(5.0), 0.0005)
