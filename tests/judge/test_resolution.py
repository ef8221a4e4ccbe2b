"""What a self-test says of a threshold: refused on evidence alone, with the threshold that would do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.judge import Trials, unresolved

GOOD = Trials(
    kernels="2–10 µs",
    equal=3000,
    flagged=0,
    planted=100,
    found=99,
    size=0.0105,
    repeated=0.004,
    between=0.0005,
)


def test_a_machine_that_finds_the_threshold_is_not_refused() -> None:
    assert unresolved(GOOD, 0.01) == ""
    assert unresolved(GOOD, 0.05) == ""


def test_slowdowns_that_were_missed_refuse_the_threshold_and_name_one_that_would_do() -> None:
    noisy = replace(GOOD, found=60, repeated=0.01)
    assert unresolved(noisy, 0.01) == (
        "the self-test missed 40 of 100 slowdowns of 1.05 % for kernels 2–10 µs: "
        "slower_than = 0.021 would be resolved"
    )
    assert unresolved(noisy, 0.021) == ""


def test_a_threshold_below_what_was_tried_is_judged_by_the_scatter() -> None:
    assert unresolved(GOOD, 0.002) == (
        "by its scatter in the self-test only 0.822 % is found for kernels 2–10 µs: "
        "slower_than = 0.009 would be resolved"
    )
    assert unresolved(replace(GOOD, repeated=None), 0.002) == ""


def test_what_was_tried_speaks_before_what_is_computed() -> None:
    """The closed form counts no further workers; the trials had them."""
    wide = replace(GOOD, repeated=0.008)
    assert wide.resolves(0.01) is not None
    assert unresolved(wide, 0.01) == ""


def test_a_handful_of_trials_refuses_nothing() -> None:
    few = replace(GOOD, planted=3, found=2, equal=10, flagged=0)
    assert unresolved(few, 0.01) == ""
    assert unresolved(replace(GOOD, planted=0, found=0, equal=0), 0.01) == ""


def test_equal_code_that_is_called_different_too_often_is_no_gate() -> None:
    lying = replace(GOOD, flagged=30)
    assert unresolved(lying, 0.05).startswith(
        "the self-test called 30 of 3000 comparisons of equal code different for kernels 2–10 µs"
    )
    assert unresolved(replace(GOOD, flagged=3), 0.01) == ""  # 0.1 %, as it may be


def test_a_scatter_without_a_threshold_that_would_do_names_more_workers() -> None:
    hopeless = replace(GOOD, found=10, repeated=None)
    assert unresolved(hopeless, 0.01).endswith("`tirbench ab --resolve` measures with more workers")


@given(st.floats(0.001, 0.03), st.floats(0.002, 0.05))
def test_the_threshold_that_is_proposed_is_resolved(repeated: float, slower_than: float) -> None:
    trials = replace(GOOD, planted=0, found=0, repeated=repeated)
    said = unresolved(trials, slower_than)
    proposed = re.search(r"slower_than = ([\d.]+)", said)
    if proposed:
        assert float(proposed[1]) > slower_than
        assert unresolved(trials, float(proposed[1]) + 1e-9) == ""
    else:
        assert said == ""
        least = trials.resolves(slower_than)
        assert least == pytest.approx(min(least or 0.0, slower_than))
