"""What fits into the time, and how many loads into a burst."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.selftest.conftest import (
    reading_record,
    row_record,
    run_record,
)
from tirbench.digest import PROTOCOL_VERSION
from tirbench.model import Row
from tirbench.selftest.ask import Asked
from tirbench.selftest.budget import FIRST, Budget, Task
from tirbench.selftest.learnt import FEWEST, Known, corrected, remembered
from tirbench.selftest.trees import Trees, TrialRow

LOADS = ("base", "twin1", "twin2", "twin3")
SLOWER = ("quiet", "quiet2", "planted", "planted2")
SIDES = (*LOADS, *SLOWER)


def trial_row(case: str, workload: str = "w") -> TrialRow:
    row = Row(workload=workload, case=case, implementation="k", role="kernel")
    return TrialRow(row=row, source="5a", slower_than=0.01, unplanted="")


def budget(known: dict[str, Known], **asked: Any) -> Budget:
    rows = tuple(trial_row(key.split("/")[1], key.split("/")[0]) for key in known)
    trees = Trees(
        project=Path(),
        folder=Path(),
        trees={side: Path(side) for side in SIDES},
        harnesses={},
        workloads={},
        rows=rows,
    )
    given_ = Asked(files=(), **{"loads": 4, "planted": 2, **asked})
    return Budget(asked=given_, trees=trees, known=known)


def known(midmean_us: float = 5.0, **changed: Any) -> Known:
    return Known.of(row_record("w/a/k", midmean_us, **{"flush_us": 50.0, **changed}))


def test_short_launches_are_measured_over_all_loads_and_the_planted_side() -> None:
    made = budget({"w/a/k": known()})
    assert made.sequences(range(3)) == {"w/a/k": [(0, SIDES), (1, SIDES), (2, LOADS)]}


def test_a_launch_of_which_only_a_pair_fits_into_a_burst_is_measured_in_pairs() -> None:
    made = budget({"w/a/k": known(4000.0)})
    assert made.sequences(range(1)) == {
        "w/a/k": [(0, ("base", "twin1")), (0, ("quiet", "planted"))]
    }


@pytest.mark.parametrize(
    ("most", "sequences"),
    [
        (2, [LOADS[:2], ("quiet", "planted")]),
        (3, [LOADS[:2], ("quiet", "quiet2", "planted")]),
        (4, [LOADS[:2], SLOWER]),
        (5, [(*LOADS[:2], "quiet", "quiet2", "planted")]),
        (6, [(*LOADS[:2], *SLOWER)]),
        (7, [(*LOADS[:3], *SLOWER)]),
    ],
)
def test_of_the_slower_sides_as_many_are_measured_as_leave_room_for_a_pair(
    most: int, sequences: list[tuple[str, ...]]
) -> None:
    launch_us = 15_000 / (2 * (most + 0.1)) - 50.0  # a quad of so many single calls fits
    made = budget({"w/a/k": known(launch_us)})
    assert made.sequences(range(1)) == {"w/a/k": [(0, sides) for sides in sequences]}


def test_what_each_load_compiles_for_long_is_loaded_twice() -> None:
    made = budget({"w/a/k": known(build_s=1.0)})
    assert made.sequences(range(1)) == {"w/a/k": [(0, ("base", "twin1", *SLOWER))]}


def test_few_loads_are_taken_of_a_launch_whose_sequences_take_long_and_many_of_a_quick_one() -> (
    None
):
    assert known(arm_s=0.2, sequence_s=0.1).loads(9) == FEWEST
    assert known(arm_s=0.02, sequence_s=0.1).loads(9) == 9
    assert known(arm_s=0.05, sequence_s=0.1).loads(40) == 16
    assert known(arm_s=0.1, sequence_s=0.1).loads(2) == 2
    assert known(arm_s=0.0).loads(9) == 9


def test_a_row_that_cannot_be_planted_in_is_tried_with_equal_code_alone() -> None:
    made = budget({"w/a/k": known(strength=None)})
    assert made.sequences(range(1)) == {"w/a/k": [(0, LOADS)]}


def test_rows_that_failed_or_of_which_nothing_is_known_are_left_out() -> None:
    made = budget({"w/a/k": known(), "w/b/k": known()})
    made.failed["w/a/k"] = "crashed"
    del made.known["w/b/k"]
    assert made.sequences(range(1)) == {}


@given(st.floats(0.5, 20_000), st.integers(2, 9))
def test_a_quad_of_more_than_a_pair_always_fits_into_a_burst(us: float, most: int) -> None:
    arms = known(us).arms(most)
    assert 2 <= arms <= most
    block_us = 5 * (us + 50) if us < 250 else us + 50
    assert arms == 2 or 2 * arms * block_us <= 15_000


def test_so_many_arms_are_measured_together_as_use_up_the_bursts() -> None:
    made = known(2.0, flush_us=90.0)  # 0.92 ms for two sub-blocks of an arm
    assert made.arms(20) == 16
    assert made.paying(20) == made.paying(17) == 16
    assert made.paying(9) == made.paying(10) == 8  # a quad of 8 fits twice
    assert made.paying(11) == 11
    assert made.paying(5) == 5
    assert made.paying(2) == 2
    assert known(4000.0).paying(9) == 2


@given(st.floats(0.5, 20_000), st.integers(2, 20))
def test_what_pays_fits_into_a_burst(us: float, most: int) -> None:
    assert 2 <= known(us).paying(most) <= known(us).arms(most)


def test_a_plan_has_as_many_virtual_runs_as_fit_and_the_first_in_any_case() -> None:
    made = budget({"w/a/k": known(), "w/b/k": known()})
    one = made.cost(made.sequences(range(1)))
    assert [number for number, _ in made.plan(0.0, 0)["w/a/k"]] == [0]
    assert [number for number, _ in made.plan(one / 0.95 + 0.1, 0)["w/a/k"]] == [0]
    assert len(made.plan(3600.0, 0)["w/a/k"]) == FIRST  # of every row something, before all of it
    assert len(made.plan(3600.0, FIRST)["w/a/k"]) == made.asked.sequences - FIRST
    assert made.plan(0.0, 1) == {}
    assert [number for number, _ in made.plan(3600.0, 38)["w/a/k"]] == [38, 39]


def test_a_plan_counts_workers_loads_sequences_and_confirming() -> None:
    made = budget({"w/a/k": known(build_s=0.02)}, workers=5)
    made.worker_s["w"], made.start_s = 0.75, 0.25
    batch = {"w/a/k": [(0, SIDES), (1, LOADS)]}
    screening = 5 * (1.0 + 12 * 0.1 + 2 * 0.05 + 7 * 0.02)
    # Fresh workers measure the planted sides against both that they are held against.
    confirming = 5 * (1.0 + 4 * 0.1 + 0.05 + 3 * 0.02) + 0.1 * screening
    assert made.confirming(batch) == pytest.approx(confirming)
    assert made.cost(batch) == pytest.approx(screening + confirming)


def test_a_task_holds_all_rows_of_a_workload_and_what_brings_most_a_second_comes_first() -> None:
    made = budget({"v/a/k": known(), "w/a/k": known(arm_s=0.5), "w/b/k": known()})
    tasks = made.tasks(made.sequences(range(2)), range(5, 10))
    assert [(task.workload, sorted(task.rows)) for task in tasks] == [
        ("v", ["v/a/k"]),
        ("w", ["w/a/k", "w/b/k"]),
    ]
    assert tasks[1].placements == (5, 6, 7, 8, 9)
    assert tasks[1].rows["w/a/k"]["sides"] == SIDES
    assert tasks[1].expected_s > tasks[0].expected_s > 0
    assert tasks[0].pairs_per_s > tasks[1].pairs_per_s > 0


def test_what_a_task_asks_for_once_it_is_screened_is_counted_with_it() -> None:
    made = budget({"w/a/k": known()})
    batch = made.sequences(range(2))
    (first,), (later,) = made.tasks(batch, range(5)), made.tasks(batch, range(5, 10))
    assert first.then_s == made.confirming(batch) > 0
    assert later.then_s == 0.0
    assert first.pairs == 2 * 6 + 2 * (4 + 2)


def test_a_task_in_workers_that_are_there_already_takes_less() -> None:
    made = budget({"w/a/k": known()})
    made.start_s = 2.0
    (task,) = made.tasks(made.sequences(range(1)), range(5))
    assert task.start_s == 10.0
    assert task.begun().expected_s == pytest.approx(task.expected_s - 10.0)
    assert task.begun().begun() == task.begun()


def test_of_a_task_that_is_too_long_the_first_virtual_runs_are_kept() -> None:
    rows = {
        "w/a/k": {"sequences": [(0, ("base", "twin1")), (1, ("base", "twin1"))]},
        "w/b/k": {"sequences": [(1, ("base", "twin1"))]},
    }
    task = Task(workload="w", placements=(0,), rows=rows, fixed_s=2.0, runs_s={0: 1.0, 1: 2.0})
    assert task.expected_s == 5.0
    assert task.within(5.0) is task
    shorter = task.within(4.0)
    assert shorter is not None
    assert {key: row["sequences"] for key, row in shorter.rows.items()} == {
        "w/a/k": [(0, ("base", "twin1"))]
    }
    assert shorter.expected_s == 3.0
    assert task.within(2.5) is None


def test_sides_that_several_decisions_ask_for_are_measured_together_where_they_fit() -> None:
    made = budget({"w/a/k": known()})
    assert made.together("w/a/k", {3: ["planted", "twin2", "quiet2", "base"]}) == [
        (3, ("base", "twin2", "quiet2", "planted"))
    ]
    made.known["w/a/k"] = known(4000.0)
    assert made.together("w/a/k", {3: ["planted", "twin1", "quiet", "base"]}) == [
        (3, ("base", "twin1")),
        (3, ("quiet", "planted")),
    ]
    made.known["w/a/k"] = known(15_000 / (2 * 4.1) - 50)  # four arms fit
    assert made.together("w/a/k", {3: ["base", "twin1", *SLOWER]}) == [
        (3, ("base", "twin1")),
        (3, SLOWER),
    ]
    assert made.together("w/a/k", {3: ["quiet", "planted"]}) == [(3, ("quiet", "planted"))]


@pytest.mark.parametrize(
    ("strength", "effect", "wanted"),
    [(40, 0.01, 40), (40, 0.005, 80), (100, 0.02, 50), (40, 0.0, 80), (30, 0.02, 16), (1, 0.05, 1)],
)
def test_a_strength_is_corrected_by_what_was_measured_of_it(
    strength: int, effect: float, wanted: int
) -> None:
    assert corrected(strength, effect) == wanted


def test_what_an_earlier_run_learnt_is_used_for_rows_that_are_written_alike() -> None:
    records = [
        run_record(),
        row_record("w/a/k", worker_s=2.5),
        row_record("w/b/k", source="another"),
        *(
            reading_record("w/a/k", 0, placement, {"quiet": 0.0, "planted": 0.005})
            for placement in range(5)
        ),
    ]
    rows = [trial_row("a"), trial_row("b")]
    found, worker_s = remembered(records, rows, "nvidia-h200")
    assert {key: one.strength for key, one in found.items()} == {"w/a/k": 80}
    assert worker_s == {"w": 2.5}
    assert remembered(records, rows, "nvidia-b200") == ({}, {})


def test_what_a_run_by_another_protocol_learnt_is_not_remembered() -> None:
    run = run_record()
    older = {**run, "protocol": {**run["protocol"], "version": PROTOCOL_VERSION - 1}}
    records = [older, row_record("w/a/k")]
    assert remembered(records, [trial_row("a")], "nvidia-h200") == ({}, {})
    # Nor does it correct the strengths of those by this one.
    newer = [run_record("r2"), row_record("w/a/k", run="r2")]
    strong = [reading_record("w/a/k", 0, 0, {"quiet": 0.0, "planted": 0.04})]
    found, _ = remembered([*records, *strong, *newer], [trial_row("a")], "nvidia-h200")
    assert found["w/a/k"].strength == 40


def test_what_a_version_wrote_that_knew_less_is_not_remembered() -> None:
    old = row_record("w/a/k")
    del old["sequence_s"]
    assert remembered([run_record(), old], [trial_row("a")], "nvidia-h200") == ({}, {})


def test_a_row_wants_a_strength_unless_it_has_one_or_was_found_to_have_none() -> None:
    assert known(strength=None).wants_strength
    assert not known(strength=40).wants_strength
    assert not known(strength=None, unplanted="its slope cannot be told").wants_strength
