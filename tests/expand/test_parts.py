"""What cases share is exactly what each would be alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tirbench.expand import expand
from tirbench.load import load
from tirbench.model import Case, Workload

ROOT = Path(__file__).parents[2]
SUITE = sorted((ROOT / "workloads").glob("*.toml"))
MOST: Final = 60
"""Cases of one workload that are expanded alone; of more, every n-th."""


def alone(workload: Workload, case: Case) -> Case:
    """The case as the only one of its workload."""
    names = {name for name, _ in case.values}
    only = replace(
        workload,
        matrix=(),
        cases=(case.values,) if names else (),
        select=(),
        id=workload.id or "_".join(f"{name}_{{{name}}}" for name, _ in case.values) or "base",
    )
    (found,) = expand(only)
    return replace(found, workload=workload, selected_by=case.selected_by)


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.stem)
def test_a_case_among_others_is_the_case_alone(path: Path) -> None:
    workload = replace(load(path, ROOT), skips=())
    cases = expand(workload)
    for case in cases[:: max(1, len(cases) // MOST)]:
        assert alone(workload, case) == case
        assert repr(alone(workload, case)) == repr(case), (
            "1, 1.0 and True are equal and not the same"
        )


WORKLOAD = """
schema = 1
description = "A derived name that stands for a tensor, whose shape differs from case to case"

[matrix]
n = [2, 4]
flag = [0, 1]
scale = [1, 2]

[derive]
chosen = "x if scale == 1 else z"
rows = "n * scale"

[tensors]
x = { shape = ["n", 3], dtype = "float32", init = "normal" }
z = { shape = ["rows", 3], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }

[kernels.ours]
target = "ops.py:work"
args = ["chosen", "size(chosen, 0)", "x", "z", "flag", "y"]

[check.oracle]
target = "ops.py:right"
args = ["x"]
returns = "y"
"""


def test_a_shape_behind_a_derived_name_is_that_of_the_case(tmp_path: Path) -> None:
    (tmp_path / ".tirbench").mkdir()
    (tmp_path / "ops.py").write_text("def work(a, n, x, z, flag, y): ...\ndef right(x): ...\n")
    path = tmp_path / "derived.toml"
    path.write_text(WORKLOAD)
    workload = load(path)
    cases = expand(workload)
    assert len(cases) == 8
    for case in cases:
        values = dict(case.values)
        shown = case.implementations[0].steps[0].args.positional[1]
        assert isinstance(values["n"], int)
        assert isinstance(values["scale"], int)
        assert shown == values["n"] * values["scale"]
        assert repr(alone(workload, case)) == repr(case)
