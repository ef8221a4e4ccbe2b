"""Which elements of an output are compared: all, some rows, the beginning of each row, or a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tirbench.check.rule import CheckError

if TYPE_CHECKING:
    from tirbench.check.rule import Rule


@dataclass(frozen=True, slots=True)
class Region:
    """The compared elements of an output, worked out for one piece of it at a time.

    `chosen` has the output's shape, mostly by repeating elements. With `length` an element is compared
    where `chosen`, its position in the row, is below it; without, where `chosen` is true.
    """

    chosen: torch.Tensor
    length: torch.Tensor | None = None

    def keep(self, index: tuple[int | slice, ...]) -> torch.Tensor:
        """Whether each element of that piece is compared."""
        if self.length is None:
            return self.chosen[index]
        return self.chosen[index] < self.length[index]


def chosen_region(
    rule: Rule, tensor: torch.Tensor | None, shape: torch.Size, device: torch.device
) -> Region | None:
    """The elements that a rule compares; `None` is all of them.

    Args:
        rule: with the name of its region, if it has one.
        tensor: the contents of the tensor of that name.
        shape: of the output.
        device: where the output lies.

    Raises:
        CheckError: the region's tensor is missing or does not fit the output.
    """
    if rule.region is None:
        return None
    if tensor is None:
        raise CheckError(f"{rule.tensor}: the tensor {rule.region} of its region is missing")
    found = tensor.to(device)
    if rule.rows is not None:
        return _rows(rule, found, shape)
    if rule.lengths is not None:
        return _lengths(rule, found, shape)
    if found.shape != shape[: found.dim()]:
        raise CheckError(
            f"{rule.tensor}: mask {rule.mask} of shape {list(found.shape)} does not lie over the "
            f"leading dimensions of {list(shape)}"
        )
    return Region(_spread(found != 0, shape))


def _rows(rule: Rule, rows: torch.Tensor, shape: torch.Size) -> Region:
    """The rows of the first dimension with these numbers."""
    if rows.dtype.is_floating_point or not shape:
        raise CheckError(f"{rule.tensor}: {rule.rows} does not number its rows")
    numbers = rows.reshape(-1).long()
    numbers = numbers[numbers >= 0]
    if numbers.numel() and int(numbers.max()) >= shape[0]:
        raise CheckError(
            f"{rule.tensor}: {rule.rows} names row {int(numbers.max())} of {shape[0]} rows"
        )
    mask = torch.zeros(shape[0], dtype=torch.bool, device=rows.device)
    mask[numbers] = True
    return Region(_spread(mask, shape))


def _lengths(rule: Rule, lengths: torch.Tensor, shape: torch.Size) -> Region:
    """The first elements along the dimension behind those that `lengths` has."""
    dim = lengths.dim()
    if lengths.dtype.is_floating_point or dim >= len(shape) or lengths.shape != shape[:dim]:
        raise CheckError(
            f"{rule.tensor}: lengths {rule.lengths} of shape {list(lengths.shape)} do not lie over "
            f"the leading dimensions of {list(shape)}"
        )
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= shape[dim]:
        raise CheckError(
            f"{rule.tensor}: {rule.lengths} has lengths from {int(lengths.min())} to "
            f"{int(lengths.max())}, its rows have {shape[dim]} elements"
        )
    position = torch.arange(shape[dim], device=lengths.device).reshape(
        (-1,) + (1,) * (len(shape) - dim - 1)
    )
    return Region(position.expand(shape), _spread(lengths, shape))


def _spread(prefix: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """A tensor over the leading dimensions repeated over the others, without memory."""
    return prefix.reshape(tuple(prefix.shape) + (1,) * (len(shape) - prefix.dim())).expand(shape)
