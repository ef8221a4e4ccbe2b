"""Pinning: sticky numbers, honest anchors, nothing deleted by a partial run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.bands import LIMITS, OTHER_UNIT, band
from tirbench.errors import UsageError
from tirbench.model import Baseline, Failed, Machine, Outcome, Row, Skipped, Timed, Verified, Wrong
from tirbench.store.baseline import is_sealed, render_baseline, rounded
from tirbench.store.pin import UNCOMMITTED, Pinning, apply, plan_pin

MakeTimed: TypeAlias = "Callable[..., Timed]"
KEY = ("hs4096_bs128", "triton")
TIMES = st.floats(min_value=0.5, max_value=1e6)
CASES = st.sampled_from(["a", "b", "c=1", "d.2"])
NAMES = st.sampled_from(["triton", "torch", "compiled"])


def pinned(outcomes: list[Timed], machine: Machine, baseline: Baseline | None = None) -> Baseline:
    plan = plan_pin("rmsnorm", baseline, outcomes, Pinning(machine=machine))
    assert plan.confirm == ()
    return apply(plan).baseline


def test_a_new_row_is_added_with_its_own_time_as_the_anchor(
    timed: MakeTimed, machine: Machine
) -> None:
    (row,) = pinned([timed(3.41234)], machine).rows
    assert (row.midmean_us, row.anchor_us) == (3.412, 3.412)
    assert row.env == "driver 580.159 · torch 2.11.0 · triton 3.6.0"
    assert row.resources == (("registers", 32), ("shared_bytes", 128), ("spills", 0))
    assert is_sealed(row)


@given(rows=st.dictionaries(st.tuples(CASES, NAMES), TIMES, min_size=1))
def test_pinning_the_same_run_twice_changes_no_byte(
    rows: dict[tuple[str, str], float], timed: MakeTimed, machine: Machine
) -> None:
    run = [timed(time, case, name) for (case, name), time in rows.items()]
    once = pinned(run, machine)
    assert [(row.case, row.implementation) for row in once.rows] == sorted(rows)
    assert render_baseline(pinned(run, machine, once)) == render_baseline(once)


@given(time=TIMES, share=st.floats(min_value=-0.97, max_value=0.97))
def test_a_time_within_the_band_changes_no_number_and_the_rest_follows(
    time: float, share: float, timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(time)], machine)
    old = base.rows[0]
    # Half a unit of the fourth digit may be lost twice; the share leaves room for it.
    new = timed(old.midmean_us * (1 + share * (old.band - 0.001)), source="00000000000000dd")
    later = replace(machine, versions=(("torch", "2.12.0"),))
    (row,) = pinned([new], later, base).rows
    assert row == replace(
        old, source="00000000000000dd", env="torch 2.12.0", seal=row.seal, unit=old.unit
    )
    assert is_sealed(row)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_time_outside_the_band_is_asked_to_be_confirmed_and_nothing_is_written_before(
    factor: float, timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(100.0)], machine)
    plan = plan_pin("rmsnorm", base, [timed(100.0 * factor)], Pinning(machine=machine))
    assert plan.confirm == (KEY,)
    assert plan.changes == ()
    kept = apply(plan)
    assert kept.baseline == base
    assert kept.changes[0].why == "outside its band, but not measured again"


def test_a_confirmed_time_is_rewritten_with_the_number_of_the_fresh_workers(
    timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(100.0)], machine)
    plan = plan_pin("rmsnorm", base, [timed(112.0)], Pinning(machine=machine))
    result = apply(plan, [timed(109.0)])
    (change,) = result.changes
    assert change.kind == "rewritten"
    assert (change.row.midmean_us, change.row.anchor_us) == (109.0, 100.0)
    assert is_sealed(change.row)


@pytest.mark.parametrize("again", [100.2, 88.0])
def test_a_time_that_is_back_within_the_band_or_on_the_other_side_keeps_its_number(
    again: float, timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(100.0)], machine)
    plan = plan_pin("rmsnorm", base, [timed(112.0)], Pinning(machine=machine))
    (change,) = apply(plan, [timed(again)]).changes
    assert change.kind == "kept"
    assert change.row.midmean_us == 100.0


@given(steps=st.lists(st.floats(min_value=0.5, max_value=2), min_size=1, max_size=6))
def test_the_anchor_never_rises_without_being_told(
    steps: list[float], timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(100.0)], machine)
    time = 100.0
    for step in steps:
        time *= step
        before = base.rows[0].anchor_us
        plan = plan_pin("rmsnorm", base, [timed(time)], Pinning(machine=machine))
        base = apply(plan, [timed(time)]).baseline
        assert base.rows[0].anchor_us <= before
        assert base.rows[0].anchor_us <= base.rows[0].midmean_us


def test_accepting_a_slower_time_raises_the_anchor_and_keeps_the_reason(
    timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(100.0)], machine)
    told = Pinning(machine=machine, accept=((KEY, "checks its input now"),))
    plan = plan_pin("rmsnorm", base, [timed(130.0)], told)
    assert plan.confirm == ()
    (row,) = apply(plan).baseline.rows
    assert (row.midmean_us, row.anchor_us, row.reason) == (130.0, 130.0, "checks its input now")
    (later,) = pinned([timed(130.1)], machine, apply(plan).baseline).rows
    assert later == row


def test_accepting_needs_a_time_and_a_reason(timed: MakeTimed, machine: Machine) -> None:
    with pytest.raises(UsageError, match="the run has no time of it"):
        plan_pin("rmsnorm", None, [], Pinning(machine=machine, accept=((KEY, "why"),)))
    with pytest.raises(UsageError, match="needs a reason"):
        plan_pin("rmsnorm", None, [timed()], Pinning(machine=machine, accept=((KEY, " "),)))


@pytest.mark.parametrize("field", ["problem", "protocol"])
def test_another_problem_or_protocol_replaces_number_and_anchor(
    field: str, timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(100.0)], machine)
    (row,) = pinned([timed(150.0, **{field: "00000000000000ee"})], machine, base).rows
    assert (row.midmean_us, row.anchor_us) == (150.0, 150.0)


def test_a_row_edited_by_hand_is_measured_anew_and_its_anchor_stays(
    timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(100.0)], machine)
    edited = replace(base, rows=(replace(base.rows[0], midmean_us=120.0),))
    plan = plan_pin("rmsnorm", edited, [timed(120.0)], Pinning(machine=machine))
    (change,) = plan.changes
    assert change.kind == "replaced"
    assert "seal" in change.why
    assert (change.row.midmean_us, change.row.anchor_us) == (120.0, 100.0)


def test_another_unit_of_the_product_is_judged_wider(timed: MakeTimed, machine: Machine) -> None:
    base = pinned([timed(100.0)], machine)
    old = base.rows[0]
    shifted = [timed(100.0 * (1 + old.band + 0.9 * OTHER_UNIT))]
    other = replace(machine, unit="other")
    assert plan_pin("rmsnorm", base, shifted, Pinning(machine=machine)).confirm == (KEY,)
    (row,) = pinned(shifted, other, base).rows
    assert (row.midmean_us, row.unit) == (100.0, "3f9a")


def outcomes_that_are_no_times() -> list[Outcome]:
    def row(name: str) -> Row:
        return Row(workload="rmsnorm", case="hs4096_bs128", implementation=name, role="kernel")

    return [
        Wrong(row=row("wrong"), reason="y: 12 of 96 elements off", stage="verify"),
        Failed(row=row("failed"), stage="build", reason="ImportError: no module named x"),
        Skipped(row=row("skipped"), reason="needs device cuda"),
    ]


def test_a_row_that_is_wrong_failed_or_skipped_is_never_pinned_and_says_why(
    timed: MakeTimed, machine: Machine
) -> None:
    verified = Verified(
        row=replace(timed().row, implementation="verified"),
        verification=timed().verification,
        untimed="verified in the interpreter",
    )
    plan = plan_pin(
        "rmsnorm", None, [*outcomes_that_are_no_times(), verified], Pinning(machine=machine)
    )
    assert apply(plan).baseline.rows == ()
    assert [(key[1], reason) for key, reason in plan.refused] == [
        ("failed", "failed: ImportError: no module named x"),
        ("skipped", "skipped: needs device cuda"),
        ("verified", "verified: verified in the interpreter"),
        ("wrong", "wrong: y: 12 of 96 elements off"),
    ]


def test_a_row_that_turns_wrong_keeps_what_was_pinned(timed: MakeTimed, machine: Machine) -> None:
    base = pinned([timed(100.0)], machine)
    wrong = Wrong(row=timed().row, reason="y: all zero", stage="reverify")
    assert apply(plan_pin("rmsnorm", base, [wrong], Pinning(machine=machine))).baseline == base


def test_a_partial_run_deletes_nothing_and_orphans_are_listed(
    timed: MakeTimed, machine: Machine
) -> None:
    base = pinned([timed(1.0, "a"), timed(2.0, "b"), timed(3.0, "gone")], machine)
    known = frozenset({("a", "triton"), ("b", "triton")})
    plan = plan_pin("rmsnorm", base, [timed(1.0, "a")], Pinning(machine=machine, known=known))
    assert plan.orphans == (("gone", "triton"),)
    assert apply(plan).baseline == base
    pruned = apply(plan, prune=True).baseline
    assert [row.case for row in pruned.rows] == ["a", "b"]


def test_outcomes_of_other_workloads_are_left_out(timed: MakeTimed, machine: Machine) -> None:
    other = timed()
    other = replace(other, row=replace(other.row, workload="softmax"))
    assert apply(plan_pin("rmsnorm", None, [other], Pinning(machine=machine))).baseline.rows == ()


def test_a_kernel_gets_its_ratio_to_the_reference_of_the_gate(
    timed: MakeTimed, machine: Machine
) -> None:
    run = [timed(4.0), timed(5.0, implementation="torch", role="reference")]
    plan = plan_pin("rmsnorm", None, run, Pinning(machine=machine, reference="torch"))
    kernel, reference = sorted(apply(plan).baseline.rows, key=lambda row: row.implementation)[::-1]
    assert (kernel.ratio, reference.ratio) == (0.8, None)
    assert kernel.ratio_band == rounded(band((0.002, 0.002), 5))


def test_a_ratio_that_moves_is_confirmed_together_with_its_reference(
    timed: MakeTimed, machine: Machine
) -> None:
    def run(reference_us: float) -> list[Timed]:
        return [timed(4.0), timed(reference_us, implementation="torch", role="reference")]

    pinning = Pinning(machine=machine, reference="torch")
    base = apply(plan_pin("rmsnorm", None, run(5.0), pinning)).baseline
    plan = plan_pin("rmsnorm", base, run(4.0), pinning)
    assert plan.to_measure == ((KEY[0], "torch"), KEY)
    rows = {row.implementation: row for row in apply(plan, run(4.0)).baseline.rows}
    assert (rows["triton"].midmean_us, rows["triton"].ratio) == (4.0, 1.0)
    assert (rows["torch"].midmean_us, rows["torch"].anchor_us) == (4.0, 4.0)


def test_an_uncommitted_tree_is_said_in_each_row_and_forgotten_when_clean(
    timed: MakeTimed, machine: Machine
) -> None:
    told = Pinning(machine=machine, uncommitted=True)
    base = apply(plan_pin("rmsnorm", None, [timed()], told)).baseline
    assert base.rows[0].reason == UNCOMMITTED
    again = apply(plan_pin("rmsnorm", base, [timed()], told)).baseline
    assert render_baseline(again) == render_baseline(base)
    assert pinned([timed()], machine, base).rows[0].reason is None


def test_an_unchecked_row_says_so(timed: MakeTimed, machine: Machine) -> None:
    (row,) = pinned([timed(method="unchecked")], machine).rows
    assert row.reason == "not checked: no oracle"


def test_a_discarded_row_is_refused_with_its_reason(timed: MakeTimed, machine: Machine) -> None:
    pinning = Pinning(machine=machine, discard=((KEY, "thermal slowdown"),))
    plan = plan_pin("rmsnorm", None, [timed()], pinning)
    assert plan.refused == ((KEY, "thermal slowdown"),)


def test_a_baseline_of_other_hardware_is_no_baseline(timed: MakeTimed, machine: Machine) -> None:
    base = Baseline(workload="rmsnorm", hardware="nvidia-b200", rows=())
    with pytest.raises(ValueError, match="nvidia-b200"):
        plan_pin("rmsnorm", base, [timed()], Pinning(machine=machine))


@given(sds=st.lists(st.floats(0, 1), min_size=1, max_size=2), placements=st.integers(1, 30))
def test_a_band_lies_between_half_a_percent_and_five(sds: list[float], placements: int) -> None:
    assert LIMITS[0] <= band(sds, placements) <= LIMITS[1]


def test_the_band_is_three_standard_deviations_of_a_difference() -> None:
    assert band((0.002,), 5) == pytest.approx(3 * (2 * 0.002**2 / 5 + 0.003**2) ** 0.5)
