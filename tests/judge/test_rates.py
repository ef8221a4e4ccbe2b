"""Exact binomial bounds of rates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.judge import lower_bound, upper_bound


@pytest.mark.parametrize(
    ("hits", "trials", "bound"),
    [(0, 3000, 0.000998), (0, 20, 0.1391), (5, 100, 0.1023), (19, 20, 0.99744), (7, 7, 1.0)],
)
def test_bounds_are_those_of_clopper_and_pearson(hits: int, trials: int, bound: float) -> None:
    assert upper_bound(hits, trials) == pytest.approx(bound, rel=1e-3)
    assert lower_bound(trials - hits, trials) == pytest.approx(1 - bound, rel=1e-3)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_rate_lies_between_its_bounds(counted: tuple[int, int]) -> None:
    hits, trials = counted
    assert 0 <= lower_bound(hits, trials) <= hits / trials <= upper_bound(hits, trials) <= 1


@pytest.mark.parametrize(("hits", "trials"), [(0, 0), (3, 2), (-1, 2)])
def test_impossible_counts_are_refused(hits: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"{hits} hits of {trials} trials"):
        upper_bound(hits, trials)
