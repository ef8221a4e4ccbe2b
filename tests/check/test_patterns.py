from __future__ import annotations

from math import nan

import pytest
import torch

from tirbench.check import Rule, compare

Y = Rule("y")
WANT = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
RIGHT = WANT.half()


def with_nan(rows: slice | list[int]) -> torch.Tensor:
    got = RIGHT.clone()
    got[rows] = nan
    return got


@pytest.mark.parametrize(
    ("got", "end"),
    [
        (torch.zeros_like(RIGHT), "all got values are 0"),
        (torch.full_like(RIGHT, nan), "all got values are NaN: never written"),
        (2 * RIGHT, "off by a constant factor 2.0"),
        (-RIGHT / 8, "off by a constant factor -0.125"),
        (RIGHT.T, "got is the transpose of what is wanted"),
        (with_nan(slice(6, 8)), "rows 6…7 never written"),
        (with_nan([3]), "row 3 never written"),
        (with_nan([1, 3, 7]), "3 rows, the first 1 and the last 7, never written"),
    ],
)
def test_a_telling_difference_is_named(got: torch.Tensor, end: str) -> None:
    found = compare(got, WANT, Y)
    assert not found.passed
    assert found.message.rpartition("; ")[2] == end
    assert "\n" not in found.message


def test_single_elements_that_were_never_written_are_counted() -> None:
    got = RIGHT.clone()
    got[2, :3] = nan
    assert compare(got, WANT, Y).message.endswith(
        "3 got values are NaN: never written, or not a number"
    )


def test_integers_that_still_are_extreme_were_never_written() -> None:
    want = torch.arange(6, dtype=torch.int32)
    got = want.clone()
    got[4:] = -(2**31)
    assert compare(got, want, Y).message.endswith("rows 4…5 never written")
    whole = torch.full((6,), 255, dtype=torch.uint8)
    assert compare(whole, want, Y).message.endswith("all got values are 255: never written")


def test_an_inout_that_was_not_updated_is_named() -> None:
    before = torch.ones(8, 8).half()
    found = compare(before, WANT, Y, initial=before)
    assert found.message.endswith("got equals its initial contents: not updated")


def test_a_difference_without_a_name_gets_none() -> None:
    got = RIGHT.clone()
    got[7, 7] += 1
    assert compare(got, WANT, Y).message.endswith("× the limit)")


def test_patterns_are_looked_for_in_the_region_only() -> None:
    got = RIGHT.clone()
    got[:, 3:] = nan
    got[5, :3] = nan
    lengths = torch.full((8,), 3)
    found = compare(got, WANT, Rule("y", lengths="lens"), region_tensor=lengths)
    assert found.message.endswith("row 5 never written")


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 0, 3), (3, 1, 70_000)])
def test_outputs_of_any_shape_are_looked_at(shape: tuple[int, ...]) -> None:
    want = torch.ones(shape, dtype=torch.float64)
    found = compare(torch.full(shape, nan), want, Y)
    assert found.passed == (want.numel() == 0)
    assert found.passed or found.message.endswith("all got values are NaN: never written")


def test_the_message_of_a_right_output_says_how_near_the_limit_it_is() -> None:
    want = torch.full((4,), 1.0, dtype=torch.float64)
    assert compare(want.half() + 0.001, want, Y).message == (
        "y: 4 elements within rtol 0.001 · (|want| + rms 1), at most 0.49 of it used"
    )
    assert compare(want.int(), want, Y).message == "y: 4 elements right"
