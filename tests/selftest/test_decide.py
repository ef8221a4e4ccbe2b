"""Readings become verdicts, stage after stage, as far as they go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.selftest.conftest import reading_record, row_record, virtual_run
from tirbench.judge import Policy, read_worker
from tirbench.model import MeasureMore, PairQuad, PairWorker
from tirbench.selftest.decide import Decision, Evidence, decide
from tirbench.selftest.readings import Record, Writer, pairs_of, read, read_logs

ROWS = tuple(f"w/c{number}/k" for number in range(6))


def decided(records: list[Record]) -> list[Decision]:
    return decide(Evidence.of([*map(row_record, ROWS), *records]), Policy())


def kinds(records: list[Record], *, planted: bool) -> Counter[str]:
    return Counter(one.kind for one in decided(records) if one.key.planted == planted)


def test_any_two_loads_are_a_pair_and_the_planted_side_is_held_against_two_quiet_ones() -> None:
    assert pairs_of(("base", "twin1", "quiet", "quiet2", "planted")) == [
        ("base", "twin1"),
        ("quiet", "quiet2"),
        ("quiet", "planted"),
        ("quiet2", "planted"),
    ]
    assert pairs_of(("quiet", "planted")) == [("quiet", "planted")]
    assert len(pairs_of(("base", "twin1", "twin2", "twin3"))) == 6
    assert pairs_of(("twin1", "twin2")) == [("twin1", "twin2")]


def test_a_worker_read_by_logarithms_is_read_as_by_its_calls() -> None:
    calls = [[2.0, 2.1], [2.2, 2.0], [1.9, 2.0], [2.1, 2.1], [9.9, 9.9]]
    import math

    from tirbench.averages import midmean

    logs = [math.log(midmean(block)) for block in calls]
    quads = tuple(
        PairQuad(
            base=(tuple(calls[index]), tuple(calls[index + 1])),
            head=(tuple(calls[index + 1]), tuple(calls[index])),
        )
        for index in (0, 2)
    )
    want = read_worker(PairWorker(placement=3, quads=quads))
    head = [logs[1], logs[0], logs[3], logs[2]]
    found = read_logs(3, logs, head)
    assert found.log_ratio == pytest.approx(want.log_ratio, abs=1e-12)
    assert found.quad_variance == pytest.approx(want.quad_variance, rel=1e-9)
    assert (found.placement, found.quads) == (3, 2)


def test_quiet_equal_code_is_the_same_in_every_pair() -> None:
    assert kinds(virtual_run(ROWS, 0), planted=False) == {"same": 36}


def test_a_planted_slowdown_is_slower_once_fresh_workers_have_seen_it() -> None:
    first = virtual_run(ROWS, 0, planted=0.01)
    assert kinds(first, planted=True) == {"unfinished": 24}  # four pairs of each row
    asked = [one.answer for one in decided(first) if one.key.planted]
    assert all(isinstance(one, MeasureMore) and one.stage == "confirm" for one in asked)
    fresh = virtual_run(ROWS, 0, planted=0.01, placements=range(5, 10), seed=2)
    assert kinds(first + fresh, planted=True) == {"slower": 24}
    assert kinds(first + fresh, planted=False) == {"same": 48}


def test_what_fresh_workers_do_not_see_again_is_no_verdict() -> None:
    records = virtual_run(ROWS, 0, planted=0.01)
    records += virtual_run(ROWS, 0, planted=0.0, placements=range(5, 10))
    assert kinds(records, planted=True)["slower"] == 0


def test_a_decision_whose_screening_is_not_complete_is_none() -> None:
    assert decided(virtual_run(ROWS, 0, placements=range(4))) == []


def test_virtual_runs_and_runs_are_judged_apart() -> None:
    records = [*virtual_run(ROWS, 0), *virtual_run(ROWS, 1), *virtual_run(ROWS, 0, run="r2")]
    found = decided(records)
    assert len(found) == 3 * 36
    assert {(one.key.run, one.key.sequence) for one in found} == {("r1", 0), ("r1", 1), ("r2", 0)}


def test_workers_that_disagree_widen_the_suite_that_they_are_in_and_no_other() -> None:
    noisy = virtual_run(ROWS, 0, sd=0.006)
    quiet = virtual_run(ROWS, 1)
    found = decided(noisy + quiet)
    assert all(one.kind == "same" for one in found if one.key.sequence == 1)
    assert any(one.kind != "same" for one in found if one.key.sequence == 0)


def test_a_placement_that_was_read_twice_counts_once() -> None:
    again = reading_record(ROWS[0], 0, 4, dict.fromkeys(("base", "twin1"), 0.0))
    (one,) = [
        one
        for one in decided([*virtual_run(ROWS, 0), again])
        if one.key.row == ROWS[0] and one.key.pair == "base~twin1"
    ]
    assert len(one.evidence.screening) == 5
    assert one.evidence.screening[4].log_ratio == 0.0


def test_readings_are_appended_and_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "readings.jsonl"
    records: list[dict[str, Any]] = [{"type": "run", "run": "a"}, {"type": "failed", "row": "x"}]
    for record in records:
        Writer(path).add(record)
    with path.open("a") as file:
        file.write('{"type": "reading", "ro')
    assert read([path, tmp_path / "absent.jsonl"]) == records
