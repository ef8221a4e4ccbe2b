from __future__ import annotations

from math import nan

import pytest
import torch

from tirbench.check import CheckError, Rule, compare
from tirbench.check.regions import chosen_region

WANT = torch.arange(24, dtype=torch.float64).view(4, 6) + 1


def chosen(rule: Rule, tensor: torch.Tensor, shape: tuple[int, ...] = (4, 6)) -> list[list[bool]]:
    found = chosen_region(rule, tensor, torch.Size(shape), torch.device("cpu"))
    assert found is not None
    return found.keep(()).tolist()  # type: ignore[no-any-return]


def test_rows_are_those_that_are_numbered_and_negative_numbers_are_padding() -> None:
    keep = chosen(Rule("y", rows="slot"), torch.tensor([[2, -1], [0, -1]]))
    assert [row[0] for row in keep] == [True, False, True, False]


def test_lengths_are_the_beginnings_of_rows() -> None:
    keep = chosen(Rule("y", lengths="lens"), torch.tensor([0, 1, 6, 3], dtype=torch.int32))
    assert [sum(row) for row in keep] == [0, 1, 6, 3]
    assert keep[3] == [True] * 3 + [False] * 3


def test_lengths_may_count_rows_of_groups() -> None:
    rule = Rule("y", lengths="masked_m")
    keep = torch.tensor(chosen(rule, torch.tensor([1, 3]), (2, 3, 4)))
    assert keep.sum((1, 2)).tolist() == [4, 12]


def test_a_mask_lies_over_leading_dimensions() -> None:
    keep = chosen(Rule("y", mask="live"), torch.tensor([1, 0, 0, 2]))
    assert [all(row) for row in keep] == [True, False, False, True]
    full = torch.arange(24).view(4, 6) % 5 == 0
    assert chosen(Rule("y", mask="live"), full) == full.tolist()


@pytest.mark.parametrize(
    ("rule", "tensor"),
    [
        (Rule("y", rows="r"), torch.tensor([1, 3])),
        (Rule("y", lengths="r"), torch.tensor([0, 6, 0, 6])),
        (Rule("y", mask="r"), torch.tensor([False, True, False, True])),
    ],
)
def test_only_the_region_is_compared_and_the_rest_of_an_inout_is_unchanged(
    rule: Rule, tensor: torch.Tensor
) -> None:
    before = torch.zeros(4, 6)
    got = before.clone()
    got[1::2] = WANT[1::2].float()
    assert compare(got, WANT, rule, region_tensor=tensor, initial=before).passed
    got[2, 5] = 8
    assert compare(got, WANT, rule, region_tensor=tensor).passed
    found = compare(got, WANT, rule, region_tensor=tensor, initial=before)
    assert found.message == (
        "y: 1 elements outside of r changed; first at [2, 5]: got 8.0, was 0.0"
    )
    got[3, 0] = 0
    assert "1 of 12 elements off by more" in (
        compare(got, WANT, rule, region_tensor=tensor).message
    )


def test_values_outside_of_the_region_have_no_effect_on_the_tolerance() -> None:
    want = WANT.clone()
    want[0] = 1e9
    got = want.float()
    got[1, 0] += 1
    rows = torch.tensor([1])
    assert compare(got, want, Rule("y")).passed
    assert not compare(got, want, Rule("y", rows="r"), region_tensor=rows).passed


def test_nan_outside_of_the_region_is_not_looked_at() -> None:
    want, got = WANT.clone(), WANT.float()
    want[0], got[0] = nan, nan
    rows = torch.tensor([1, 2])
    for rule in (
        Rule("y", rows="r"),
        Rule("y", rows="r", relative_l2=1e-6),
        Rule("y", rows="r", cosine=0.999),
    ):
        assert compare(got, want, rule, region_tensor=rows).passed


def test_nan_that_an_inout_had_before_may_stay() -> None:
    before = torch.full((4, 6), nan)
    got = before.clone()
    got[1] = WANT[1].float()
    rule = Rule("y", rows="r")
    assert compare(got, WANT, rule, region_tensor=torch.tensor([1]), initial=before).passed


@pytest.mark.parametrize(
    ("rule", "tensor", "message"),
    [
        (Rule("y", rows="r"), None, "y: the tensor r of its region is missing"),
        (Rule("y", rows="r"), torch.tensor([4]), "y: r names row 4 of 4 rows"),
        (Rule("y", rows="r"), torch.tensor([1.0]), "y: r does not number its rows"),
        (
            Rule("y", lengths="r"),
            torch.tensor([1, 2]),
            "y: lengths r of shape [2] do not lie over the leading dimensions of [4, 6]",
        ),
        (
            Rule("y", lengths="r"),
            torch.tensor([1, 2, 3, 7]),
            "y: r has lengths from 1 to 7, its rows have 6 elements",
        ),
        (
            Rule("y", mask="r"),
            torch.tensor([True]),
            "y: mask r of shape [1] does not lie over the leading dimensions of [4, 6]",
        ),
    ],
)
def test_regions_that_do_not_fit_are_refused(
    rule: Rule, tensor: torch.Tensor | None, message: str
) -> None:
    with pytest.raises(CheckError) as caught:
        compare(WANT.float(), WANT, rule, region_tensor=tensor)
    assert str(caught.value) == message
