"""Order and pace: what is launched when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.model import Regime
from tirbench.timing import budgets, schedule
from tirbench.timing.fake import FakeGpu
from tirbench.timing.plan import Block, Call, Pilot, Plan, Rest
from tirbench.timing.schedule import BURST_REST_S, BURST_WORK_US, Pacer

FakeBench: TypeAlias = Callable[..., dict[str, Any]]


def pilot(us: float, flush_us: float = 65.0) -> Pilot:
    return Pilot(budget_us=us + flush_us, cycle_us=us + flush_us, launch_us=us)


def call(name: str) -> Call:
    return Call(name=name, launch=lambda: None)


def interleave(
    durations_us: dict[str, float], count: int, *, regime: Any = None, reverse: bool = False
) -> Plan:
    pilots = {name: pilot(us) for name, us in durations_us.items()}
    shape = schedule.block_shape("proton", pilot(max(durations_us.values())), regime)
    calls = [call(name) for name in durations_us]
    return schedule.interleaved(calls, pilots, count, shape, Pacer(regime=regime), reverse=reverse)


def order_of(plan: Plan) -> str:
    return "".join(block.call.name for block in plan.blocks())


def test_two_arms_alternate_in_abba_quads() -> None:
    assert order_of(interleave({"a": 5, "b": 6}, 16)) == "abbaabba"
    assert order_of(interleave({"a": 5, "b": 6}, 16, reverse=True)) == "baabbaab"


def test_three_arms_go_there_and_back() -> None:
    assert order_of(interleave({"a": 5, "b": 6, "c": 7}, 8)) == "abccba"


def test_short_calls_come_in_one_discarded_and_four_kept() -> None:
    blocks = list(interleave({"a": 5, "b": 6}, 10).blocks())
    assert [(block.discarded, block.kept) for block in blocks] == [(1, 4)] * 4 + [(1, 2)] * 2


def test_long_calls_come_singly() -> None:
    blocks = list(interleave({"a": 260, "b": 300}, 4).blocks())
    assert [(block.discarded, block.kept) for block in blocks] == [(0, 1)] * 8


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(1.0, 3000.0), min_size=1),
    st.integers(1, 60),
    st.booleans(),
    st.sampled_from([None, "burst"]),
)
def test_every_arm_gets_exactly_its_calls_in_balanced_positions(
    durations_us: dict[str, float], count: int, reverse: bool, regime: Any
) -> None:
    plan = interleave(durations_us, count, regime=regime, reverse=reverse)
    kept: Counter[str] = Counter()
    for block in plan.blocks():
        kept[block.call.name] += block.kept
    assert kept == dict.fromkeys(durations_us, count)
    order = order_of(plan)
    quad = 2 * len(durations_us)
    for start in range(0, len(order) - quad + 1, quad):
        assert order[start : start + quad] == order[start : start + quad][::-1]


@given(st.lists(st.floats(1.0, 40_000.0), min_size=1, max_size=60))
def test_a_burst_never_outlasts_its_work(works_us: list[float]) -> None:
    pacer = Pacer(regime="burst")
    spent_us = 0.0
    for work_us in works_us:
        rests = pacer.spend(work_us)
        assert all(rest.seconds >= BURST_REST_S for rest in rests)
        spent_us = work_us if rests else spent_us + work_us
        assert spent_us <= max(BURST_WORK_US, work_us)


def test_no_regime_and_the_sustained_one_never_rest() -> None:
    regimes: tuple[Regime | None, ...] = (None, "sustained")
    for regime in regimes:
        pacer = Pacer(regime=regime)
        assert not any(pacer.spend(10_000.0) for _ in range(100))


def test_a_cooldown_that_is_long_enough_starts_a_new_burst() -> None:
    pacer = Pacer(regime="burst")
    pacer.spend(14_000.0)
    pacer.rested(0.001)
    assert pacer.spend(2_000.0)
    pacer.spend(12_000.0)
    pacer.rested(0.02)
    assert not pacer.spend(14_000.0)


def test_rests_fall_between_quads_that_fit_into_a_burst() -> None:
    plan = interleave({"a": 200, "b": 200}, 80, regime="burst")
    since_rest = 0
    for step in plan.timed:
        if isinstance(step, Rest):
            assert since_rest % 4 == 0
            since_rest = 0
        else:
            since_rest += 1


def test_rests_fall_between_single_calls_that_do_not_fit() -> None:
    plan = interleave({"a": 9_000, "b": 9_000}, 2, regime="burst")
    kinds = [type(step) for step in plan.timed]
    assert kinds == [Block, Rest, Block, Rest, Block, Rest, Block]


def test_only_what_is_within_a_factor_of_two_is_interleaved() -> None:
    pilots = {"slow": pilot(900), "a": pilot(10), "b": pilot(19), "c": pilot(21)}
    assert schedule.groups(pilots) == [["slow"], ["a", "b"], ["c"]]


@given(st.dictionaries(st.text(min_size=1), st.floats(0.0, 1e5), min_size=1))
def test_groups_hold_every_name_once(durations_us: dict[str, float]) -> None:
    found = schedule.groups({name: pilot(us) for name, us in durations_us.items()})
    assert sorted(name for group in found for name in group) == sorted(durations_us)
    for group in found:
        times_us = [durations_us[name] for name in group]
        assert max(times_us) <= 2 * min(times_us)


@pytest.mark.parametrize(
    ("launch_us", "calls"),
    [(0.0, 480), (10, 480), (10.9, 480), (12, 144), (109, 144), (112, 48), (1999, 24), (9e5, 8)],
)
def test_the_table_gives_calls_by_duration_and_the_larger_number_near_a_border(
    launch_us: float, calls: int
) -> None:
    assert budgets.from_table(launch_us, rounds=1) == calls
    assert budgets.from_table(launch_us, rounds=2) == calls // 2


def test_auto_spreads_the_calls_of_the_table_over_the_rounds(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    result = fake_bench({"f": gpu.kernel(40.0)}, timer="event", calls="auto", rounds=2)
    assert result["benchmark_protocol"]["repeat_counts"]["f"] == [72, 72]
    assert result["benchmark_protocol"]["warmup"] == 0
    assert result["benchmark_protocol"]["repeat"] is None


def test_a_short_kernel_is_not_taken_for_a_longer_one_because_of_events(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    # An event pair that reads 3 µs too much, also around the smallest kernel.
    gpu.event_answers_ms = [0.1, *[0.0046] * 5, 0.1, *[0.004] * 5]
    result = fake_bench({"f": gpu.kernel(1.6)}, timer="proton", calls="auto")
    assert result["benchmark_protocol"]["estimates_us"]["f"] == [pytest.approx(1.6)]
    assert result["benchmark_protocol"]["repeat_counts"]["f"] == [480]


def test_a_two_microsecond_kernel_does_not_flush_for_seconds(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    begin_ns = gpu.host_ns
    fake_bench({"f": gpu.kernel(2.0)}, timer="event")
    assert gpu.host_ns - begin_ns < 10**9


def test_blocked_order_cools_down_before_every_implementation_in_every_round(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    funcs = {"a": gpu.kernel(5.0), "b": gpu.kernel(6.0)}
    fake_bench(funcs, timer="event", calls=2, rounds=3, cooldown_s=0.5)
    assert gpu.sleeps_s == [0.5] * 6


def test_interleaved_order_cools_down_once_a_round(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    funcs = {"a": gpu.kernel(5.0), "b": gpu.kernel(6.0)}
    result = fake_bench(
        funcs, timer="event", calls=8, rounds=3, cooldown_s=0.5, order="interleaved"
    )
    assert gpu.sleeps_s == [0.5] * 3
    protocol = result["benchmark_protocol"]
    assert protocol["schedule"] == "interleaved"
    assert protocol["order"] == ["a", "b"]
    assert protocol["groups"] == [["a", "b"]]
    assert protocol["sequence"] == [list("abba"), list("baab"), list("abba")]
    assert protocol["cooldown_s"] == 0.5


def test_interleaved_discarded_calls_are_launched_and_dropped(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    funcs = {"a": gpu.kernel(5.0, "a"), "b": gpu.kernel(6.0, "b")}
    result = fake_bench(funcs, timer="event", calls=8, order="interleaved")
    assert result["samples"] == {"a": [[5.0] * 8], "b": [[6.0] * 8]}
    assert gpu.log[-41:-31] == ["flush", "a"] * 5


def test_interleaved_order_works_with_budgets(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    funcs = {"a": gpu.kernel(35.0), "b": gpu.kernel(60.0)}
    result = fake_bench(funcs, timer="event", repeat=1.0, warmup=0.2, order="interleaved")
    assert result["benchmark_protocol"]["repeat_counts"] == {"a": [10], "b": [10]}


def test_the_sustained_regime_works_before_its_first_timed_call(
    gpu: FakeGpu, fake_bench: FakeBench
) -> None:
    for timer in ("event", "proton", "cudagraph_proton"):
        begin = len(gpu.done)
        fake_bench({"f": gpu.kernel(1000.0, timer)}, timer=timer, calls=4, regime="sustained")
        launched = sum(done.work.name == timer for done in gpu.done[begin:])
        assert launched * 1.065 > 200
        assert not gpu.sleeps_s


@pytest.mark.parametrize(("l2", "flushed"), [("cold-dirty", True), ("warm", False)])
def test_the_l2_policy_is_recorded_and_never_implied(
    gpu: FakeGpu, fake_bench: FakeBench, l2: str, flushed: bool
) -> None:
    result = fake_bench({"f": gpu.kernel(5.0)}, timer="event", calls=2, l2=l2)
    assert result["benchmark_protocol"]["l2"] == l2
    assert ("flush" in gpu.log) is flushed


def test_a_sub_block_of_a_graph_is_a_replay_of_eight_to_sixteen_calls() -> None:
    for us in (2.0, 200.0, 900.0):
        discarded, kept = schedule.block_shape("cudagraph_proton", pilot(us), "burst")
        assert 8 <= discarded + kept <= 16
        assert (discarded + kept) * (us + 65) <= BURST_WORK_US
    assert schedule.block_shape("cudagraph_proton", pilot(9_000.0), "burst") == (0, 1)


def test_estimates_count_towards_the_burst(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    funcs = {name: gpu.kernel(2000.0, name) for name in "abc"}
    fake_bench(funcs, timer="event", calls=4, regime="burst", order="interleaved")
    spent_us, longest_us = 0.0, 0.0
    for entry in gpu.log:
        cost_us = 2000.0 if entry in funcs else 65.0 if entry == "flush" else 0.0
        spent_us = 0.0 if entry == "rest" else spent_us + cost_us
        longest_us = max(longest_us, spent_us)
    # A pilot is not interrupted: first call, check of the stream and five estimates come in one piece.
    assert longest_us <= 20_000


def test_a_longer_stretch_of_work_is_followed_by_a_longer_rest() -> None:
    pacer = Pacer(regime="burst")
    pacer.worked(45_000.0)
    (rest,) = pacer.spend(1_000.0)
    assert rest.seconds == pytest.approx(0.06)


def test_a_blocked_burst_rests_between_calls(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    result = fake_bench({"f": gpu.kernel(4000.0, "f")}, timer="event", calls=9, regime="burst")
    assert result["samples"]["f"] == [[4000.0] * 9]
    timed = gpu.log[gpu.log.index("rest") :]
    assert [timed[:start].count("f") for start, entry in enumerate(timed) if entry == "rest"] == [
        0, 3, 6,
    ]  # fmt: skip
    assert result["benchmark_protocol"]["burst"] == {"work_us": 15_000.0, "rest_s": 0.02}


def test_auto_fills_its_last_sub_block(gpu: FakeGpu, fake_bench: FakeBench) -> None:
    funcs = {"a": gpu.kernel(5.0), "b": gpu.kernel(5.0)}
    result = fake_bench(funcs, timer="event", calls="auto", order="interleaved", rounds=3)
    per_round = -(-480 // 3)
    assert result["benchmark_protocol"]["repeat_counts"]["a"] == [-(-per_round // 4) * 4] * 3
