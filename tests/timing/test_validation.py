"""Every argument is checked before anything is launched, with exact exception types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from tirbench.timing import DistributedBenchContext, bench
from tirbench.timing.budgets import DEFAULTS
from tirbench.timing.request import Request


class Stream:
    def synchronize(self) -> None: ...


def context(**changes: Any) -> DistributedBenchContext:
    fields: dict[str, Any] = {
        "rank": 0,
        "world_size": 2,
        "barrier": lambda: None,
        "max_reduce": lambda value: value,
        "stream": Stream(),
    }
    return DistributedBenchContext(**(fields | changes))


def launched() -> None:
    raise AssertionError("validation must come before any launch")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"rounds": 0}, ValueError, "rounds must be >= 1"),
        ({"rounds": "2"}, ValueError, "rounds must be >= 1"),
        ({"rounds": 1.0}, ValueError, "rounds must be >= 1"),
        ({"rounds": True}, ValueError, "rounds must be >= 1"),
        ({"cooldown_s": -1}, ValueError, "cooldown_s must be >= 0"),
        ({"cooldown_s": math.nan}, ValueError, "cooldown_s must be finite"),
        ({"cooldown_s": math.inf}, ValueError, "cooldown_s must be finite"),
        ({"cooldown_s": "1"}, TypeError, "cooldown_s must be a number"),
        ({"repeat": 0}, ValueError, "repeat must be > 0"),
        ({"repeat": -5}, ValueError, "repeat must be > 0"),
        ({"repeat": math.nan}, ValueError, "repeat must be finite"),
        ({"repeat": "9"}, TypeError, "repeat must be a number"),
        ({"repeat": True}, TypeError, "repeat must be a number"),
        ({"warmup": -1}, ValueError, "warmup must be >= 0"),
        ({"warmup": math.nan}, ValueError, "warmup must be finite"),
        ({"cudagraph_rep": 0}, ValueError, "cudagraph_rep must be > 0"),
        ({"cudagraph_rep": -1}, ValueError, "cudagraph_rep must be > 0"),
        ({"cudagraph_rep": math.nan}, ValueError, "cudagraph_rep must be finite"),
        ({"timer": "nvbench"}, ValueError, "timer must be one of event, proton"),
        ({"timer": 3}, ValueError, "timer must be one of"),
        ({"order": "random"}, ValueError, "order must be one of blocked, interleaved"),
        ({"l2": "hot"}, ValueError, "l2 must be one of cold-dirty, cold-clean, warm"),
        ({"regime": "rested"}, ValueError, "regime must be one of burst, sustained"),
        ({"calls": 0}, ValueError, "calls must be an int >= 1"),
        ({"calls": "many"}, ValueError, "calls must be an int >= 1"),
        ({"calls": 1.5}, TypeError, "calls must be an int"),
        ({"calls": True}, TypeError, "calls must be an int"),
        ({"regime": "sustained", "order": "interleaved"}, ValueError, "measured solo"),
        ({"timer": "wall", "l2": "cold-clean"}, ValueError, "cannot be had on a CPU"),
        ({"references": [("r", launched)]}, TypeError, "references must be a mapping"),
        ({"references": {1: launched}}, TypeError, "a name must be a str"),
        ({"references": {"r": 1}}, TypeError, "must be callable"),
        ({"references": {"f": launched}}, ValueError, "in both funcs and references: 'f'"),
        ({"prepare": [launched]}, TypeError, "prepare must be a mapping"),
        ({"prepare": {"f": 1}}, TypeError, "must be callable"),
        ({"prepare": {"g": launched}}, ValueError, "unknown implementations: 'g'"),
        ({"distributed": object()}, TypeError, "must be a DistributedBenchContext"),
        ({"distributed": context(world_size=0)}, ValueError, "world_size"),
        ({"distributed": context(world_size=True)}, ValueError, "world_size"),
        ({"distributed": context(rank=2)}, ValueError, "rank"),
        ({"distributed": context(rank=False)}, ValueError, "rank"),
        ({"distributed": context(barrier=None)}, TypeError, "barrier must be callable"),
        ({"distributed": context(max_reduce=1)}, TypeError, "max_reduce must be callable"),
        ({"distributed": context(stream=0)}, TypeError, "stream must be a CUDA stream"),
        ({"distributed": context(), "timer": "proton"}, ValueError, "only timer='kineto'"),
        ({"distributed": context(), "warmup": 1, "repeat": 2}, ValueError, "warmup, repeat"),
        ({"distributed": context(), "cudagraph_rep": 1}, ValueError, "cudagraph_rep"),
        ({"distributed": context(), "calls": 3}, ValueError, "calls"),
        ({"distributed": context(), "order": "interleaved"}, ValueError, "rejects order"),
        ({"distributed": context(), "l2": "warm"}, ValueError, "rejects l2"),
    ],
)
def test_a_wrong_argument_raises_its_exact_type(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=re.escape(message)) as raised:
        bench({"f": launched}, **options)
    assert type(raised.value) is kind


@pytest.mark.parametrize("funcs", [{}, None, [launched], {1: launched}, {"f": 1}])
def test_funcs_must_be_a_mapping_of_names_to_callables(funcs: Any) -> None:
    with pytest.raises(TypeError):
        bench(funcs)


def test_the_first_fault_in_order_wins() -> None:
    with pytest.raises(ValueError, match="rounds"):
        bench({}, rounds=0, cooldown_s=-1, timer="nvbench")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timer", "ignored"),
    [
        ("event", ("cudagraph_rep",)),
        ("proton", ("cudagraph_rep",)),
        ("cudagraph_proton", ("warmup", "repeat")),
    ],
)
def test_budgets_that_a_timer_has_no_use_for_are_recorded_as_ignored(
    make_request: Callable[..., Request], timer: str, ignored: tuple[str, ...]
) -> None:
    request = make_request({"f": launched}, timer=timer, warmup=1, repeat=2, cudagraph_rep=3)
    assert request.ignored == ignored


def test_a_budget_that_calls_replaces_is_recorded_as_ignored(
    make_request: Callable[..., Request],
) -> None:
    request = make_request({"f": launched}, timer="event", warmup=1, repeat=2, calls=10)
    assert request.ignored == ("repeat",)
    assert request.warmup_given


def test_no_timer_means_proton_here_and_kineto_over_ranks(
    make_request: Callable[..., Request],
) -> None:
    assert make_request({"f": launched}).timer == "proton"
    assert make_request({"f": launched}, distributed=context()).timer == "kineto"


def test_a_warmup_of_zero_is_accepted(make_request: Callable[..., Request]) -> None:
    assert make_request({"f": launched}, warmup=0).budget.warmup_ms == 0


def test_defaults_are_those_of_triton(make_request: Callable[..., Request]) -> None:
    assert make_request({"f": launched}).budget == DEFAULTS["proton"]
    assert (DEFAULTS["event"].warmup_ms, DEFAULTS["event"].repeat_ms) == (25, 100)
    assert (DEFAULTS["proton"].warmup_ms, DEFAULTS["proton"].repeat_ms) == (25, 100)
    assert DEFAULTS["cudagraph_proton"].repeat_ms == 20
