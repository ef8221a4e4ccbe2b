"""Delays are launched with, and the strength that makes 1 % is found."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.harness.planting import (
    ARGUMENT,
    NEAR,
    Delay,
    Search,
    effects,
    followed_by_waiting,
    launchable,
)

TARGET = math.log(1.01)


def searched(effect: Callable[[int], float], first: int, *, both: bool = True) -> tuple[int, float]:
    def measure(strengths: Sequence[int]) -> list[float]:
        return [effect(steps) for steps in strengths]

    return Search(measure, TARGET, both=both).run(first)


@given(st.floats(1e-5, 1e-2), st.floats(0.1, 10))
def test_a_strength_with_a_proportional_effect_is_found(per_step: float, wrong: float) -> None:
    first = max(1, round(wrong * TARGET / per_step))
    steps, effect = searched(lambda steps: per_step * max(0, steps), first)
    if per_step < NEAR * TARGET:
        assert per_step * steps == pytest.approx(TARGET, rel=2 * NEAR + 0.05)
    assert steps >= 1
    assert effect > 0


def test_delays_that_programs_hide_from_each_other_are_given_to_the_last_one_alone() -> None:
    def effect(steps: int) -> float:
        return 0.0 if steps > 0 else max(0.0, (-steps - 200) * 1e-5)

    steps, _ = searched(effect, 800)
    assert steps < 0
    assert effect(steps) == pytest.approx(TARGET, rel=0.15)


def test_a_single_step_that_is_already_too_much_is_the_answer() -> None:
    steps, effect = searched(lambda steps: 0.05 if steps > 0 else 0.0, 3, both=False)
    assert steps == 1
    assert effect == pytest.approx(0.05)


def test_the_search_ends_where_nothing_has_an_effect() -> None:
    asked: list[int] = []

    def effect(steps: int) -> float:
        asked.append(steps)
        return 0.0

    searched(effect, 10)
    assert len(asked) <= 4 + 3 * 3


@given(st.integers(-(1 << 20), 1 << 20))
def test_every_strength_is_launched_with_one_compiled_kernel(steps: int) -> None:
    given_ = launchable(steps)
    assert given_ != 1
    assert given_ % 16 != 0
    assert abs(given_ - steps) <= 2


def test_effects_are_mean_log_ratios_to_base() -> None:
    logs = {"base": [1.0, 3.0], "7": [1.5, 3.5], "9": [2.0, 4.0]}
    assert effects(logs, "base", ["9", "7"]) == [1.0, 0.5]


def test_a_call_that_is_followed_by_waiting_returns_what_it_returned() -> None:
    begin = time.perf_counter_ns()
    assert followed_by_waiting(lambda: 5, 20_000)() == 5
    assert time.perf_counter_ns() - begin >= 20_000


@pytest.fixture
def planted_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module in a tree, as a kernel file is one."""
    module = ModuleType("planted_kernels")
    module.__file__ = str(tmp_path / "kernels" / "planted_kernels.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_kernels_of_a_tree_are_launched_with_the_strength_of_their_arm(
    planted_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jit = pytest.importorskip("triton.runtime.jit", reason="Triton launches it")
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    class Kernel(jit.KernelInterface):  # type: ignore[misc,name-defined]  # no types of Triton are known
        arg_names = ("x_ptr", ARGUMENT)

        def run(self, *args: Any, **kwargs: Any) -> None:
            seen.append((args, kwargs))

    class Tuner(jit.KernelInterface):  # type: ignore[misc,name-defined]
        def __init__(self, fn: Kernel) -> None:
            self.fn = fn

        def run(self, *args: Any, **kwargs: Any) -> None:
            self.fn.run(*args, **kwargs)

    kernel = Kernel()
    planted_module.tuned = Tuner(kernel)  # type: ignore[attr-defined]
    planted_module.again = kernel  # type: ignore[attr-defined]
    planted_module.other = Tuner  # type: ignore[attr-defined]
    delay = Delay()
    assert delay.into(tmp_path / "elsewhere") == 0
    assert delay.into(tmp_path) == 2
    assert delay.into(tmp_path) == 2

    def launch() -> None:
        planted_module.tuned[(3,)](5)

    weak, strong = delay.launching(launch, 40), delay.launching(launch, -7)
    weak()
    strong()
    assert [(args, kwargs[ARGUMENT], kwargs["grid"]) for args, kwargs in seen] == [
        ((5,), 40, (3,)),
        ((5,), -7, (3,)),
    ]

    def recorded(self: Kernel, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        seen.append(((), {}))

    monkeypatch.setattr(Kernel, "run", recorded)
    weak()
    assert seen[-1] == ((), {})
