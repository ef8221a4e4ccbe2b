"""Shares and their bounds, true sizes, and where the scatter comes from."""

from __future__ import annotations

import math
import random

import pytest

from tests.selftest.conftest import reading_record, row_record, run_record, virtual_run
from tirbench import selftest
from tirbench.judge import Policy, upper_bound
from tirbench.selftest.outcomes import Tried, tried
from tirbench.selftest.readings import Record
from tirbench.selftest.shares import classes, spread, tally
from tirbench.selftest.tables import equal, planted_by_class, rows, spreads

ROWS = tuple(f"w/c{number}/k" for number in range(6))


def tried_of(records: list[Record]) -> list[Tried]:
    return tried(records, Policy())


def suite(records: list[Record], midmean_us: float = 5.0) -> list[Record]:
    return [run_record(), *(row_record(row, midmean_us) for row in ROWS), *records]


def test_equal_code_that_is_never_flagged_has_the_exact_bound() -> None:
    found = tally(tried_of(suite([*virtual_run(ROWS, 0), *virtual_run(ROWS, 1)])))
    share = found.whole.equal
    assert (share.decisions, share.flagged, share.rows) == (72, 0, 6)
    assert share.at_most == pytest.approx(upper_bound(0, 72))
    # Two of the six pairs of four loads share no load.
    assert found.disjoint.decisions == 24


def test_what_was_flagged_and_never_confirmed_counts_against_the_bound() -> None:
    records = virtual_run(ROWS, 0)
    records += [
        reading_record(ROWS[0], 1, placement, {"base": 0.0, "twin1": 0.02})
        for placement in range(5)
    ]
    share = tally(tried_of(suite(records))).whole.equal
    assert (share.decisions, share.flagged, share.unfinished) == (36, 0, 1)
    assert share.at_most == pytest.approx(upper_bound(1, 37))


def test_the_true_size_of_a_slowdown_leaves_its_own_readings_out() -> None:
    records = [
        reading_record(
            ROWS[0],
            sequence,
            placement,
            {"base": -0.005, "twin1": 0.0, "quiet": 0.0, "quiet2": 0.001, "planted": effect},
        )
        for sequence, effect in ((0, 0.010), (1, 0.012), (2, 0.014))
        for placement in range(10)
    ]
    found = [one for one in tried_of(suite(records)) if one.key.planted]
    assert {one.key.pair for one in found} == {"quiet~planted", "quiet2~planted"}
    for one in found:  # against either quiet side, as there is nothing between these two
        assert one.truth == pytest.approx(math.expm1(0.0125 - 0.001 * one.key.sequence))


def one_planted(run: str = "r1") -> list[Record]:
    """A row in one virtual run with one load of the slower side."""
    logs = {"base": 0.0, "twin1": 0.0, "quiet": 0.0, "quiet2": 0.0, "planted": 0.01}
    return [reading_record(ROWS[0], 0, placement, logs, run=run) for placement in range(10)]


def test_a_slowdown_of_which_there_is_one_load_has_no_true_size() -> None:
    found = tried_of(suite(one_planted()))
    assert {one.truth for one in found if one.key.planted} == {None}
    assert tally(found).whole.planted.decisions == 0


def test_the_pair_that_shares_no_side_says_how_large_a_slowdown_is() -> None:
    logs = {"quiet": 0.0, "quiet2": 0.001, "planted": 0.010, "planted2": 0.012}
    records = [reading_record(ROWS[0], 0, placement, logs) for placement in range(10)]
    found = {one.key.pair: one.truth for one in tried_of(suite(records)) if one.key.planted}
    assert found == {
        "quiet~planted": pytest.approx(math.expm1(0.011)),  # by quiet2~planted2
        "quiet2~planted2": pytest.approx(math.expm1(0.010)),
        "quiet~planted2": pytest.approx(math.expm1(0.009)),
        "quiet2~planted": pytest.approx(math.expm1(0.012)),
    }


def test_runs_with_the_same_strength_say_how_large_it_is_together() -> None:
    first, other = one_planted(), one_planted("r2")
    same = [row_record(ROWS[0], run="r2")]
    another = [row_record(ROWS[0], run="r2", strength=41)]
    for more, known in ((same, True), (another, False)):
        found = tried_of(suite([*first, *more, *other]))
        assert {one.truth is not None for one in found if one.key.planted} == {known}


def test_runs_by_an_older_protocol_are_not_counted_with_those_by_a_newer_one() -> None:
    protocol = {"workers": 5, "loads": 4, "planted": 4}  # of a time that did not say which it was
    readings = [*virtual_run(ROWS, 0, run="r1"), *virtual_run(ROWS, 0, run="r2")]
    newer, older = run_record("r1"), run_record("r2", protocol=protocol)
    assert {one["run"] for one in selftest.of_protocol([newer, older, *readings])} == {"r1"}
    assert {one["run"] for one in selftest.of_protocol([older, *readings])} == {"r2"}
    assert selftest.of_protocol([]) == []


def test_found_slowdowns_are_counted_by_their_true_size() -> None:
    records = [
        *virtual_run(ROWS, 0, planted=0.01, placements=range(10)),
        *virtual_run(ROWS, 1, planted=0.01, placements=range(10)),
    ]
    found = tally(tried_of(suite(records)))
    assert (found.whole.planted.found, found.whole.planted.decisions) == (48, 48)
    assert found.whole.planted.truth == pytest.approx(0.01, abs=0.001)
    counts = {name: share.decisions for name, share in found.bins}
    assert list(counts) == [
        *("below 0.7 %", "0.7–0.85 %", "0.85–1.15 %", "1.15–1.5 %", "from 1.5 %", "from 1 %"),
    ]
    assert counts["0.85–1.15 %"] == 48
    # The last of them holds what is 1 % and more, whatever other bin that is in.
    assert 0 < counts["from 1 %"] < 48
    assert sum(counts.values()) - counts["from 1 %"] == 48
    assert found.planted_in_all.decisions == 48


def test_gpu_time_is_that_of_one_side_with_its_flushes() -> None:
    (one, *_) = tried_of(suite(virtual_run(ROWS, 0)))
    assert one.gpu_s == pytest.approx(5 * 600 * (5.0 + 60.0) / 1e6)


def test_rows_are_counted_in_the_class_of_their_duration() -> None:
    records = [run_record(), row_record(ROWS[0], 1.5), row_record(ROWS[1], 5000.0)]
    records += virtual_run(ROWS[:2], 0)
    found = tally(tried_of(records))
    assert [one.name for one in found.classes] == ["all", "to 10 µs", "from 2000 µs"]
    assert [one.equal.rows for one in found.classes] == [2, 1, 1]
    assert [name for name, *_ in classes()] == [
        "to 10 µs",
        "10–100 µs",
        "100–300 µs",
        "300–2000 µs",
        "from 2000 µs",
    ]


def test_the_scatter_of_a_worker_is_told_from_that_of_its_repetitions() -> None:
    rng = random.Random(3)  # noqa: S311 - a simulation
    records = []
    for number, row in enumerate(ROWS):
        for placement in range(5):
            worker = rng.gauss(0.0, 0.003)
            records += [
                reading_record(
                    row,
                    sequence,
                    placement,
                    {"base": 0.0, "twin1": worker + rng.gauss(0.0, 0.001)},
                    quad_sd=0.001 * math.sqrt(60),
                )
                for sequence in range(8)
            ]
        assert number < len(ROWS)
    found = spread([one for one in tried_of(suite(records)) if not one.key.planted])
    assert found.quads == pytest.approx(0.001, rel=1e-6)
    assert found.again == pytest.approx(0.001, rel=0.15)
    assert found.worker == pytest.approx(0.003, rel=0.3)


def test_every_table_has_a_cell_for_every_head() -> None:
    records = [
        *virtual_run(ROWS, 0, planted=0.01, placements=range(10)),
        *virtual_run(ROWS, 1, planted=0.01, placements=range(10)),
    ]
    found = selftest.tallied(suite(records))
    assert found is not None
    for table in (equal(found), planted_by_class(found), spreads(found), rows(found)):
        assert {len(line) for line in table.lines} == {len(table.head)}
        assert len(table.markdown()) == len(table.lines) + 2


def test_readings_of_other_software_are_left_out() -> None:
    old = [run_record("r0", versions="triton 3.5"), *virtual_run(ROWS, 0, run="r0")]
    records = [*old, *suite(virtual_run(ROWS, 0))]
    assert {one["run"] for one in selftest.of_latest(records)} == {"r1"}
    assert {one["run"] for one in selftest.of_latest(records, "triton 3.5")} == {"r0"}
    assert selftest.of_latest([]) == []
    assert selftest.tallied([]) is None
