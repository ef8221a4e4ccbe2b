"""NVFP4: the quantiser, its layout of scales, and a check that sees a mistake in the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

KernelFile = Callable[[str], Any]
SHARED_BYTES_OF_A_PROGRAM = 227 * 1024  # compute capability 9.0, CUDA programming guide
MISTAKES = {
    "the workload as it is": [],
    "the even columns are taken for the odd ones": [("packed >> 4", "packed & 15")],
    "the sign is dropped": [("(bits & 8) << 12 | ", "")],
    "scales are read row by row": [("(row % 32) * 16 + (row % 128) // 32 * 4", "(row % 128) * 4")],
    "each scale is its neighbour's": [("group % 4", "(group + 1) % 4")],
    "alpha is forgotten": [("accumulator * tl.load(alpha_ptr)", "accumulator")],
    "the last columns are left out": [
        ("range(0, row_bytes, STEP)", "range(0, row_bytes - 8, STEP)")
    ],
}


@pytest.fixture
def fp4(kernel_file: KernelFile) -> Any:
    return kernel_file("quantise_fp4")


def test_every_value_is_encoded_as_itself_and_decoded_again(fp4: Any) -> None:
    values = torch.tensor(fp4.VALUES + tuple(-value for value in fp4.VALUES[1:]))
    codes = fp4.encode(values)
    assert codes.tolist() == [*range(8), *range(9, 16)]
    pairs = codes | codes.flip(0) << 4  # the low half of each byte is the even column
    assert torch.equal(fp4.decode(pairs[None])[0, 0::2], values)
    assert torch.equal(fp4.decode(pairs[None])[0, 1::2], values.flip(0))


def test_halfway_values_go_to_the_even_code_and_large_ones_to_six(fp4: Any) -> None:
    halfway = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, 1e9])
    assert fp4.encode(halfway).tolist() == [0, 2, 2, 4, 4, 6, 6, 7, 7]
    assert fp4.encode(-halfway).tolist() == [8, 10, 10, 12, 12, 14, 14, 15, 15]


def test_any_number_is_encoded_as_one_of_the_nearest(fp4: Any) -> None:
    numbers = torch.linspace(-6, 6, 4001)
    table = torch.tensor(fp4.VALUES + tuple(-value for value in fp4.VALUES))
    error = (table[fp4.encode(numbers).int()] - numbers).abs()
    assert torch.equal(error, (table[None] - numbers[:, None]).abs().amin(1))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (128, 4), (130, 5), (300, 12)])
def test_a_scale_lies_where_the_128x4_layout_says(fp4: Any, rows: int, columns: int) -> None:
    scales = torch.randint(1, 120, (rows, columns), dtype=torch.uint8).view(torch.float8_e4m3fn)
    laid = fp4.swizzle(scales)
    assert laid.is_contiguous()
    flat, given = laid.view(torch.uint8).flatten(), scales.view(torch.uint8)
    tiles = -(-columns // 4)
    for r in range(rows):
        for c in range(columns):
            inside = (r % 32) * 16 + (r % 128 // 32) * 4 + c % 4
            assert flat[(r // 128 * tiles + c // 4) * 512 + inside] == given[r, c]
    assert int(flat.count_nonzero()) == rows * columns
    assert torch.equal(fp4.unswizzle(laid.float(), rows, columns), scales.float())


def test_quantising_loses_at_most_the_distance_of_neighbours(fp4: Any) -> None:
    x = torch.randn(200, 96, dtype=torch.float64)
    x[3] = 0.0
    packed, scales, gain = fp4.quantise(x)
    back = fp4.dequantise(packed, scales, torch.float64) / gain
    largest = x.unflatten(1, (-1, 16)).abs().amax(-1, keepdim=True).expand(-1, -1, 16).flatten(1)
    # Between 4 and 6 neighbours are 2 apart; the scale itself is rounded to 3 bits of mantissa.
    assert ((back - x).abs() <= (1 / 6 + 1 / 16) * largest + 1e-6).all()
    assert not back[3].any()
    assert scales.float().max() == 448


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dequantised_operands_are_exact_in_sixteen_bits(fp4: Any, dtype: torch.dtype) -> None:
    packed, scales, _ = fp4.quantise(torch.randn(64, 256))
    exact = fp4.dequantise(packed, scales.double(), torch.float64)
    assert torch.equal(fp4.dequantise(packed, scales, dtype).double(), exact)


def test_the_oracle_is_close_to_the_product_before_quantising(
    fp4: Any, kernel_file: KernelFile
) -> None:
    a, b = torch.randn(40, 512), torch.randn(30, 512)
    (pa, sa, ga), (pb, sb, gb) = fp4.quantise(a), fp4.quantise(b)
    gemm = kernel_file("fp4_gemm")
    c = gemm.fp4_gemm_oracle(pa, sa, pb, sb, fp4.product_of_gains(ga, gb))
    assert torch.cosine_similarity(c.flatten(), (a @ b.T).double().flatten(), dim=0) > 0.97


def test_the_check_accepts_the_kernel_and_no_mistake_in_it(verdicts: Callable[..., Any]) -> None:
    found = verdicts("fp4_gemm", MISTAKES)
    assert found.pop("the workload as it is") is None
    assert not [mistake for mistake, reason in found.items() if reason is None]


def test_the_kernel_uses_the_tensor_cores_of_hopper_without_spilling(
    hopper_facts: Callable[[str], dict[str, dict[str, int]]],
) -> None:
    facts = hopper_facts("fp4_gemm")
    assert len(facts) == 2
    for launch in facts.values():
        assert launch["wgmma"]
        assert launch["loads_128"]
        assert not launch["local_bytes"]
        assert launch["shared_bytes"] <= SHARED_BYTES_OF_A_PROGRAM
