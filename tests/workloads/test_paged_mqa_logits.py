"""paged_mqa_logits: the fused buffer, the page table, ragged lengths, and the sums over heads."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torch

from tests.workloads.kernel_files import load
from tests.workloads.own_process import compiled, interpreted
from tirbench.check import Rule, compare

NAME = "paged_mqa_logits"
PAGE, DIM, HEADS = 32, 32, 16
SHARED_BYTES_OF_A_PROGRAM = 227 * 1024  # compute capability 9.0, CUDA programming guide


@pytest.fixture(scope="module")
def kernels() -> Any:
    return load(NAME)


@pytest.fixture(scope="module")
def quantise() -> Any:
    return load("quantise")


@pytest.fixture(scope="module")
def faults() -> dict[str, str]:
    return interpreted(f"test_{NAME}")


@pytest.mark.parametrize("next_n", [1, 2, 3])
def test_the_kernel_agrees_with_the_oracle_and_writes_nothing_past_a_length(
    faults: dict[str, str], next_n: int
) -> None:
    mine = {label: fault for label, fault in faults.items() if f"next_n {next_n} " in label}
    assert len(mine) == 2
    assert not any(mine.values()), mine


def test_a_logit_is_the_weighted_sum_of_the_positive_products(kernels: Any) -> None:
    case = make(2)
    got = kernels.paged_mqa_logits_oracle(
        *(case[name].double() for name in ("q", "value", "scale", "weights")),
        case["table"],
        case["cols"],
    )
    # One element by hand, from the bytes of the buffer: token 1 of sequence 1, key 70.
    page = case["kv"][case["table"][1, 70 // PAGE]]
    values = page[: PAGE * DIM].view(torch.float8_e4m3fn).view(PAGE, DIM)
    scales = page[PAGE * DIM :].view(torch.float32)
    key = values[70 % PAGE].double() * scales[70 % PAGE].double()
    want = sum(
        float(case["weights"][3, head]) * max(0.0, float(case["q"][1, 1, head].double() @ key))
        for head in range(HEADS)
    )
    assert float(got[3, 70]) == pytest.approx(want, rel=1e-12)


def test_the_torch_reference_agrees_with_the_oracle_within_the_roundings_of_bfloat16(
    kernels: Any,
) -> None:
    case = make(2)
    got = kernels.paged_mqa_logits_torch(
        case["q"], case["kv"], case["weights"], case["table"], PAGE, case["cols"]
    )
    comparison = compare(
        got,
        oracle(kernels, case),
        Rule("logits", relative_l2=3e-3, lengths="lens"),
        region_tensor=case["row_lens"],
    )
    assert comparison.passed, comparison.message


def test_each_drafted_token_sees_one_key_more_than_the_one_before(kernels: Any) -> None:
    lens = torch.tensor([5, 9], dtype=torch.int32)
    rows = kernels.rows_of_batch(lens, 3)
    assert rows.dtype is torch.int32
    assert rows.tolist() == [3, 4, 5, 7, 8, 9]


def test_a_quantised_row_fills_the_range_and_comes_back_within_half_a_step(quantise: Any) -> None:
    x = torch.randn(7, 64) * torch.logspace(-3, 3, 7)[:, None]
    values, scales = quantise.per_row(x)
    assert values.dtype is torch.float8_e4m3fn
    assert (values.float().abs().amax(dim=-1) == 448).all()
    back = values.float() * scales[:, None]
    # 3 bits of mantissa; below 2**-6 steps are 2**-9.
    assert ((back - x).abs() <= x.abs() / 16 + 2**-10 * scales[:, None]).all()


def test_a_row_of_zeros_has_a_scale_that_can_be_divided_by(quantise: Any) -> None:
    values, scales = quantise.per_row(torch.zeros(2, 8))
    assert not values.float().any()
    assert (scales > 0).all()


def test_default_cases_run_on_the_tensor_cores_of_hopper_without_spilling() -> None:
    facts = compiled(NAME)
    assert len(facts) == 2
    for one in facts.values():
        assert one["wgmma"]
        assert one["loads_128"]
        assert not one["local_bytes"]
        assert one["shared_bytes"] <= SHARED_BYTES_OF_A_PROGRAM


def make(next_n: int) -> dict[str, Any]:
    """Three sequences: one that fills its pages, one that ends within a page, one of few keys."""
    quantise, kernels = load("quantise"), load(NAME)
    torch.manual_seed(next_n)
    max_pages, pages = 5, 17
    kv = torch.empty(pages, PAGE * (DIM + 4), dtype=torch.uint8)
    values, scales = quantise.per_row(torch.randn(pages, PAGE, DIM))
    kv[:, : PAGE * DIM] = values.view(torch.uint8).flatten(1)
    kv[:, PAGE * DIM :] = scales.view(torch.uint8)
    pitch = PAGE * (DIM + 4)
    lens = torch.tensor([PAGE * max_pages, 77, 3], dtype=torch.int32)
    return {
        "q": quantise.cast(torch.randn(3, next_n, HEADS, DIM)),
        "kv": kv,
        "value": kv.view(torch.float8_e4m3fn).as_strided((pages, PAGE, DIM), (pitch, DIM, 1)),
        "scale": kv.view(torch.float32).as_strided((pages, PAGE), (pitch // 4, 1), PAGE * DIM // 4),
        "weights": torch.randn(3 * next_n, HEADS),
        "row_lens": kernels.rows_of_batch(lens, next_n),
        "table": torch.randperm(pages)[: 3 * max_pages].view(3, max_pages).int(),
        "cols": 256,
    }


def oracle(kernels: Any, case: dict[str, Any]) -> torch.Tensor:
    """The logits in float64."""
    wide = (case[name].double() for name in ("q", "value", "scale", "weights"))
    logits: torch.Tensor = kernels.paged_mqa_logits_oracle(*wide, case["table"], case["cols"])
    return logits


def main() -> None:
    """Print what is wrong with what the interpreted kernel computes."""
    kernels = load(NAME)
    faults = {}
    for next_n in (1, 2, 3):
        case = make(next_n)
        logits = torch.full((3 * next_n, case["cols"]), float("nan"))
        kernels.paged_mqa_logits_kernel[(3, 3)](
            case["q"], case["value"], case["scale"], case["weights"], case["row_lens"], case["table"],
            logits, case["value"].stride(0), case["scale"].stride(0), case["cols"], 5,
            PAGES=2, PAGE=PAGE, HEADS=HEADS, DIM=DIM, NEXT_N=next_n,
        )  # fmt: skip
        comparison = compare(
            logits,
            oracle(kernels, case),
            Rule("logits", lengths="row_lens"),
            region_tensor=case["row_lens"],
        )
        faults[f"next_n {next_n} logits"] = "" if comparison.passed else comparison.message
        past = torch.arange(case["cols"]) >= case["row_lens"][:, None]
        kept = bool((logits.isnan() == past).all())
        faults[f"next_n {next_n} rest"] = "" if kept else "written past a length, or not up to it"
    json.dump(faults, sys.stdout)


if __name__ == "__main__":
    main()
