"""`benchmarks/variance.py`: the components of a variance, and the whole of it on a CPU."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

WORKLOAD = """\
schema = 1
description = "Twice the input"
id = "n{n}"

[matrix]
n = [256]

[select]
default = ["*"]
cpu = ["*"]

[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }

[kernels.ours]
target = "kernels/ops.py:double"
args = ["x", "y"]

[check.oracle]
target = "kernels/ops.py:doubled"
args = ["x"]
returns = "y"
"""

OPS = '''\
"""Operations on one tensor."""

import torch


def double(x, y):
    torch.mul(x, 2, out=y)


def doubled(x):
    return x * 2
'''


@pytest.fixture(scope="module")
def variance() -> Iterator[ModuleType]:
    """`benchmarks` is no installed package."""
    sys.path.insert(0, str(ROOT))
    try:
        yield import_module("benchmarks.variance")
    finally:
        sys.path.remove(str(ROOT))


def test_components_of_a_variance_are_told_apart(variance: ModuleType) -> None:
    rng = random.Random(2)  # noqa: S311 - a simulation
    places = [rng.gauss(0.0, 0.02) for _ in range(40)]
    processes = [
        [
            [5.0 * math.exp(place + process + rng.gauss(0.0, 0.003)) for _ in range(3)]
            for place in places
            for process in [rng.gauss(0.0, 0.006)]
        ]
        for _ in range(30)
    ]
    found = variance.components(processes)
    assert found["placement_sd"] == pytest.approx(0.02, rel=0.3)
    assert found["process_sd"] == pytest.approx(0.006, rel=0.1)
    assert found["residual_sd"] == pytest.approx(0.003, rel=0.1)
    assert (found["placements"], found["processes"]) == (40, 30)


def test_what_was_measured_once_has_no_component(variance: ModuleType) -> None:
    found = variance.components([[[5.0]]])
    assert found["midmean_us"] == pytest.approx(5.0)
    assert [found[f"{name}_sd"] for name in ("placement", "process", "residual")] == [None] * 3


def test_a_regime_changes_when_calls_pass_the_middle_between_both(variance: ModuleType) -> None:
    calls = [1000.0] * 50 + [1200.0] * 150
    found = variance.regimes([1000.0] * 10, calls)
    assert found["ratio"] == pytest.approx(1.2)
    assert found["changed_after_ms"] == pytest.approx(51.2)
    same = variance.regimes([1000.0] * 10, [1001.0] * 100)
    assert same["changed_after_ms"] is None


def test_the_whole_study_runs_on_a_cpu(
    variance: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "workloads" / "kernels").mkdir(parents=True)
    (tmp_path / "workloads" / "double.toml").write_text(WORKLOAD)
    (tmp_path / "workloads" / "kernels" / "ops.py").write_text(OPS)
    monkeypatch.chdir(tmp_path)
    options = [
        "--device",
        "cpu",
        "--implementation",
        "ours",
        "--processes",
        "2",
        "--placements",
        "2",
        "--out",
        "out",
    ]
    files = ["workloads/double.toml", "--long", "workloads/double.toml"]
    monkeypatch.setattr(sys, "argv", ["variance", *files, *options])
    assert variance.main() == 0
    (path,) = (tmp_path / "out").glob("variance_*.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["places"]["double/n256/ours"]["processes"] == 2
    assert list(document["l2"]["double/n256/ours"]) == ["warm"]
    assert list(document["company"]["double/n256/ours"]) == ["alone", "among its case"]
    assert document["regimes"]["double/n256/ours"]["burst_us"] > 0
    assert document["missing"] == []
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert "## Regimes" in text
    assert "| kernel | alone µs | among its case µs |" in text
    assert str(tmp_path) not in text


def test_time_that_is_over_is_told(
    variance: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "workloads" / "kernels").mkdir(parents=True)
    (tmp_path / "workloads" / "double.toml").write_text(WORKLOAD)
    (tmp_path / "workloads" / "kernels" / "ops.py").write_text(OPS)
    monkeypatch.chdir(tmp_path)
    options = ["--device", "cpu", "--implementation", "ours", "--seconds", "-1", "--out", "out"]
    files = ["workloads/double.toml", "--long", "workloads/double.toml"]
    monkeypatch.setattr(sys, "argv", ["variance", *files, *options])
    assert variance.main() == 3
