"""The functions that a harness calls mean on tensors what they mean on lists."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tirbench.expression import functions as f


def listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("cdiv", (4,)),
        ("align", (8,)),
        ("next_pow2", ()),
        ("abs", ()),
        ("min", ()),
        ("max", ()),
        ("min", (4,)),
        ("max", (4,)),
        ("sum", ()),
        ("len", ()),
        ("int", ()),
        ("float", ()),
        ("log2", ()),
        ("sqrt", ()),
    ],
)
def test_a_function_means_the_same_on_a_list_and_on_a_tensor(
    name: str, rest: tuple[int, ...]
) -> None:
    values = (1, 3, 8, 100)
    on_list = getattr(f, name)(values, *rest)
    on_tensor = listed(getattr(f, name)(torch.tensor(values, dtype=torch.int32), *rest))
    assert on_tensor == (list(on_list) if isinstance(on_list, tuple) else on_list)


def test_a_list_meets_a_tensor_elementwise() -> None:
    lengths = torch.tensor([2, 3], dtype=torch.int32)
    assert f.apply("*", (10, 100), lengths).tolist() == [20, 300]
    assert f.max((1, 5), lengths).tolist() == [2, 5]


def test_lists_of_different_lengths_do_not_combine() -> None:
    with pytest.raises(ValueError, match="lengths 2 and 3"):
        f.cdiv((1, 2), (1, 2, 3))


def test_reductions_give_python_numbers() -> None:
    lengths = torch.tensor([2, 3], dtype=torch.int32)
    assert all(type(value) is int for value in (f.sum(lengths), f.max(lengths), f.len(lengths)))


def test_a_dtype_has_a_name_and_a_size() -> None:
    assert f.str(torch.float16) == "float16"
    assert f.itemsize(torch.float16) == 2


def test_gathered_needs_ranks() -> None:
    with pytest.raises(RuntimeError, match="ranks"):
        f.gathered(torch.zeros(2))
