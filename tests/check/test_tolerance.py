from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench.check import CheckError, Rule, compare, default_rtol, zeros_pass
from tirbench.check.measure import scale

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
Y = Rule("y")


def doubles(most: float) -> st.SearchStrategy[list[float]]:
    number = st.floats(-most, most, allow_nan=False)
    return st.lists(number, min_size=1, max_size=30)


def test_default_tolerances_are_those_of_the_language() -> None:
    assert [default_rtol(dtype) for dtype in DTYPES] == [1e-9, 1e-5, 1e-3, 8e-3, 0.07, 0.13]
    assert default_rtol(torch.int32) == default_rtol(torch.bool) == 0
    with pytest.raises(CheckError, match="has no default tolerance; give rtol"):
        default_rtol(torch.float8_e4m3fnuz)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(deadline=None)  # the first call of a torch function is slow
@given(data=st.data())
def test_a_perfectly_rounded_result_never_fails(dtype: torch.dtype, data: st.DataObject) -> None:
    want = torch.tensor(data.draw(doubles(torch.finfo(dtype).max)), dtype=torch.float64)
    found = compare(want.to(dtype), want, Y)
    assert found.passed, found.message
    assert 0 <= found.worst <= 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(deadline=None)  # the first call of a torch function is slow
@given(data=st.data())
def test_an_element_off_by_more_than_the_limit_always_fails(
    dtype: torch.dtype, data: st.DataObject
) -> None:
    most = min(torch.finfo(dtype).max / 8, 1e100)
    want = torch.tensor(data.draw(doubles(most)), dtype=torch.float64)
    at = data.draw(st.integers(0, len(want) - 1))
    scale = float(want.abs().max()) or 1.0  # squares of the smallest numbers are zero
    rms = scale * float((want / scale).square().mean().sqrt())
    limit = default_rtol(dtype) * (abs(float(want[at])) + rms)
    # Twice the limit is away from it by more than any rounding of `got` itself, but for tiny numbers.
    off = max(2 * limit + default_rtol(dtype) * abs(float(want[at])), torch.finfo(dtype).tiny)
    got = want.to(dtype, copy=True)
    got[at] = (want[at] + off * data.draw(st.sampled_from([-1, 1]))).to(dtype)
    found = compare(got, want, Y)
    assert not found.passed
    assert found.worst > 1


@settings(deadline=None)  # the first call of a torch function is slow
@given(st.floats(0.01, 0.99), st.floats(1.01, 100))
def test_worst_is_the_share_of_the_limit_that_was_used(within: float, beyond: float) -> None:
    want = torch.tensor([3.0, 4.0], dtype=torch.float64)
    limit = 1e-9 * (3 + 12.5**0.5)
    for share in (within, beyond):
        got = torch.tensor([3.0 + share * limit, 4.0], dtype=torch.float64)
        found = compare(got, want, Y)
        assert found.worst == pytest.approx(share, rel=1e-4)
        assert found.passed == (share <= 1)


@pytest.mark.parametrize("size", [1e-250, 1e250])
def test_squares_of_extreme_numbers_loosen_no_tolerance(size: float) -> None:
    want = torch.full((9,), size, dtype=torch.float64)
    for rule in (Y, Rule("y", relative_l2=1e-6)):
        assert compare(want.clone(), want, rule).passed
        assert not compare(1.1 * want, want, rule).passed
        assert not zeros_pass(want, rule, dtype=torch.float64)


def test_the_last_element_counts() -> None:
    want = torch.ones(3, 70_000, dtype=torch.float64)
    got = want.half()
    got[-1, -1] = 2
    found = compare(got, want, Y)
    assert found.message == (
        "y: 1 of 210000 elements off by more than rtol 0.001 · (|want| + rms 1); "
        "worst at [2, 69999]: got 2.0, want 1.0 (500 × the limit)"
    )


@pytest.mark.parametrize("k", [256, 1024, 4096, 16384])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_good_matrix_product_passes_however_long_its_sums(k: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(k)
    a = torch.randn(16, k, generator=generator).to(dtype)
    b = torch.randn(k, 16, generator=generator).to(dtype)
    got = (a.float() @ b.float()).to(dtype)
    assert compare(got, a.double() @ b.double(), Y).passed


def test_values_far_below_the_rms_are_judged_by_the_rms() -> None:
    want = torch.tensor([1.0, 1e-6], dtype=torch.float64)
    assert compare(torch.tensor([1.0, 0.0]).half(), want, Y).passed


def test_rounding_to_subnormals_passes() -> None:
    want = torch.tensor([3.1e-8, 8.9e-8], dtype=torch.float64)
    assert compare(want.half(), want, Y).passed


def test_atol_takes_the_place_of_the_rms_term() -> None:
    want = torch.tensor([100.0, 0.0], dtype=torch.float64)
    got = torch.tensor([100.0, 0.05])
    assert compare(got, want, Rule("y", atol=0.06)).passed
    assert not compare(got, want, Rule("y", atol=0.04)).passed
    assert compare(got, want, Rule("y", rtol=0.001)).passed
    assert "more than atol 0.04: " not in compare(got, want, Rule("y", atol=0.04)).message
    assert "atol 0.04 + rtol 1e-05 · |want|" in compare(got, want, Rule("y", atol=0.04)).message
    strict = compare(got, want, Rule("y", rtol=0.0, atol=0.04))
    assert strict.message.startswith("y: 1 of 2 elements off by more than atol 0.04; worst at [1]")


def test_integers_and_bools_are_exact() -> None:
    want = torch.tensor([1, 2, 3])
    assert compare(torch.tensor([1, 2, 3], dtype=torch.int32), want, Y).passed
    found = compare(torch.tensor([1, 2, 4], dtype=torch.int32), want, Y)
    assert (found.passed, found.worst) == (False, inf)
    assert found.message == "y: 1 of 3 elements differ; first at [2]: got 4, want 3"
    keep = torch.tensor([True, False])
    assert compare(keep, keep, Y).passed
    assert not compare(keep, ~keep, Y).passed


@pytest.mark.parametrize("want", [0, 1, -1, 2**63 - 1])
def test_the_least_integer_equals_no_other(want: int) -> None:
    got = torch.full((4,), -(2**63))
    assert not compare(got, torch.full((4,), want), Y).passed


def test_integers_an_oracle_returns_as_floats_are_compared_as_numbers() -> None:
    want = torch.tensor([1.0, 2.5], dtype=torch.float64)
    assert not compare(torch.tensor([1, 2]), want, Y).passed
    assert compare(torch.tensor([1, 2]), want.floor(), Y).passed


def test_exact_is_equality_with_the_rounded_value() -> None:
    want = torch.tensor([1 / 3, 2.0], dtype=torch.float64)
    assert compare(want.half(), want, Rule("y", exact=True)).passed
    off = want.half() + torch.tensor([0.0, 0.002]).half()
    assert not compare(off, want, Rule("y", exact=True)).passed
    assert not compare(off, want, Rule("y", exact=True, rtol=0.1)).passed


def test_a_share_of_elements_may_be_off_where_matched_says_so() -> None:
    want = torch.ones(10, dtype=torch.float64)
    got = want.half()
    got[3] = 5
    assert compare(got, want, Rule("y", matched=0.9)).passed
    assert compare(got, want, Rule("y", matched=0.9)).worst == 1
    got[4] = 5
    found = compare(got, want, Rule("y", matched=0.9))
    assert not found.passed
    assert "2 of 10 elements off by more than rtol 0.001" in found.message
    assert "(a share of 0.1 may)" in found.message
    assert not compare(got, want, Rule("y", matched=1.0)).passed


def test_relative_l2_and_cosine_judge_the_whole() -> None:
    want = torch.full((100,), 2.0, dtype=torch.float64)
    got = want.float()
    got[0] = 2.2
    assert compare(got, want, Rule("y", relative_l2=0.0101)).passed
    found = compare(got, want, Rule("y", relative_l2=0.005))
    assert found.worst == pytest.approx(2, rel=1e-5)
    assert found.message == "y: relative L2 error 0.01, allowed 0.005"
    assert compare(-got, want, Rule("y", cosine=0.97)).message == (
        "y: cosine -0.999951, wanted at least 0.97"
    )
    assert compare(3 * got, want, Rule("y", cosine=0.97)).passed


def test_all_conditions_that_are_given_must_hold() -> None:
    want = torch.full((100,), 2.0, dtype=torch.float64)
    got = 3 * want.float()
    both = compare(got, want, Rule("y", cosine=0.97, relative_l2=0.1))
    assert not both.passed
    assert both.message == ("y: relative L2 error 2, allowed 0.1; off by a constant factor 3.0")


def test_an_output_may_not_be_worse_than_that_of_a_reference() -> None:
    want = torch.linspace(1, 2, 100, dtype=torch.float64)
    good, bad = want.half(), (want * 1.0008).half()
    rule = Rule("y", not_worse_than="torch")
    assert compare(good, want, rule, reference=bad).passed
    assert compare(bad, want, rule, reference=bad).passed
    found = compare(bad, want, rule, reference=good)
    assert not found.passed
    assert "that of torch 0.000" in found.message
    assert compare(good, want, rule, reference=want).passed, "rounding itself is never worse"
    alone = compare(bad, want, rule)
    assert alone.passed
    assert "torch is not here to compare with" in alone.message


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_reference_that_is_not_finite_is_no_wildcard(bad: float) -> None:
    want = torch.tensor([1.0, bad], dtype=torch.float64)
    key = "allow_nan" if isnan(bad) else "allow_inf"
    what = "NaN" if isnan(bad) else "an infinity"
    message = rf"y: the oracle wants {what} 1 time\(s\), the first {bad} at \[1\]; {key}"
    other = Rule("y", allow_nan=not isnan(bad), allow_inf=isnan(bad))
    for rule in (Y, other):
        with pytest.raises(CheckError, match=message):
            compare(torch.zeros(2), want, rule)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_what_is_not_finite_must_match_by_position_and_sign_when_allowed(bad: float) -> None:
    rule = Rule("y", allow_nan=isnan(bad), allow_inf=not isnan(bad))
    want = torch.tensor([1.0, bad, 2.0], dtype=torch.float64)
    assert compare(want.float(), want, rule).passed
    for got in ([bad, bad, 2.0], [1.0, 5.0, 2.0], [1.0, -bad if bad == bad else inf, 2.0]):  # noqa: PLR0124
        assert not compare(torch.tensor(got), want, rule).passed


def test_infinities_do_not_loosen_the_tolerance_of_the_rest() -> None:
    want = torch.tensor([1.0, inf], dtype=torch.float64)
    assert not compare(torch.tensor([1.1, inf]), want, Rule("y", allow_inf=True)).passed


def test_nan_in_the_output_is_wrong_by_every_measure() -> None:
    want = torch.ones(50, dtype=torch.float64)
    got = want.float()
    got[7] = nan
    for rule in (Y, Rule("y", exact=True), Rule("y", relative_l2=0.5), Rule("y", cosine=0.1)):
        assert not compare(got, want, rule).passed


def test_another_shape_is_wrong() -> None:
    found = compare(torch.zeros(2, 3), torch.zeros(3, 2), Y)
    assert found.message == "y: got shape [2, 3], want [3, 2]"


def test_outputs_without_elements_are_right() -> None:
    assert compare(torch.zeros(0, 3), torch.zeros(0, 3), Y).passed
    assert not zeros_pass(torch.zeros(0, 3), Y, dtype=torch.float32)


@settings(deadline=None)  # the first call of a torch function is slow
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_the_rms_is_that_of_the_finite_elements(numbers: list[float]) -> None:
    want = torch.tensor([*numbers, inf, nan], dtype=torch.float64)
    wanted = (sum(x * x for x in numbers) / len(numbers)) ** 0.5
    assert scale(want, None).rms == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_default_tolerance_refuses_zeros(dtype: torch.dtype) -> None:
    want = torch.tensor([1e-3, 0.0, 0.0], dtype=torch.float64)
    assert not zeros_pass(want, Y, dtype=dtype)


def test_a_check_that_zeros_would_pass_is_found() -> None:
    small = torch.full((9,), 1e-4, dtype=torch.float64)
    assert zeros_pass(small, Rule("y", atol=1e-3), dtype=torch.float16)
    sparse = torch.tensor([0.0] * 9 + [1.0], dtype=torch.float64)
    assert zeros_pass(sparse, Rule("y", matched=0.9), dtype=torch.float16)
    assert zeros_pass(torch.ones(3), Rule("y", relative_l2=1.0), dtype=torch.float16)
    assert zeros_pass(torch.ones(3), Rule("y", rtol=1.0), dtype=torch.float16)


def test_an_oracle_of_zeros_may_be_met_by_zeros() -> None:
    assert not zeros_pass(torch.zeros(4), Y, dtype=torch.float16)
    assert compare(torch.zeros(4), torch.zeros(4), Y).passed


def test_a_region_without_elements_checks_nothing_and_is_refused() -> None:
    rule = Rule("y", lengths="lens")
    none = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(CheckError, match="y: lens selects no element, so nothing is checked"):
        zeros_pass(torch.ones(2, 3), rule, dtype=torch.float16, region_tensor=none)
    inout = {"region_tensor": none, "initial": torch.ones(2, 3)}
    assert not zeros_pass(torch.ones(2, 3), rule, dtype=torch.float16, **inout)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rows": "a", "mask": "b"}, "y: only one of rows, lengths and mask can be given"),
        ({"matched": 1.5}, "y: matched is a share above 0 up to 1"),
        ({"rtol": -1.0}, "y: rtol is -1.0, must be 0 or more"),
        ({"atol": nan}, "y: atol is nan, must be 0 or more"),
    ],
)
def test_rules_that_cannot_be_are_refused(more: dict[str, object], message: str) -> None:
    with pytest.raises(CheckError) as caught:
        Rule("y", **more)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.float8_e5m2])
def test_exact_is_bit_for_bit_and_tells_zeros_of_either_sign_apart(dtype: torch.dtype) -> None:
    exact, near = Rule("y", exact=True), Rule("y", rtol=0)
    want = torch.tensor([1.0, 0.0, -0.0, -1e-300], dtype=torch.float64)
    right = torch.tensor([1.0, 0.0, -0.0, -1e-300]).to(dtype)
    if dtype is torch.float64:
        right = want.clone()
    assert compare(right, want, exact).passed, "what underflows keeps its sign"
    for index in (1, 2):
        got = right.clone()
        got[index] = -got[index].double()
        found = compare(got, want, exact)
        assert not found.passed
        assert f"first at [{index}]: got {float(got[index])}, want {float(want[index])}" in str(
            found
        )
        assert compare(got, want, near).passed, "a tolerance of zero is one of values"


def test_exact_takes_any_nan_for_another_where_nan_is_allowed() -> None:
    bits = torch.tensor([0x7FC00000, 0x7FC00001, -0x3FFFFF], dtype=torch.int32)
    got = bits.view(torch.float32)
    assert bool(got.isnan().all())
    want = torch.full((3,), nan, dtype=torch.float64)
    assert compare(got, want, Rule("y", exact=True, allow_nan=True)).passed


@pytest.mark.parametrize(
    "rule",
    [
        Rule("y"),
        Rule("y", rtol=1e-3),
        Rule("y", rtol=0, atol=1e-3),
        Rule("y", relative_l2=1e-3),
        Rule("y", cosine=0.99999999),
        Rule("y", rtol=1e-12, matched=0.75),
    ],
    ids=str,
)
def test_a_looser_rule_multiplies_every_tolerance(rule: Rule) -> None:
    want = torch.linspace(1, 2, 1000, dtype=torch.float64)
    got = want.float()
    got[:500] += 0.01
    strict, loose = (compare(got, want, replace(rule, looser=factor)) for factor in (1.0, 2.0))
    assert not strict.passed
    assert loose.worst == pytest.approx(strict.worst / 2, rel=1e-3)


def test_what_is_exact_cannot_be_loosened() -> None:
    want = torch.ones(4, dtype=torch.float64)
    off = want.float() * (1 + 1e-6)
    assert not compare(off, want, Rule("y", exact=True, looser=1e9)).passed
    with pytest.raises(CheckError, match=r"looser is 0\.5, must be 1 or more"):
        Rule("y", looser=0.5)
