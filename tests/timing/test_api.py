"""The public function as the API page fixes it, and what it needs to be imported."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import tirbench
from tirbench.errors import TimerUnavailable
from tirbench.timing.plan import Closure

PAGE = {
    "warmup": None,
    "repeat": None,
    "cudagraph_rep": None,
    "timer": None,
    "references": None,
    "cooldown_s": 1.0,
    "rounds": 1,
    "distributed": None,
    "prepare": None,
}

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")


def test_the_signature_holds_the_parameters_of_the_page_with_its_defaults() -> None:
    parameters = inspect.signature(tirbench.bench).parameters
    assert next(iter(parameters)) == "funcs"
    assert {name: parameters[name].default for name in PAGE} == PAGE
    assert all(
        parameter.kind is parameter.KEYWORD_ONLY
        for name, parameter in parameters.items()
        if name != "funcs"
    )


def test_timing_imports_neither_triton_nor_a_profiler() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import tirbench.timing;"
        "new = set(sys.modules) - before;"
        "print([name for name in new if name.startswith(('triton', 'torch.profiler', 'numpy'))])"
    )
    root = Path(tirbench.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@no_gpu
@pytest.mark.parametrize("timer", ["event", "proton", "cudagraph_proton", "kineto", None])
def test_a_gpu_timer_without_a_gpu_is_refused_before_any_launch(timer: str | None) -> None:
    launched: list[int] = []
    with pytest.raises(TimerUnavailable, match=r"no CUDA device.*timer='wall' times CPU work"):
        tirbench.bench(
            {"f": lambda: launched.append(1)},
            timer=timer,  # type: ignore[arg-type]
            references={"r": lambda: launched.append(2)},
        )
    assert not launched


def test_wall_refuses_a_cuda_device() -> None:
    with pytest.raises(TimerUnavailable, match="wall' times CPU work"):
        tirbench.bench({"f": lambda: None}, timer="wall", device="cuda:0")


def test_wall_times_cpu_work_and_says_what_it_did() -> None:
    x = torch.ones(64, 64)
    result = tirbench.bench(
        {"add": lambda: x + x}, timer="wall", warmup=1, repeat=2, cooldown_s=0, rounds=2
    )
    assert set(result) >= {"impls", "round_samples", "errors", "timer", "benchmark_protocol"}
    assert result["timer"] == "wall"
    assert 0.1 < result["impls"]["add"] < 1e4
    assert len(result["round_samples"]["add"]) == 2
    protocol = result["benchmark_protocol"]
    assert protocol["l2"] == "warm"
    assert protocol["device"] == "cpu"
    assert (protocol["warmup"], protocol["repeat"]) == (1, 2)
    assert protocol["order"] == ["add"]
    counts = [len(samples) for samples in result["samples"]["add"]]
    assert protocol["sample_counts"]["add"] == counts == protocol["repeat_counts"]["add"]


def test_impls_is_the_mean_over_rounds_of_the_mean_of_each() -> None:
    result = tirbench.bench(
        {"f": lambda: sum(range(100))}, timer="wall", calls=7, cooldown_s=0, rounds=3
    )
    rounds = result["round_samples"]["f"]
    assert result["impls"]["f"] == pytest.approx(sum(rounds) / 3)
    for mean, samples in zip(rounds, result["samples"]["f"], strict=True):
        assert len(samples) == 7
        assert mean == pytest.approx(sum(samples) / 7)


def test_what_a_builder_does_is_not_timed() -> None:
    def build() -> Closure:
        time.sleep(0.05)
        return lambda: sum(range(100))

    result = tirbench.bench(
        {"f": lambda: None}, references={"r": build}, timer="wall", calls=5, cooldown_s=0
    )
    assert result["impls"]["r"] < 5_000
