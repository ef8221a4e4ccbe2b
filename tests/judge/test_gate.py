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
    ("stage", "reason", "role", "code"),
    [
        ("verify", "crashed: SIGSEGV", "kernel", 1),
        ("time", "hung: no progress in 60 s in stage time", "kernel", 1),
        ("build", "CompilationError: at 3:4", "kernel", 1),
        ("build", "ModuleNotFoundError: no module named deep_gemm", "kernel", 3),
        ("build", "RuntimeError: not for this device", "reference", 3),
        ("allocate", "TirbenchError: 200 GiB do not fit", "kernel", 3),
        ("time", "AttributionError: no record of the kernel", "kernel", 3),
    ],
)
def test_a_failure_is_the_authors_or_the_machines(
    facts: MakeFacts, row: Row, stage: Any, reason: str, role: Any, code: int
) -> None:
    outcome = Failed(row=replace(row, role=role), stage=stage, reason=reason)
    assert decided(facts(outcome=outcome)).exit_code == code


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


def test_small_losses_that_add_up_trip_at_the_anchor(facts: MakeFacts, pin: PinnedRow) -> None:
    crept = replace(pin, anchor_us=9.8)
    asked = step(facts(10.05, pinned=crept))
    assert asked.step == "confirm"
    assert asked.reason == "+2.55 % to its anchor, beyond 2 %"


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
