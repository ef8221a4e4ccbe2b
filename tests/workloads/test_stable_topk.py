"""stable_topk: bit-exact for every pattern and dtype, ties and signed zeros in their order."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torch

from tests.workloads.kernel_files import load
from tests.workloads.own_process import compiled, interpreted

NAME = "stable_topk"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
PATTERNS = ("unique", "tie_heavy", "all_equal", "negative", "padded")


@pytest.fixture(scope="module")
def kernels() -> Any:
    return load(NAME)


@pytest.fixture(scope="module")
def faults() -> dict[str, str]:
    return interpreted(f"test_{NAME}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_kernel_sorts_every_pattern_bit_for_bit(
    faults: dict[str, str], pattern: str, dtype: str
) -> None:
    mine = {label: one for label, one in faults.items() if label.startswith(f"{pattern} {dtype} ")}
    assert len(mine) == 3
    assert not any(mine.values()), mine


def test_the_kernel_orders_numbers_of_every_sign_and_exponent(faults: dict[str, str]) -> None:
    assert faults["float16 codes"] == ""


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_unique_values_are_unique_in_every_dtype(kernels: Any, dtype: torch.dtype) -> None:
    values = kernels.make_unique(2, 2048, dtype)
    assert values.dtype is dtype
    assert values.isfinite().all()
    assert all(len(row.unique()) == 2048 for row in values)


def test_ties_hold_zeros_of_both_signs(kernels: Any) -> None:
    values = kernels.make_tie_heavy(4, 256, torch.float16)
    zeros = values == 0
    assert (zeros & values.signbit()).any()
    assert (zeros & ~values.signbit()).any()


def test_padded_rows_end_in_infinities_without_an_index(kernels: Any) -> None:
    values, indices = kernels.make_pairs("padded", 8, 64, torch.float32)
    assert (values == float("-inf")).any()
    assert ((values == float("-inf")) == (indices == -1)).all()
    assert not (values[:, 1:].isfinite() & values[:, :-1].isinf()).any()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_indices_of_a_row_are_all_different(kernels: Any, pattern: str) -> None:
    _, indices = kernels.make_pairs(pattern, 3, 100, torch.float32)
    for row in indices:
        found = row[row >= 0]
        assert len(found.unique()) == len(found)


def test_default_cases_do_not_spill_and_move_indices_without_shuffles() -> None:
    facts = compiled(NAME)
    assert len(facts) == 3
    assert not any(one["local_bytes"] for one in facts.values()), facts
    # `tl.gather` of 2048 elements alone took 128 registers of 512 threads.
    assert all(one["registers"] <= 64 for one in facts.values()), facts


def main() -> None:
    """Print what is wrong with what the interpreted kernel computes."""
    torch.manual_seed(0)
    kernels = load(NAME)
    faults: dict[str, str] = {}
    for pattern in PATTERNS:
        for name, dtype in DTYPES.items():
            for rows, k, per_program in ((3, 16, 1), (5, 2, 4), (3, 33, 2)):
                pairs = kernels.make_pairs(pattern, rows, k, dtype)
                label = f"{pattern} {name} {rows}x{k}"
                faults[label] = fault(kernels, pairs, per_program)
    faults["float16 codes"] = fault(kernels, float16_codes(), 2)
    json.dump(faults, sys.stdout)


def float16_codes() -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of every sign and exponent, shuffled: each 128th code, and those around the zeros."""
    near = torch.arange(-8, 8)
    codes = torch.cat([torch.arange(-(1 << 15), 1 << 15, 128), near, near - (1 << 15)])
    numbers = codes.to(torch.int16).view(torch.float16)
    numbers = numbers[~numbers.isnan()]
    numbers = numbers[torch.randperm(len(numbers))][: len(numbers) // 2 * 2].reshape(2, -1)
    order = torch.arange(numbers.shape[1], dtype=torch.int32)
    return numbers, order.expand(2, -1).contiguous()


def fault(kernels: Any, pairs: tuple[torch.Tensor, torch.Tensor], per_program: int) -> str:
    """Sort in place and compare the bits with `torch.sort`'s."""
    values, indices = pairs
    code = torch.int32 if values.dtype == torch.float32 else torch.int16
    want_values, want_indices = kernels.stable_topk_torch(values, indices)
    (rows, k), width = values.shape, 1 << (values.shape[1] - 1).bit_length()
    kernels.stable_topk_kernel[(-(-rows // per_program),)](
        values, indices, rows, k, ROWS=per_program, K=width
    )
    if not torch.equal(indices, want_indices):
        return f"{int((indices != want_indices).sum())} indices differ"
    wrong = int((values.view(code) != want_values.view(code)).sum())
    return f"{wrong} values differ in their bits" if wrong else ""


if __name__ == "__main__":
    main()
