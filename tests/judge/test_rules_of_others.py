"""The rules that ours is compared with in `benchmarks/verdicts.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    """Loaded by path: `benchmarks` is no installed package."""
    path = Path(__file__).parents[2] / "benchmarks" / "verdicts_rules.py"
    spec = importlib.util.spec_from_file_location("verdicts_rules", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rank_test_is_that_of_the_textbook(rules: ModuleType) -> None:
    # Ranks of head: 3.5, 5.5, 7, 8, so U = 14 of 16; two ties of two leave a variance of 11.714.
    base, head = np.array([1.0, 2.0, 2.5, 3.0]), np.array([2.5, 3.0, 4.0, 5.0])
    p, sign = rules.mann_whitney_p(base, head)
    assert sign == 1
    assert p == pytest.approx(0.1081, abs=1e-4)


def test_the_rank_test_is_that_of_scipy(rules: ModuleType) -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is no dependency")
    rng = np.random.default_rng(5)
    for shift in (0.0, 0.3, 1.0):
        base = np.round(rng.normal(10, 1, 80), 1)
        head = np.round(rng.normal(10 + shift, 1, 60), 1)
        want = stats.mannwhitneyu(base, head, method="asymptotic").pvalue
        assert rules.mann_whitney_p(base, head)[0] == pytest.approx(want, rel=1e-9)


def test_equal_samples_differ_by_no_rule(rules: ModuleType) -> None:
    same = np.full(20, 3.2)
    assert [rule(same, same) for rule in rules.RULES.values()] == [0, 0, 0]


def test_legacy_nvbench_compares_the_means_with_the_smaller_noise(rules: ModuleType) -> None:
    base = np.array([9.9, 10.0, 10.1])
    assert rules.nvbench_legacy(base, base * 1.009) == 0
    assert rules.nvbench_legacy(base, base * 1.011) == 1
    assert rules.nvbench_legacy(base, base / 1.02) == -1


def test_one_percent_on_medians_is_one_percent_on_medians(rules: ModuleType) -> None:
    base = np.array([1.0, 10.0, 100.0])
    assert rules.fixed_percent(base, np.array([9.0, 10.09, 11.0])) == 0
    assert rules.fixed_percent(base, np.array([9.0, 10.11, 11.0])) == 1
    assert rules.fixed_percent(base, np.array([9.0, 9.89, 11.0])) == -1
