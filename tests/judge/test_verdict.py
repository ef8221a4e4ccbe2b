"""The rule: flagged, confirmed, the same, or not known; and what to measure next."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench import codec
from tirbench.judge import Policy, decide, incomparable, judge, missing, same_code, settle
from tirbench.model import (
    MeasureMore,
    PairEvidence,
    PairReading,
    PairSide,
    Row,
    Verdict,
)

MakePair: TypeAlias = "Callable[..., PairEvidence]"
TAU_SQ = 0.0005**2
ONE = math.log(1.01)
ROW = Row(workload="w", case="c", implementation="k", role="kernel")
POLICIES = (Policy(), Policy(equal_z=2.33, own_spread=True))


def verdict(pair: PairEvidence) -> Verdict:
    decided = decide(pair, TAU_SQ)
    assert isinstance(decided, Verdict)
    return decided


def more(pair: PairEvidence) -> MeasureMore:
    decided = decide(pair, TAU_SQ)
    assert isinstance(decided, MeasureMore)
    return decided


def test_five_workers_come_first(pair: MakePair) -> None:
    asked = more(pair())
    assert (asked.stage, asked.workers, asked.placement) == ("screen", 5, 0)


def test_a_stage_that_lost_workers_is_filled_up(pair: MakePair) -> None:
    asked = more(pair([0.0] * 3))
    assert (asked.stage, asked.workers, asked.placement) == ("screen", 2, 3)


def test_equal_and_precise_is_the_same(pair: MakePair) -> None:
    found = verdict(pair([0.001] * 5))
    assert (found.kind, found.rule) == ("same", "within-band")
    assert found.reason == "+0.10 % ± 0.15 %; a change of 1 % is excluded"


def test_a_flagged_row_gets_five_fresh_workers(pair: MakePair) -> None:
    asked = more(pair([ONE] * 5))
    assert (asked.stage, asked.workers, asked.placement) == ("confirm", 5, 5)
    assert asked.reason == "+1.00 % ± 0.15 % must show again"


@pytest.mark.parametrize(("sign", "kind"), [(1, "slower"), (-1, "faster")])
def test_what_fresh_workers_see_too_is_a_verdict(pair: MakePair, sign: int, kind: str) -> None:
    found = verdict(pair([sign * ONE] * 5, [sign * 0.8 * ONE] * 5))
    assert (found.kind, found.rule, found.flagged) == (kind, "confirmed", True)
    assert found.screening is not None
    assert found.confirmation is not None
    assert found.estimate is not None
    assert found.estimate.workers == 10


def test_less_than_half_the_threshold_is_never_flagged(pair: MakePair) -> None:
    assert verdict(pair([0.0049] * 5, quad_sd=0.0001)).kind == "same"


def test_what_fresh_workers_do_not_see_is_the_same_where_the_band_excludes_it(
    pair: MakePair,
) -> None:
    assert verdict(pair([0.006] * 5, [0.0] * 5)).rule == "within-band"


def test_what_fresh_workers_do_not_see_is_undecided_where_it_was_large(pair: MakePair) -> None:
    found = verdict(pair([0.02] * 5, [0.0] * 5))
    assert (found.kind, found.rule, found.price_workers) == ("undecided", "unconfirmed", 5)
    assert "seen once and not again by fresh workers; 5 more would decide it" in found.reason


def test_fresh_workers_with_the_other_sign_confirm_nothing(pair: MakePair) -> None:
    assert verdict(pair([0.015] * 5, [-0.015] * 5)).kind == "same"


def test_an_imprecise_row_gets_five_more_workers_once(pair: MakePair) -> None:
    noisy = 0.06  # SE 0.42 % after five workers, 0.3 % after ten
    asked = more(pair([0.006] * 5, quad_sd=noisy))
    assert (asked.stage, asked.workers, asked.placement) == ("screen", 5, 5)
    found = verdict(pair([0.006] * 10, quad_sd=noisy))
    assert (found.kind, found.rule) == ("undecided", "imprecise")
    assert found.price_workers == 13
    assert "the spread between workers is too wide for 1 %; 13 more would decide it" in found.reason


def test_the_price_is_what_the_precision_costs(pair: MakePair) -> None:
    noisy = 0.06
    first = verdict(pair([0.006] * 10, quad_sd=noisy))
    assert first.price_workers is not None
    assert first.estimate is not None
    target = ONE / 5
    spread = first.estimate.standard_error * math.sqrt(10)
    assert spread / math.sqrt(10 + first.price_workers) <= target
    assert spread / math.sqrt(9 + first.price_workers) > target


def test_fifteen_workers_are_the_cap(pair: MakePair) -> None:
    noisy = 0.06
    asked = more(pair([0.012] * 5, [0.005] * 5, quad_sd=noisy))
    assert (asked.stage, asked.workers, asked.placement) == ("confirm", 5, 10)
    assert verdict(pair([0.012] * 5, [0.005] * 10, quad_sd=noisy)).rule == "imprecise"
    asked = more(pair([0.010] * 10, quad_sd=noisy))
    assert (asked.stage, asked.workers) == ("confirm", 5)
    assert verdict(pair([0.010] * 10, [0.004] * 5, quad_sd=noisy)).rule == "imprecise"


def test_the_same_code_is_never_slower(pair: MakePair) -> None:
    assert more(pair([0.02] * 5, same_code=True)).stage == "confirm"
    found = verdict(pair([0.02] * 5, [0.02] * 5, same_code=True))
    assert (found.kind, found.rule, found.flagged) == ("same", "same-code", True)
    assert found.reason.endswith("is environment")


def test_the_same_code_is_not_measured_for_the_sake_of_precision(pair: MakePair) -> None:
    found = verdict(pair([0.006] * 5, quad_sd=0.1, same_code=True))
    assert (found.kind, found.rule, found.flagged) == ("same", "same-code", False)


def test_the_threshold_is_the_only_knob(pair: MakePair) -> None:
    assert more(pair([0.006] * 5, quad_sd=0.005, slower_than=0.005)).stage == "confirm"
    assert verdict(pair([0.006] * 5, quad_sd=0.005, slower_than=0.02)).kind == "same"
    with pytest.raises(ValueError, match="slower_than must be positive"):
        decide(pair([0.0] * 5, slower_than=0.0), TAU_SQ)


def test_more_workers_a_stage_are_asked_for_where_a_plan_says_so(pair: MakePair) -> None:
    decided = decide(pair([0.0] * 5), TAU_SQ, Policy(workers=12))
    assert isinstance(decided, MeasureMore)
    assert decided.workers == 7
    with pytest.raises(ValueError, match="at least 2 workers"):
        Policy(workers=1)


def test_a_row_that_cannot_be_measured_further_says_what_was_wanted(pair: MakePair) -> None:
    found = settle(pair([ONE] * 5), TAU_SQ, "the workers crashed")
    assert (found.kind, found.rule, found.price_workers) == ("undecided", "interrupted", 5)
    assert found.reason == (
        "the workers crashed; 5 more workers were wanted: +1.00 % ± 0.15 % must show again"
    )
    assert settle(pair([0.0] * 5), TAU_SQ, "unused").kind == "same"
    assert settle(pair(), TAU_SQ, "no device").estimate is None
    assert settle(pair([ONE] * 5, same_code=True), TAU_SQ, "no device").kind == "same"


def test_rows_are_judged_with_the_spread_of_their_suite(pair: MakePair) -> None:
    scattered = pair([-0.01, 0.01, -0.01, 0.01, 0.0])
    alone = judge([pair([0.006] * 5)])[0]
    beside = judge([pair([0.006] * 5), scattered, scattered])[0]
    assert isinstance(alone, MeasureMore)
    assert (alone.stage, alone.reason) == ("confirm", "+0.60 % ± 0.15 % must show again")
    assert isinstance(beside, MeasureMore)
    assert beside.stage == "screen"


READINGS = st.builds(
    PairReading,
    placement=st.integers(0, 20),
    log_ratio=st.floats(-0.03, 0.03),
    quad_variance=st.floats(0, 0.05).map(lambda sd: sd * sd),
    quads=st.integers(2, 90),
)
PAIRS = st.builds(
    PairEvidence,
    row=st.just(ROW),
    slower_than=st.sampled_from([0.005, 0.01, 0.03]),
    same_code=st.booleans(),
    screening=st.lists(READINGS, max_size=10).map(tuple),
    confirming=st.lists(READINGS, max_size=10).map(tuple),
)
MIRRORED = {"slower": "faster", "faster": "slower"}


def mirror(pair: PairEvidence) -> PairEvidence:
    def turned(readings: tuple[PairReading, ...]) -> tuple[PairReading, ...]:
        return tuple(replace(reading, log_ratio=-reading.log_ratio) for reading in readings)

    return replace(pair, screening=turned(pair.screening), confirming=turned(pair.confirming))


@given(st.lists(PAIRS, min_size=1, max_size=4), st.sampled_from(POLICIES))
def test_swapping_the_sides_mirrors_the_verdict(pairs: list[PairEvidence], policy: Policy) -> None:
    for one, other in zip(
        judge(pairs, policy), judge([mirror(pair) for pair in pairs], policy), strict=True
    ):
        if isinstance(one, MeasureMore):
            assert isinstance(other, MeasureMore)
            assert replace(other, reason="") == replace(one, reason="")
            continue
        assert isinstance(other, Verdict)
        assert other.kind == MIRRORED.get(one.kind, one.kind)
        assert (other.rule, other.flagged, other.price_workers) == (
            one.rule,
            one.flagged,
            one.price_workers,
        )


@given(PAIRS)
def test_the_same_code_is_never_slower_nor_faster_whatever_was_measured(pair: PairEvidence) -> None:
    decided = decide(replace(pair, same_code=True), TAU_SQ)
    assert isinstance(decided, MeasureMore) or decided.kind == "same"


@given(PAIRS)
def test_a_precise_row_that_is_not_flagged_is_decided(pair: PairEvidence) -> None:
    decided = decide(pair, TAU_SQ)
    if isinstance(decided, Verdict) and decided.rule == "imprecise":
        assert decided.estimate is not None
        assert decided.estimate.standard_error > math.log1p(pair.slower_than) / 5


@given(PAIRS)
def test_a_verdict_survives_being_written(pair: PairEvidence) -> None:
    decided = settle(pair, TAU_SQ, "stopped")
    assert codec.load(Verdict, codec.dump(decided)) == decided


@given(st.integers(0, 2**32), st.floats(-0.03, 0.03), st.floats(0, 0.1))
def test_every_row_ends_in_a_verdict_within_fifteen_workers(
    seed: int, effect: float, quad_sd: float
) -> None:
    draw = random.Random(seed)  # noqa: S311 - a simulation, no secret
    pair = PairEvidence(row=ROW)
    for _ in range(4):
        decided = decide(pair, TAU_SQ)
        if isinstance(decided, Verdict):
            break
        fresh = tuple(
            PairReading(
                placement=decided.placement + k,
                log_ratio=draw.gauss(effect, quad_sd / 6),
                quad_variance=quad_sd**2,
                quads=36,
            )
            for k in range(decided.workers)
        )
        if decided.stage == "screen":
            pair = replace(pair, screening=(*pair.screening, *fresh))
        else:
            pair = replace(pair, confirming=(*pair.confirming, *fresh))
    assert isinstance(decide(pair, TAU_SQ), Verdict)
    readings = (*pair.screening, *pair.confirming)
    assert len(readings) <= 15
    assert len({reading.placement for reading in readings}) == len(readings)


# --- Sides ----------------------------------------------------------------------------------------


def test_sides_that_differ_cannot_be_compared_and_say_why(row: Row, side: PairSide) -> None:
    other = replace(
        side, problem="bb", l2="warm", settings=(("allow_tf32", "True"), ("freezing", "on"))
    )
    found = incomparable(row, side, other)
    assert found is not None
    assert (found.kind, found.rule) == ("incomparable", "incomparable")
    assert found.reason == (
        "another problem, l2 cold-dirty → warm, allow_tf32 False → True, freezing unset → on"
    )
    back = incomparable(row, other, side)
    assert back is not None
    assert back.kind == "incomparable"


def test_sides_of_other_code_can_be_compared(row: Row, side: PairSide) -> None:
    assert incomparable(row, side, replace(side, code="sass:4567", launch="dd")) is None


def test_a_row_that_one_side_lacks_is_missing(row: Row) -> None:
    found = missing(row, "base", "added since")
    assert (found.kind, found.reason) == ("missing", "base has no such row: added since")


@pytest.mark.parametrize(
    ("base", "head", "same"),
    [
        ({}, {}, True),
        ({}, {"code": "sass:4567"}, False),
        ({}, {"launch": "dd"}, False),
        ({"timer": "event"}, {"timer": "event"}, False),
        ({"code": "names:gemm"}, {"code": "names:gemm"}, False),
        ({"code": ""}, {"code": ""}, False),
        ({"code": "src:1"}, {"code": "src:1"}, True),
    ],
)
def test_the_same_code_is_machine_code_and_launch_under_a_timer_of_the_gpu(
    side: PairSide, base: dict[str, str], head: dict[str, str], same: bool
) -> None:
    assert same_code(replace(side, **base), replace(side, **head)) is same  # type: ignore[arg-type]
