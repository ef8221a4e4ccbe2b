"""What rows of unchanged code say of everything else."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from tirbench.judge import environment_text, placebo, shift_since_pins
from tirbench.model import Environment, Estimate, PairEstimate, PinnedRow, Row, Verdict


def same(row: Row, log_ratio: float, *, flagged: bool = False, same_code: bool = True) -> Verdict:
    return Verdict(
        row=row,
        kind="same",
        rule="same-code",
        reason="",
        estimate=PairEstimate(log_ratio=log_ratio, standard_error=0.001, workers=5),
        flagged=flagged,
        same_code=same_code,
    )


def test_the_placebo_is_the_rows_of_the_same_code(row: Row) -> None:
    verdicts = [
        same(row, 0.001),
        same(row, -0.001),
        same(row, 0.012, flagged=True),
        same(row, 0.05, same_code=False),
    ]
    environment = placebo(verdicts)
    assert environment == Environment(rows=3, flagged=1, shift=0.001)
    assert environment_text(environment) == "placebo 1/3 flagged, environment +0.1 %"


def test_a_run_without_unchanged_code_has_no_placebo(row: Row) -> None:
    environment = placebo([same(row, 0.05, same_code=False)])
    assert environment.shift is None
    assert environment_text(environment) == "no placebo: every row has changed code"


def test_a_shift_of_nothing_has_no_negative_sign() -> None:
    assert environment_text(Environment(rows=24, flagged=0, shift=-0.0002)) == (
        "placebo 0/24 flagged, environment +0.0 %"
    )


def test_the_shift_since_the_pins_is_the_median_row(
    pin: PinnedRow, estimate: Callable[[float], Estimate]
) -> None:
    moved = shift_since_pins([(pin, estimate(us)) for us in (10.0, 10.06, 10.5)])
    assert (moved.rows, moved.flagged) == (3, 1)
    assert moved.shift == pytest.approx(math.log(1.006))
    assert shift_since_pins([(replace(pin, band=0.05), estimate(10.4))]).flagged == 0
    assert shift_since_pins([]).shift is None


def test_judge_needs_neither_torch_nor_numpy() -> None:
    program = (
        "import sys, tirbench.judge\n"
        "print([name for name in ('torch', 'numpy', 'triton') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
