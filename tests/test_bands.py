"""What sessions teach of s_session: little by few draws, no more than bounds, and no row what all share."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.bands import (
    COMMON_ROWS,
    LIMITS,
    MOST,
    PRIOR_DRAWS,
    SESSION_SD,
    Session,
    SessionTime,
    Taught,
    band,
    learn,
    with_session,
)

ROWS = [f"row{number}" for number in range(8)]
SHIFTS = st.floats(-0.2, 0.2)
NOISE = st.floats(0, 0.02)


def session(shifts: Mapping[str, float], machine: str = "a", noise: float = 0.0) -> Session:
    """Rows of 10 µs, moved by these shifts."""
    times = {row: SessionTime(10 * math.exp(shift), noise) for row, shift in shifts.items()}
    return Session(machine=machine, times=times)


def drawn(seed: int, sds: Mapping[str, float], count: int, noise: float = 0.0) -> list[Session]:
    """Sessions of one machine whose rows differ by these standard deviations from each to the next."""
    chance = random.Random(seed)  # noqa: S311
    return [
        session(
            {
                row: chance.gauss(0, sd / math.sqrt(2)) + chance.gauss(0, noise)
                for row, sd in sds.items()
            },
            noise=noise,
        )
        for _ in range(count)
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[Session]:
    """Up to six sessions of two machines, of some rows each."""
    return [
        Session(
            machine=draw(st.sampled_from("ab")),
            times={
                row: SessionTime(10 * math.exp(draw(SHIFTS)), draw(NOISE))
                for row in draw(st.lists(st.sampled_from(ROWS), unique=True, min_size=3))
            },
        )
        for _ in range(draw(st.integers(0, 6)))
    ]


def sds(taught: Taught, rows: Iterable[str] = ROWS) -> dict[str, float]:
    return {row: taught.of(row) for row in rows}


# --- What holds of every history ------------------------------------------------------------------


@given(history=histories())
def test_whatever_sessions_show_is_bounded_and_no_row_has_less_than_its_class(
    history: list[Session],
) -> None:
    taught = learn(history)
    for sd in sds(taught).values():
        assert taught.session_sd <= sd <= MOST * SESSION_SD
        assert LIMITS[0] <= band((0.001,), 5, sd) <= LIMITS[1]
    assert sum(own.draws for own in taught.own.values()) <= len(ROWS) * taught.draws


@given(history=histories(), chance=st.randoms(use_true_random=False))
def test_neither_the_order_of_sessions_nor_that_of_their_rows_matters(
    history: list[Session], chance: random.Random
) -> None:
    def shuffled(one: Session) -> Session:
        return replace(one, times=dict(sorted(one.times.items(), key=lambda _: chance.random())))

    other = [shuffled(one) for one in history]
    chance.shuffle(other)
    assert learn(other) == learn(history)


@given(history=histories(), moves=st.lists(st.floats(-0.002, 0.002), min_size=6, max_size=6))
def test_what_all_rows_of_a_session_share_is_no_rows_own(
    history: list[Session], moves: list[float]
) -> None:
    moved = [
        replace(
            one,
            times={
                row: replace(time, midmean_us=time.midmean_us * math.exp(move))
                for row, time in one.times.items()
            },
        )
        for one, move in zip(history, moves, strict=False)
    ]
    before, after = learn(history), learn(moved)
    assert after.own.keys() == before.own.keys()
    for row, own in before.own.items():
        assert after.own[row].draws == own.draws
        assert after.own[row].variance == pytest.approx(own.variance, abs=1e-12)


@given(history=histories(), factors=st.fixed_dictionaries(dict.fromkeys(ROWS, SHIFTS)))
def test_what_another_unit_adds_is_never_learnt(
    history: list[Session], factors: dict[str, float]
) -> None:
    """A unit may be slower as a whole and in each row by another share: the shift is not the session's."""
    moved = [
        one
        if one.machine == "a"
        else replace(
            one,
            times={
                row: replace(time, midmean_us=time.midmean_us * math.exp(factors[row]))
                for row, time in one.times.items()
            },
        )
        for one in history
    ]
    assert sds(learn(moved)) == pytest.approx(sds(learn(history)), rel=1e-6)


@given(history=histories(), row=st.sampled_from(ROWS))
def test_a_row_of_other_code_says_nothing_of_this_one(history: list[Session], row: str) -> None:
    named = [
        replace(
            one,
            times={
                (f"{key} other" if key == row and index % 2 else key): time
                for key, time in one.times.items()
            },
        )
        for index, one in enumerate(history)
    ]
    taught = learn(named)
    for name in (row, f"{row} other"):
        if name in taught.own:
            assert sum(name in one.times for one in named) > 1


# --- Shrinking ------------------------------------------------------------------------------------


def test_nothing_shown_is_the_prior_to_the_last_bit() -> None:
    quiet = session(dict.fromkeys(ROWS, 0.0))
    for history in ([], [quiet], [quiet, replace(quiet, machine="b")]):
        assert learn(history) == Taught()
        assert learn(history).of("row0") == SESSION_SD
    few = session(dict.fromkeys(ROWS[: COMMON_ROWS - 1], 0.0))
    assert learn([few, few]) == Taught()


@given(shift=st.floats(0.0, 0.2), before=st.integers(1, 30))
def test_one_disturbed_session_moves_a_row_by_less_than_a_half(shift: float, before: int) -> None:
    quiet = [session(dict.fromkeys(ROWS, 0.0)) for _ in range(before)]
    wild = session({row: shift if row == "row0" else 0.0 for row in ROWS})
    assert learn([*quiet, wild]).of("row0") < 1.5 * SESSION_SD


@pytest.mark.parametrize("before", [1, 3, 7, 9, 15])
def test_a_disturbed_session_among_usual_ones_moves_a_row_by_less_than_a_half_mostly(
    before: int,
) -> None:
    found = []
    for seed in range(25):
        quiet = drawn(seed, dict.fromkeys(ROWS, SESSION_SD), before)
        wild = session({row: 0.05 if row == "row0" else 0.0 for row in ROWS})
        taught = learn([*quiet, wild])
        found.append(taught.of("row0") / taught.session_sd)
    assert statistics.median(found) < 1.5


def test_a_draw_at_the_prior_changes_nothing_and_many_quiet_ones_narrow_the_class() -> None:
    def pair(shift: float) -> list[Session]:
        # Half of the rows up, half down: nothing in common.
        signs = {row: (-1) ** index * shift for index, row in enumerate(ROWS)}
        return [session(dict.fromkeys(ROWS, 0.0)), session(signs)]

    assert learn(pair(SESSION_SD)).session_sd == pytest.approx(SESSION_SD)
    quiet = [learn([session(dict.fromkeys(ROWS, 0.0))] * count).session_sd for count in (2, 5, 50)]
    expected = [
        SESSION_SD * math.sqrt(PRIOR_DRAWS / (PRIOR_DRAWS + count - 1)) for count in (2, 5, 50)
    ]
    assert quiet == pytest.approx(expected)


@pytest.mark.parametrize("noise", [0.0, 0.001])
def test_many_sessions_teach_what_is_there(noise: float) -> None:
    # The class: its 60 quiet rows, the loud one among them, and the prior's share of a seventh.
    rows = {f"row{number}": 0.002 for number in range(60)} | {"loud": 0.007}
    taught = learn(drawn(7, rows, 60, noise))
    assert taught.draws == 59
    assert taught.session_sd == pytest.approx(0.0023, rel=0.1)
    assert taught.of("loud") == pytest.approx(0.007, rel=0.2)
    assert max(taught.of(row) for row in rows if row != "loud") < 0.0035


def test_the_session_is_in_the_class_once_and_in_no_row_twice() -> None:
    """Times are judged as they are, so that what all rows share is a part of how far they may lie."""
    chance = random.Random(3)  # noqa: S311
    shared = [chance.gauss(0, 0.004 / math.sqrt(2)) for _ in range(40)]
    taught = learn([session(dict.fromkeys(ROWS, move)) for move in shared])
    assert all(abs(own.variance) < 1e-12 for own in taught.own.values())
    assert taught.session_sd == pytest.approx(0.004, rel=0.25)
    assert set(sds(taught).values()) == {taught.session_sd}


def test_a_row_that_does_not_repeat_teaches_little() -> None:
    taught = learn(drawn(1, dict.fromkeys(ROWS, SESSION_SD), 10, noise=0.01))
    assert all(own.draws < 0.1 for own in taught.own.values())
    rough = learn([session(dict.fromkeys(ROWS, 0.0), noise=0.01)] * 2)
    assert rough.of("row0") <= SESSION_SD


@given(moves=st.lists(SHIFTS, min_size=2, max_size=9), more=st.floats(1, 10))
def test_a_row_that_moves_more_is_never_taught_less(moves: list[float], more: float) -> None:
    def taught(factor: float) -> Taught:
        quiet = dict.fromkeys(ROWS, 0.0)
        return learn([session({**quiet, "row0": factor * move}) for move in moves])

    before, after = taught(1), taught(more)
    assert after.own["row0"].variance >= before.own["row0"].variance - 1e-12
    assert after.of("row0") >= before.of("row0") - 1e-9


# --- A band ---------------------------------------------------------------------------------------


@given(within=st.floats(0, 0.05), old=st.floats(0, 0.009), new=st.floats(0, 0.009))
def test_a_band_takes_another_s_session_as_if_it_had_been_made_with_it(
    within: float, old: float, new: float
) -> None:
    made = band((within,), 5, old)
    changed = with_session(made, old, new)
    assert LIMITS[0] <= changed <= LIMITS[1]
    if LIMITS[0] < made < LIMITS[1]:
        assert changed == pytest.approx(band((within,), 5, new), rel=1e-6)
    if new >= old:
        assert changed >= made - 1e-12
