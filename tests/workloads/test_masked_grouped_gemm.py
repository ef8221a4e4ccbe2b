"""The masked grouped product: its quantisers, its region, and a check that sees a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

SHARED_BYTES_OF_A_PROGRAM = 227 * 1024  # compute capability 9.0, CUDA programming guide
MISTAKES = {
    "the workload as it is": [],
    "the last row of a group is left out": [("row[:, None] < rows)", "row[:, None] < rows - 1)")],
    "every tile has the scale of the first rows of b": [("tile_n * BLOCK_N // BLOCK_K", "0")],
    "every step has the first scale of a": [("tl.load(a_scale + k)", "tl.load(a_scale)")],
    "all groups use the first group's b": [("(group * N + column % N)", "(column % N)")],
    "a program takes one tile only": [("tile += tl.num_programs(0)", "tile += 1000000")],
}


@pytest.fixture
def grouped(kernel_file: Callable[[str], Any]) -> Any:
    return kernel_file("masked_grouped_gemm")


@pytest.mark.parametrize(("quantise", "rows"), [("quantise_rows", 3), ("quantise_blocks", 200)])
def test_quantising_keeps_three_bits_of_mantissa(grouped: Any, quantise: str, rows: int) -> None:
    x = torch.randn(2, rows, 256) * torch.tensor([1.0, 1000.0])[:, None, None]
    x[1, 0] = 0.0
    values, scales = getattr(grouped, quantise)(x)
    assert values.dtype == torch.float8_e4m3fn
    assert values.float().isfinite().all()
    for group in range(2):
        back = grouped.dequantise(values[group], scales[group], torch.float32)
        # Half a unit of three bits, or half the smallest number of float8, 2**-9, times the scale.
        limit = x[group].abs() / 16 + float(scales[group].max()) * 2**-10 + 1e-9
        assert ((back - x[group]).abs() <= limit).all()


def test_the_oracle_multiplies_the_rows_that_are_there_and_no_others(grouped: Any) -> None:
    a, a_scale = grouped.quantise_rows(torch.randn(3, 20, 128))
    b, b_scale = grouped.quantise_blocks(torch.randn(3, 150, 128))
    masked_m = torch.tensor([20, 0, 7], dtype=torch.int32)
    wide = [x.double() for x in (a, a_scale, b, b_scale)]
    d = grouped.masked_grouped_gemm_oracle(*wide, masked_m)
    rows_of_b = torch.arange(150) // 128
    full_a = wide[0] * wide[1]
    full_b = wide[2] * wide[3][:, rows_of_b]
    torch.testing.assert_close(d[0], full_a[0] @ full_b[0].T)
    torch.testing.assert_close(d[2, :7], full_a[2, :7] @ full_b[2].T)
    assert not d[1].any()
    assert not d[2, 7:].any()


def test_the_reference_of_torch_leaves_the_other_rows_alone(grouped: Any) -> None:
    a, a_scale = grouped.quantise_rows(torch.randn(2, 8, 128))
    b, b_scale = grouped.quantise_blocks(torch.randn(2, 16, 128))
    d = torch.full((2, 8, 16), 7.0)
    masked_m = torch.tensor([3, 8], dtype=torch.int32)
    grouped.build_matmuls(a, a_scale, b, b_scale, d, masked_m)()
    want = grouped.masked_grouped_gemm_oracle(a, a_scale, b, b_scale, masked_m)
    torch.testing.assert_close(d[0, :3], want[0, :3])
    torch.testing.assert_close(d[1], want[1])
    assert (d[0, 3:] == 7).all()


def test_the_check_accepts_the_kernel_and_no_mistake_in_it(verdicts: Callable[..., Any]) -> None:
    found = verdicts("masked_grouped_gemm", MISTAKES)
    assert found.pop("the workload as it is") is None
    assert not [mistake for mistake, reason in found.items() if reason is None]


def test_the_kernel_multiplies_float8_on_the_tensor_cores_without_spilling(
    hopper_facts: Callable[[str], dict[str, dict[str, int]]],
) -> None:
    facts = hopper_facts("masked_grouped_gemm")
    assert len(facts) == 2
    for launch in facts.values():
        assert launch["wgmma"]
        assert launch["loads_128"]
        assert not launch["local_bytes"]
        assert launch["shared_bytes"] <= SHARED_BYTES_OF_A_PROGRAM
