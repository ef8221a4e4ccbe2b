"""fused_add_rmsnorm_strided: both layouts and variants, in place, nothing between the rows touched."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torch

from tests.workloads.kernel_files import WORKLOADS, load
from tests.workloads.own_process import compiled, interpreted
from tirbench.check import Rule, compare
from tirbench.expand import expand
from tirbench.load import load as load_workload
from tirbench.values import OMIT

NAME = "fused_add_rmsnorm_strided"
BETWEEN = 123.0  # lies between the rows of a strided tensor
CASES = [case for case in expand(load_workload(WORKLOADS / f"{NAME}.toml")) if case.skipped is None]


@pytest.fixture(scope="module")
def kernels() -> Any:
    return load(NAME)


@pytest.fixture(scope="module")
def faults() -> dict[str, str]:
    return interpreted(f"test_{NAME}")


@pytest.mark.parametrize("layout", ["compact", "strided", "unlike"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_the_kernel_agrees_with_the_oracle_and_leaves_what_lies_between_the_rows(
    faults: dict[str, str], layout: str, offset: float
) -> None:
    mine = {label: fault for label, fault in faults.items() if f"{layout} {offset}" in label}
    assert len(mine) == 2 * 4  # two shapes; x, r and what lies between the rows of each
    assert not any(mine.values()), mine


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_the_eager_reference_agrees_with_the_oracle(kernels: Any, offset: float) -> None:
    x, r, w = torch.randn(6, 32), torch.randn(6, 32), torch.randn(32)
    wide = (one.double() for one in (x, r, w))
    want_x, want_r = kernels.fused_add_rmsnorm_torch(*wide, 1e-6, offset)
    got_x = kernels.build_eager(x, r, w, 1e-6, offset)()
    assert compare(got_x, want_x, Rule("x")).passed
    assert compare(r, want_r, Rule("r")).passed


def test_a_compact_launch_has_no_strides_among_its_arguments() -> None:
    for case in CASES:
        (kernel,) = (one for one in case.implementations if one.name == "triton")
        named = dict(kernel.steps[0].args.named)
        given = {key for key in named if key.endswith("_stride") and named[key] is not OMIT}
        strided = dict(case.values)["layout"] == "strided"
        assert given == ({"x_stride", "r_stride"} if strided else set())


def test_the_last_rows_of_the_huge_case_lie_past_2_to_the_31_elements() -> None:
    (huge,) = (case for case in CASES if "huge" in case.selected_by)
    x = next(tensor for tensor in huge.tensors if tensor.name == "x")
    assert x.strides is not None
    assert (x.shape[0] - 1) * x.strides[0] > 2**31  # type: ignore[operator]  # values of the case


def test_default_cases_load_128_bits_at_a_time_and_do_not_spill() -> None:
    facts = compiled(NAME)
    assert len(facts) == 3
    assert all(one["loads_128"] and not one["local_bytes"] for one in facts.values()), facts


def main() -> None:
    """Print what is wrong with what the interpreted kernel computes."""
    torch.manual_seed(0)
    kernels = load(NAME)
    faults: dict[str, str] = {}
    for rows, hidden in ((4, 256), (5, 200)):
        # pitch of the rows of x and of r; the kernel is told strides unless both are compact
        for layout, pitches in (
            ("compact", (hidden, hidden)),
            ("strided", (2 * hidden, 2 * hidden)),
            ("unlike", (hidden + 8, 3 * hidden)),
        ):
            for offset in (0.0, 1.0):
                label = f"{layout} {offset} {rows}x{hidden}"
                whole = [torch.full((rows, pitch), BETWEEN).half() for pitch in pitches]
                x, r = (one[:, :hidden] for one in whole)
                x.copy_(torch.randn(rows, hidden))
                r.copy_(torch.randn(rows, hidden))
                w = torch.randn(hidden).half()
                wants = kernels.fused_add_rmsnorm_torch(
                    x.double(), r.double(), w.double(), 1e-6, offset
                )
                strides = (
                    {} if layout == "compact" else {"x_stride": pitches[0], "r_stride": pitches[1]}
                )
                kernels.fused_add_rmsnorm_strided_kernel[(rows,)](
                    x, r, w, hidden, 1e-6, offset, BLOCK=256, **strides
                )
                for name, got, want, one in zip("xr", (x, r), wants, whole, strict=True):
                    comparison = compare(got, want, Rule(name))
                    faults[f"{label} {name}"] = "" if comparison.passed else comparison.message
                    kept = bool((one[:, hidden:] == BETWEEN).all())
                    faults[f"{label} between {name}"] = "" if kept else "written between the rows"
    json.dump(faults, sys.stdout)


if __name__ == "__main__":
    main()
