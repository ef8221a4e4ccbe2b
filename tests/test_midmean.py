from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.timing import midmean

VALUES = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([3.0], 3.0),
        ([1.0, 3.0], 2.0),
        ([1.0, 2.0, 9.0], (0.25 * 1 + 2 + 0.25 * 9) / 1.5),
        ([0.0, 1.0, 3.0, 1e9], 2.0),
        ([5.0, 1.0, 4.0, 2.0, 3.0], (0.75 * 2 + 3 + 0.75 * 4) / 2.5),
    ],
)
def test_midmean_weighs_the_values_at_the_cuts_with_their_part_inside(
    values: list[float], want: float
) -> None:
    assert midmean(values) == pytest.approx(want)


@given(VALUES)
def test_midmean_lies_within_the_values(values: list[float]) -> None:
    assert min(values) <= midmean(values) <= max(values)


@given(VALUES, st.floats(0.5, 2.0))
def test_midmean_of_scaled_values_is_the_scaled_midmean(values: list[float], factor: float) -> None:
    scaled = midmean([factor * value for value in values])
    assert scaled == pytest.approx(factor * midmean(values))


@given(VALUES)
def test_midmean_ignores_the_order(values: list[float]) -> None:
    assert midmean(values) == midmean(reversed(values))


@given(VALUES, st.integers(2, 5))
def test_midmean_of_repeated_values_is_the_same(values: list[float], times: int) -> None:
    assert midmean(values * times) == pytest.approx(midmean(values))


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf]])
def test_midmean_refuses_what_has_no_mean(values: list[float]) -> None:
    with pytest.raises(ValueError, match="midmean"):
        midmean(values)


def test_midmean_moves_with_the_samples_where_a_median_jumps_between_ticks() -> None:
    ticks = [1.600] * 60 + [1.632] * 40
    slower = [1.600] * 50 + [1.632] * 50
    assert 1.002 < midmean(slower) / midmean(ticks) < 1.01
