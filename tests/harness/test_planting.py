"""Delays are launched with, and the strength that makes 1 % is found."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.harness import planting
from tirbench.harness.planting import (
    ARGUMENT,
    EVERY_PROGRAM,
    FURTHEST,
    MOST_STEPS,
    NOBODY,
    Delay,
    Effect,
    Slope,
    effect,
    followed_by_waiting,
    packed,
    resident,
    strengthen,
)
from tirbench.model import MachineCode

TARGET = math.log(1.01)


# --- Which strength -----------------------------------------------------------------------------------


def measuring(
    log_ratio: Callable[[int], float], sd: float = 0.0
) -> tuple[Callable[[Sequence[int]], list[Effect]], list[list[int]]]:
    """Effects of delays, and the delays that were asked for in each look."""
    looks: list[list[int]] = []

    def measure(strengths: Sequence[int]) -> list[Effect]:
        looks.append(list(strengths))
        return [Effect(log_ratio(steps), sd**2) for steps in strengths]

    return measure, looks


@given(st.floats(1e-6, 1e-3), st.floats(0.45, 2.4))
def test_a_delay_about_as_strong_as_expected_is_found_in_one_look(
    per_step: float, wrong: float
) -> None:
    measure, looks = measuring(lambda steps: per_step * steps)
    found = strengthen(measure, wrong * TARGET / per_step, TARGET)
    assert found.steps is not None
    assert len(looks) == 1
    assert per_step * found.steps == pytest.approx(TARGET, rel=0.13)  # a whole number of steps
    assert found.expected == pytest.approx(per_step * found.steps)


@given(st.floats(1e-6, 1e-4), st.sampled_from([0.07, 0.15, 4.0, 12.0]))
def test_a_delay_far_from_what_was_expected_is_found_in_two_looks(
    per_step: float, wrong: float
) -> None:
    measure, looks = measuring(lambda steps: per_step * steps)
    found = strengthen(measure, wrong * TARGET / per_step, TARGET)
    assert found.steps is not None
    assert len(looks) == 2
    assert per_step * found.steps == pytest.approx(TARGET, rel=0.02)


def test_noise_of_a_fifth_of_the_target_leaves_the_strength_right_within_a_tenth() -> None:
    rng = random.Random(3)  # noqa: S311 - a simulation
    per_step, sd = 2.2e-4, 0.002
    found = []
    for _ in range(300):
        measure, _ = measuring(lambda steps: per_step * steps + rng.gauss(0, sd), sd)
        one = strengthen(measure, 60.0, TARGET)
        assert one.steps is not None
        found.append(per_step * one.steps / TARGET)
    assert sum(0.9 <= share <= 1.1 for share in found) >= 0.9 * len(found)
    assert all(0.75 <= share <= 1.4 for share in found)


@pytest.mark.parametrize("expected_steps", [5.0, 40.0, 4000.0])
def test_a_delay_that_has_no_effect_is_not_followed_into_the_absurd(expected_steps: float) -> None:
    rng = random.Random(5)  # noqa: S311 - a simulation
    measure, looks = measuring(lambda _: rng.gauss(0, 0.002), 0.002)
    found = strengthen(measure, expected_steps, TARGET)
    assert found.steps is None
    assert found.reason.startswith("the slope of its delay cannot be told: ")
    assert len(looks) == 2
    assert max(steps for look in looks for steps in look) <= 4 * FURTHEST * expected_steps + 1


def test_a_launch_of_which_one_step_is_too_much_is_left_alone() -> None:
    measure, _ = measuring(lambda steps: 0.04 * steps)
    found = strengthen(measure, 1.0, TARGET)
    assert found.steps is None
    assert found.reason == "its nearest delay, 1 steps, is 4.1 %"


def test_an_outlier_among_exact_effects_is_weighed_by_its_own_noise() -> None:
    slope = Slope.of({100: Effect(0.010, 1e-8), 200: Effect(0.080, 1e-2)})
    assert slope.per_step == pytest.approx(1e-4, rel=0.01)


def test_effects_that_are_in_no_proportion_to_the_delay_leave_the_slope_unknown() -> None:
    assert not Slope.of({100: Effect(0.03, 1e-10), 200: Effect(0.0, 1e-10)}).is_known
    assert Slope.of({100: Effect(0.01, 1e-10), 200: Effect(0.0201, 1e-10)}).is_known


def test_an_effect_is_the_mean_over_quads_with_the_variance_of_that() -> None:
    found = effect([1.0, 3.0, 2.0, 2.0], [1.1, 3.1, 2.3, 2.3])
    assert found.log_ratio == pytest.approx(0.2)
    assert found.variance == pytest.approx(0.01)
    assert effect([1.0, 3.0], [1.5, 3.5, 9.0]).log_ratio == pytest.approx(0.5)


# --- Launching ----------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 20), st.integers(1, 1 << 20))
def test_every_strength_is_launched_with_one_compiled_kernel(steps: int, programs: int) -> None:
    argument = packed(steps, programs)
    assert argument != 1
    assert argument % 16 != 0
    assert 0 < argument < 1 << 31
    assert argument >> 16 == min(programs, EVERY_PROGRAM)
    assert 1 <= (argument & 0xFFFF) - min(steps, MOST_STEPS - 1) <= 2  # the first step, and one off
    assert argument != NOBODY


def compiled(threads: int, occupancy: float, arch: str = "90") -> tuple[Any, MachineCode]:
    code = MachineCode(
        name="k",
        registers=32,
        stack_bytes=0,
        shared_bytes=0,
        instructions=9,
        threads=threads,
        occupancy=occupancy,
    )
    target = SimpleNamespace(arch=arch)
    return SimpleNamespace(metadata=SimpleNamespace(target=target)), code


@pytest.mark.parametrize(
    ("threads", "occupancy", "programs"), [(128, 1.0, 16 * 132), (256, 0.125, 132), (128, 0.0, 1)]
)
def test_as_many_programs_wait_as_a_device_runs_at_once(
    monkeypatch: pytest.MonkeyPatch, threads: int, occupancy: float, programs: int
) -> None:
    kernel, code = compiled(threads, occupancy)
    monkeypatch.setattr("tirbench.launch.triton.machine_code_of", lambda _: (code,))
    assert resident(kernel, 132) == programs


def test_where_it_is_not_known_how_many_run_at_once_every_program_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert resident(None, 132) == EVERY_PROGRAM
    kernel, code = compiled(128, 1.0, arch="1")
    monkeypatch.setattr("tirbench.launch.triton.machine_code_of", lambda _: (code,))
    assert resident(kernel, 132) == EVERY_PROGRAM
    kernel, code = compiled(128, 1.0)
    assert resident(kernel, 0) == EVERY_PROGRAM


def test_a_call_that_is_followed_by_waiting_returns_what_it_returned() -> None:
    begin = time.perf_counter_ns()
    assert followed_by_waiting(lambda: 5, 20_000)() == 5
    assert time.perf_counter_ns() - begin >= 20_000


class Launches(list[tuple[tuple[Any, ...], int, Any]]):
    """Positional arguments, delay and grid of each launch."""


@pytest.fixture
def planted_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module in a tree, as a kernel file is one: a tuned kernel, once more by itself."""
    jit = pytest.importorskip("triton.runtime.jit", reason="Triton launches it")
    seen = Launches()

    class Kernel(jit.KernelInterface):  # type: ignore[misc,name-defined]  # no types of Triton are known
        arg_names = ("x_ptr", ARGUMENT)

        def run(self, *args: Any, **kwargs: Any) -> str:
            seen.append((args, kwargs[ARGUMENT], kwargs["grid"]))
            return "compiled"

    class Tuner(jit.KernelInterface):  # type: ignore[misc,name-defined]
        def __init__(self, fn: Kernel) -> None:
            self.fn = fn

        def run(self, *args: Any, **kwargs: Any) -> Any:
            return self.fn.run(*args, **kwargs)

    monkeypatch.setattr(planting, "resident", lambda compiled, sms: {"compiled": 2}[compiled] * sms)
    module = ModuleType("planted_kernels")
    module.__file__ = str(tmp_path / "kernels" / "planted_kernels.py")
    kernel = Kernel()
    module.tuned = Tuner(kernel)  # type: ignore[attr-defined]
    module.again = kernel  # type: ignore[attr-defined]
    module.other = Tuner  # type: ignore[attr-defined]
    module.seen = seen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_kernels_of_a_tree_are_launched_with_the_strength_of_their_arm(
    planted_module: ModuleType, tmp_path: Path
) -> None:
    delay = Delay()
    delay.multiprocessors = 3
    assert delay.into(tmp_path / "elsewhere") == 0
    assert delay.into(tmp_path) == 2
    assert delay.into(tmp_path) == 2

    def launch() -> None:
        planted_module.tuned[(3,)](5)

    quiet, strong = delay.launching(launch, 0), delay.launching(launch, 40)
    for arm in (quiet, strong, strong, quiet, strong):
        arm()
    # In the first launch of an arm nobody waits: what it returns says how many programs run at once.
    still, waiting = 6 << 16 | 1, 6 << 16 | 41
    assert planted_module.seen == [
        ((5,), argument, (3,)) for argument in (NOBODY, NOBODY, waiting, still, waiting)
    ]


def test_a_second_case_of_a_process_launches_the_same_kernels_with_a_strength_of_its_own(
    planted_module: ModuleType, tmp_path: Path
) -> None:
    delay = Delay()
    delay.multiprocessors = 1
    arguments = []
    for steps in (7, 9):  # a case each
        delay.into(tmp_path)
        arm = delay.launching(planted_module.again[(1,)], steps)
        arm()
        arm()
        arguments.append(planted_module.seen[-1][1])
    assert arguments == [2 << 16 | 8, 2 << 16 | 10]


def test_who_records_launches_sees_those_of_planted_kernels(
    planted_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay = Delay()
    delay.into(tmp_path)
    seen: list[str] = []

    def recorded(self: Any, *args: Any, **kwargs: Any) -> str:  # noqa: ARG001
        seen.append("recorded")
        return "compiled"

    monkeypatch.setattr(type(planted_module.again), "run", recorded)
    delay.launching(planted_module.tuned[(1,)], 5)()
    assert seen == ["recorded"]
