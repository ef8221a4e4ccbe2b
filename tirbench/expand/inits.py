"""Bind initialisers, and hold each against the tensor it fills."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from tirbench.expand.binder import is_number, whole_numbers
from tirbench.expression import Site, describe
from tirbench.model import BoundInit

if TYPE_CHECKING:
    from tirbench.expand.binder import Binder
    from tirbench.expression import Layout
    from tirbench.model import Path, Tensor
    from tirbench.values import Bound

_INTEGER_INITS: Final = frozenset({"permutation", "cu_seqlens", "lengths", "page_table"})
_FLOATING_INITS: Final = frozenset({"normal", "uniform"})
_DIMENSIONS: Final = {"page_table": 2, "cu_seqlens": 1, "lengths": 1, "permutation": 1}


def bind_init(tensor: Tensor, layout: Layout, binder: Binder) -> BoundInit | None:
    """The initialiser with its parameters, checked against the tensor; `None` where there is none."""
    if tensor.init is None:
        return None
    kind, path = tensor.init.kind, (*tensor.path, "init")
    site = Site(what=f"a parameter of {kind}")
    parameters: dict[str, Bound] = {
        name: binder.given(argument, (*path, name), site)
        for name, argument in tensor.init.parameters
    }
    dtype = layout.dtype
    if kind in _FLOATING_INITS and not dtype.floating:
        message = f"'{kind}' draws floating-point numbers, but '{tensor.name}' is {dtype:s}"
        binder.note("TB044", path, message)
    if kind in _INTEGER_INITS and (dtype.floating or dtype == "bool"):
        message = f"'{kind}' draws integers, but '{tensor.name}' is {dtype:s}"
        binder.note("TB044", path, message)
    dimensions = _DIMENSIONS.get(kind, len(layout.shape))
    if len(layout.shape) != dimensions:
        message = f"'{kind}' fills a tensor of {dimensions} dimensions, got {len(layout.shape)}"
        binder.note("TB044", path, message.replace("1 dimensions", "1 dimension"))
    _check_ranges(parameters, path, binder)
    _check_lengths(kind, parameters, layout, path, binder)
    _check_values(parameters, layout, path, binder)
    return BoundInit(kind=kind, parameters=tuple(parameters.items()))


def _check_ranges(parameters: dict[str, Bound], path: Path, binder: Binder) -> None:
    """Ranges are not empty and a deviation is not negative, where the case knows them."""
    low, high = parameters.get("low", 0), parameters.get("high", 1)
    if is_number(low) and is_number(high) and not low < high and "high" in parameters:
        binder.note("TB044", path, f"low must be below high, got {low} and {high}")
    low, high = parameters.get("min"), parameters.get("max")
    if is_number(low) and is_number(high) and not low <= high:
        binder.note("TB044", path, f"min must not be above max, got {low} and {high}")
    std = parameters.get("std")
    if is_number(std) and not std >= 0:
        binder.note("TB044", path, f"std must not be negative, got {std}")
    clamp = parameters.get("clamp")
    if isinstance(clamp, tuple) and len(clamp) == 2:
        least, most = clamp
        if is_number(least) and is_number(most) and not least <= most:
            binder.note("TB044", path, f"clamp must ascend, got {least} and {most}")


def _check_values(parameters: dict[str, Bound], layout: Layout, path: Path, binder: Binder) -> None:
    """A list that is written out is one of numbers, one for each element."""
    if "values" not in parameters:
        return
    listed, place = parameters["values"], (*path, "values")
    if is_number(listed) or isinstance(listed, str):
        message = f"'values' is a list of numbers, got {describe(listed)}"
        binder.note("TB023", place, message)
    if not isinstance(listed, tuple):
        return
    for number in listed:
        if isinstance(number, str):
            binder.note("TB023", place, f"'values' is a list of numbers, got {describe(number)}")
        elif is_number(number) and not layout.dtype.floating and number % 1 != 0:
            binder.note("TB044", place, f"{layout.dtype:s} holds whole numbers, got {number}")
    sizes = whole_numbers(layout.shape)
    if len(sizes) == len(layout.shape) and prod(sizes) != len(listed):
        message = f"{len(listed)} values for a tensor of {prod(sizes)} elements"
        binder.note("TB044", place, message)


def _check_lengths(
    kind: str, parameters: dict[str, Bound], layout: Layout, path: Path, binder: Binder
) -> None:
    """Lengths fit the tensor that holds them, or that holds their sums."""
    lengths = parameters.get("lengths")
    if kind == "cu_seqlens" and isinstance(lengths, tuple) and layout.shape != (len(lengths) + 1,):
        message = f"cu_seqlens of {len(lengths)} lengths has {len(lengths) + 1} entries"
        binder.note("TB044", path, f"{message}, but the shape is {list(layout.shape)}")
    bounds = (parameters.get("total"), parameters.get("min"), parameters.get("max"))
    known = whole_numbers((*bounds, *layout.shape))
    if kind == "lengths" and len(known) == 4:
        total, least, most, number = known
        if not number * least <= total <= number * most:
            message = f"{number} lengths from {least} to {most} cannot add up to {total}"
            binder.note("TB044", path, message)
