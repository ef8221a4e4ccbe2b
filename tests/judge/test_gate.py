"""The gate of a row with a GPU: first match wins, and no pin alone fails a row."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.judge import GateFacts, exit_code, gate, same_code_as_pinned
from tirbench.model import (
    Cause,
    CodeFacts,
    Environment,
    Estimate,
    Failed,
    GateDecision,
    GateStep,
    Outcome,
    PinnedRow,
    Row,
    Skipped,
    Stage,
    Timed,
    Verdict,
    VerdictKind,
    Verification,
    Verified,
    Wrong,
)

MakeEstimate: TypeAlias = "Callable[[float], Estimate]"
MakeFacts: TypeAlias = "Callable[..., GateFacts]"
QUIET = Environment(rows=12, flagged=0, shift=0.001)
CHECKED = Verification(method="oracle", worst=0.2)


@pytest.fixture(scope="session")
def timed(row: Row, estimate: MakeEstimate) -> Callable[[float], Timed]:
    return lambda us: Timed(
        row=row,
        verification=CHECKED,
        estimate=estimate(us),
        code=CodeFacts(digest="sass:0123"),
        source="cc",
    )


@pytest.fixture(scope="session")
def facts(pin: PinnedRow, timed: Callable[[float], Timed]) -> MakeFacts:
    def make(us: float = 10.0, **given: Any) -> GateFacts:
        known: dict[str, Any] = {
            "case": pin.case,
            "implementation": pin.implementation,
            "pinned": pin,
            "pinned_on": "nvidia-h200",
            "problem": "aa",
            "protocol": "bb",
            "hardware": "nvidia-h200",
            "outcome": timed(us),
            "environment": QUIET,
        }
        return GateFacts(**{**known, **given})

    return make


def verdict(row: Row, kind: VerdictKind) -> Verdict:
    return Verdict(row=row, kind=kind, rule="confirmed", reason="as measured")


def decided(facts: GateFacts) -> GateDecision:
    answer = gate(facts)
    assert isinstance(answer, GateDecision)
    return answer


def step(facts: GateFacts) -> GateStep:
    answer = gate(facts)
    assert isinstance(answer, GateStep)
    return answer


@pytest.mark.parametrize(
    ("us", "rule", "reason"),
    [
        (10.0, "same", "+0.00 %, within its band of 1.2 %"),
        (10.11, "same", "+1.10 %, within its band of 1.2 %"),
        (9.7, "faster", "-3.00 %: faster, pin to keep it"),
    ],
)
def test_a_time_near_its_pin_passes(facts: MakeFacts, us: float, rule: str, reason: str) -> None:
    answer = decided(facts(us))
    assert (answer.exit_code, answer.rule, answer.reason) == (0, rule, reason)
    assert answer.ratio == pytest.approx(us / 10)


def test_slower_than_the_band_and_not_than_the_threshold_is_within_the_gate(
    facts: MakeFacts, pin: PinnedRow
) -> None:
    answer = decided(facts(10.08, pinned=replace(pin, band=0.005)))
    assert (answer.exit_code, answer.rule) == (0, "within-gate")
    assert answer.reason == "+0.80 %: slower, within gate"


@pytest.mark.parametrize(
    ("given", "rule", "code"),
    [
        ({"pinned": None}, "missing", 1),
        ({"known": False}, "orphan", 1),
        ({"sealed": False}, "seal", 1),
        ({"problem": "other"}, "stale", 1),
        ({"protocol": "other"}, "stale", 1),
        ({"hardware": "nvidia-b200"}, "hardware", 3),
        ({"outcome": None}, "unmeasured", 3),
    ],
)
def test_what_makes_a_pin_useless_is_said_before_any_time(
    facts: MakeFacts, given: dict[str, Any], rule: str, code: int
) -> None:
    answer = decided(facts(20.0, **given))
    assert (answer.rule, answer.exit_code) == (rule, code)
    assert answer.kind == {1: "fail", 3: "could not"}[code]


def test_the_first_match_wins(facts: MakeFacts, row: Row) -> None:
    wrong = Wrong(row=row, reason="y: 12 elements off", stage="verify")
    everything: dict[str, Any] = {
        "known": False,
        "sealed": False,
        "problem": "other",
        "outcome": wrong,
        "hardware": "nvidia-b200",
    }
    calm: dict[str, Any] = {
        "known": True,
        "sealed": True,
        "problem": "aa",
        "outcome": facts().outcome,
        "hardware": "nvidia-h200",
    }
    seen = []
    for name in everything:
        seen.append(decided(facts(**everything)).rule)
        everything[name] = calm[name]
    assert seen == ["orphan", "seal", "stale", "wrong", "hardware"]


@pytest.mark.parametrize(
    ("stage", "cause", "code"),
    [
        ("verify", "crashed", 1),
        ("time", "crashed", 1),
        ("time", "hung", 1),
        ("build", "raised", 1),
        ("reverify", "raised", 1),
        ("load", "raised", 3),
        ("allocate", "raised", 3),
        ("time", "raised", 3),
        ("build", "out_of_memory", 3),
        ("time", "interfered", 3),
        ("time", "throttled", 3),
        ("load", "unavailable", 3),
    ],
)
def test_a_failure_is_the_authors_or_the_machines(
    facts: MakeFacts, row: Row, stage: Stage, cause: Cause, code: int
) -> None:
    outcome = Failed(row=row, stage=stage, reason="as it was said", cause=cause)
    assert decided(facts(outcome=outcome)).exit_code == code


@pytest.mark.parametrize("reason", ["crashed: SIGSEGV", "ModuleNotFoundError: no deep_gemm"])
def test_words_of_a_reason_decide_nothing(facts: MakeFacts, row: Row, reason: str) -> None:
    outcome = Failed(row=row, stage="time", reason=reason, cause="interfered")
    assert decided(facts(outcome=outcome)).exit_code == 3
    outcome = Failed(row=row, stage="build", reason=reason, cause="raised")
    assert decided(facts(outcome=outcome)).exit_code == 1


@pytest.mark.parametrize("cause", ["raised", "crashed", "hung"])
def test_a_reference_that_fails_or_is_wrong_is_no_fault_of_the_author(
    facts: MakeFacts, row: Row, cause: Cause
) -> None:
    reference = replace(row, role="reference")
    failed = Failed(row=reference, stage="build", reason="not for this device", cause=cause)
    wrong = Wrong(row=reference, reason="y: 12 elements off", stage="verify")
    for outcome in (failed, wrong):
        answer = decided(facts(outcome=outcome))
        assert (answer.exit_code, answer.rule) == (3, "unmeasured")


def test_rows_without_a_time_could_not_be_measured(facts: MakeFacts, row: Row) -> None:
    outcomes: tuple[Outcome, ...] = (
        Skipped(row=row, reason="needs capability 10.0"),
        Verified(row=row, verification=CHECKED, untimed="verified in the interpreter"),
    )
    for outcome in outcomes:
        assert decided(facts(outcome=outcome)).exit_code == 3


def test_a_trip_while_unchanged_rows_moved_is_the_environments(facts: MakeFacts) -> None:
    moved = Environment(rows=5, flagged=0, shift=0.006)
    answer = decided(facts(10.5, environment=moved))
    assert (answer.exit_code, answer.rule) == (3, "environment")
    assert answer.reason == (
        "+5.00 % to its pin, beyond 1.2 %; but 5 rows of unchanged code moved by +0.6 %"
    )
    assert step(facts(10.5, environment=replace(moved, rows=4))).step == "confirm"
    assert step(facts(10.5, environment=replace(moved, shift=0.004))).step == "confirm"
    assert decided(facts(10.0, environment=moved)).exit_code == 0


def test_a_trip_of_the_same_code_is_measured_again(
    facts: MakeFacts, estimate: MakeEstimate
) -> None:
    assert step(facts(10.5, same_code=True)).step == "again"
    still = decided(facts(10.5, same_code=True, again=estimate(10.4)))
    assert (still.exit_code, still.rule) == (3, "environment")
    back = decided(facts(10.5, same_code=True, again=estimate(10.05)))
    assert (back.exit_code, back.rule) == (0, "recovered")


@pytest.mark.parametrize(
    ("kind", "code", "rule"),
    [
        ("slower", 1, "confirmed"),
        ("same", 0, "not-code"),
        ("faster", 0, "not-code"),
        ("undecided", 3, "undecided"),
    ],
)
def test_a_trip_of_changed_code_is_what_ab_says(
    facts: MakeFacts, row: Row, kind: VerdictKind, code: int, rule: str
) -> None:
    assert step(facts(10.5)).step == "confirm"
    answer = decided(facts(10.5, confirmation=verdict(row, kind)))
    assert (answer.exit_code, answer.rule) == (code, rule)


@pytest.mark.parametrize("kind", ["incomparable", "missing"])
def test_old_code_that_cannot_run_leaves_ten_placements(
    facts: MakeFacts, row: Row, estimate: MakeEstimate, kind: VerdictKind
) -> None:
    tripped = facts(10.5, confirmation=verdict(row, kind))
    assert step(tripped).step == "unpaired"
    assert step(facts(10.5, confirmable=False)).step == "unpaired"
    still = decided(replace(tripped, unpaired=estimate(10.4)))
    assert (still.exit_code, still.rule) == (1, "unpaired")
    assert decided(replace(tripped, unpaired=estimate(10.1))).rule == "recovered"


def test_a_threshold_that_the_machine_cannot_resolve_is_refused_before_any_time_is_judged(
    facts: MakeFacts,
) -> None:
    said = "the self-test missed 40 of 100; slower_than = 0.02 would be resolved"
    for us in (10.0, 20.0):
        answer = decided(facts(us, unresolved=said))
        assert (answer.exit_code, answer.rule) == (3, "unresolved")
        assert answer.reason == f"1 % cannot be resolved here: {said}"
    assert decided(facts(unresolved=said, problem="other")).rule == "stale"
    assert decided(facts(unresolved=said, hardware="nvidia-b200")).rule == "hardware"


def test_small_losses_that_add_up_are_compared_with_the_code_of_the_anchor(
    facts: MakeFacts, pin: PinnedRow, row: Row
) -> None:
    """Each step was within what a pin allows: the code of the last pin would call it the same."""
    crept = facts(10.05, pinned=replace(pin, anchor_us=9.8))
    for same_code in (False, True):
        asked = step(replace(crept, same_code=same_code))
        assert (asked.step, asked.against) == ("confirm", "anchor")
        assert asked.reason == "+2.55 % to its anchor, beyond 2 %"
    answer = decided(replace(crept, confirmation=verdict(row, "slower")))
    assert (answer.exit_code, answer.rule) == (1, "confirmed")
    assert answer.reason.endswith("; `tirbench pin --accept` with a reason takes it as it is")


def test_the_code_of_the_anchor_that_is_slower_today_is_environment(
    facts: MakeFacts, pin: PinnedRow, estimate: MakeEstimate
) -> None:
    crept = facts(10.05, pinned=replace(pin, anchor_us=9.8), same_code_as_anchor=True)
    assert step(crept).step == "again"
    still = decided(replace(crept, again=estimate(10.04)))
    assert (still.exit_code, still.rule) == (3, "environment")


def test_beyond_both_limits_the_code_of_the_last_pin_decides(
    facts: MakeFacts, pin: PinnedRow
) -> None:
    asked = step(facts(10.5, pinned=replace(pin, anchor_us=9.8)))
    assert (asked.step, asked.against) == ("confirm", "pin")
    assert step(facts(10.5, pinned=replace(pin, anchor_us=9.8), same_code=True)).step == "again"


def test_a_pin_that_is_its_anchor_is_compared_as_a_pin(facts: MakeFacts, pin: PinnedRow) -> None:
    wide = replace(pin, band=0.05)
    asked = step(facts(10.3, pinned=wide))
    assert (asked.step, asked.against) == ("confirm", "pin")
    assert step(facts(10.3, pinned=wide, same_code=True)).step == "again"


def test_a_pin_of_another_unit_is_judged_wider(facts: MakeFacts) -> None:
    assert step(facts(10.18)).step == "confirm"
    assert decided(facts(10.18, unit_allowance=0.01)).rule == "same"


def test_the_code_of_a_pin_is_what_runs_and_what_it_is_launched_from(
    pin: PinnedRow, timed: Callable[[float], Timed]
) -> None:
    assert same_code_as_pinned(pin, timed(10.0))
    assert not same_code_as_pinned(pin, replace(timed(10.0), source="other"))
    other = CodeFacts(digest="sass:4567")
    assert not same_code_as_pinned(pin, replace(timed(10.0), code=other))
    tuned = CodeFacts(digest="sass:0123", configuration="BLOCK=128")
    assert not same_code_as_pinned(pin, replace(timed(10.0), code=tuned))
    sourced = replace(pin, code="src:cc")
    assert same_code_as_pinned(sourced, replace(timed(10.0), code=None))


def test_two_comes_before_one_before_three_before_nothing() -> None:
    def decisions(codes: tuple[Any, ...]) -> list[GateDecision]:
        return [
            GateDecision(case="c", implementation="k", exit_code=code, rule="same", reason="")
            for code in codes
        ]

    for codes in itertools.permutations((0, 1, 3)):
        assert exit_code(decisions(codes)) == 1
        assert exit_code(decisions(codes), invalid=True) == 2
    assert exit_code(decisions((0, 3, 0))) == 3
    assert exit_code(decisions((0, 0))) == 0
    assert exit_code([]) == 0


@given(st.floats(0.5, 20), st.floats(0.005, 0.05), st.floats(0.001, 0.1))
def test_the_gate_never_fails_a_row_by_its_pin_alone(
    facts: MakeFacts, pin: PinnedRow, us: float, band: float, slower_than: float
) -> None:
    for same_code in (False, True):
        answer = gate(
            facts(us, pinned=replace(pin, band=band), slower_than=slower_than, same_code=same_code)
        )
        assert isinstance(answer, GateStep) or answer.exit_code == 0
        if us <= 10.0:
            assert isinstance(answer, GateDecision)
