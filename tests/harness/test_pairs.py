"""Which arms of a comparison are handed to the timer together, and in which order."""

from __future__ import annotations

import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tirbench.harness import pairs
from tirbench.harness.pairs import PairCase, in_turn, launch_time_us
from tirbench.model import Plan


def test_arms_take_turns_in_being_the_first_from_one_placement_seed_to_the_next() -> None:
    arms = ["base", "head", "twin"]
    assert [in_turn(arms, placement)[0] for placement in range(4)] == ["base", "twin"] * 2
    assert in_turn(arms, 1) == ["twin", "head", "base"]
    assert arms == ["base", "head", "twin"]


def test_the_time_of_a_launch_is_that_of_its_second_call() -> None:
    waits = [0.02, 0.0, 9.0]
    assert launch_time_us(lambda: time.sleep(waits.pop(0)), lambda: None) < 20_000
    assert waits == [9.0]


LONG_US, SHORT_US = 6_000.0, 20.0


class Timings:
    """Which arms are timed together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, launch_us: float) -> None:
        self.together: list[list[str]] = []
        monkeypatch.setattr(pairs, "launch_time_us", lambda *_: launch_us)
        monkeypatch.setattr(
            PairCase, "_time_group", lambda _, __, names: self.together.append(list(names))
        )
        case = PairCase.__new__(PairCase)
        rows = ("k", "placebo", "alone")
        case.pending = cast("Any", dict.fromkeys(rows))
        case.arms = {
            "k": (("base", "k"), ("head", "k")),
            "placebo": (("base", "k"), ("twin", "k")),
            "alone": (("base", "other"), ("head", "other")),
        }
        case.plan = Plan(device="cpu")
        timing = SimpleNamespace(l2="warm")
        case.programs = cast("Any", {"base": SimpleNamespace(timing=timing)})
        device = SimpleNamespace(synchronize=lambda: None)
        side = SimpleNamespace(
            launches=defaultdict(lambda: None), case=SimpleNamespace(device=device)
        )
        case.time(cast("Any", dict.fromkeys(("base", "head", "twin"), side)))


def test_rows_that_share_a_base_are_timed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Timings(monkeypatch, SHORT_US).together == [["k", "placebo"], ["alone"]]


def test_rows_of_which_a_quad_would_outlast_a_burst_are_timed_in_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Timings(monkeypatch, LONG_US).together == [["k"], ["placebo"], ["alone"]]
