"""What the initialisers write: each a function of the target, where its numbers come from, and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from tirbench.pieces import pieces
from tirbench.tensors import draw
from tirbench.tensors.errors import TensorError
from tirbench.tensors.read import read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHUNK_CPU: Final = 1 << 16  # 64-bit temporaries of this many elements stay in a core's cache
CHUNK_GPU: Final = 1 << 22  # and these keep a GPU busy for less memory than a flush of its L2 takes
_EIGHT_BITS: Final = (torch.float8_e4m3fn, torch.float8_e5m2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the numbers of one tensor come from.

    Args:
        name: the tensor's name, for messages.
        key: 64 bits of the workload's seed, the name and the rank.
        folder: relative paths of files begin here.
        chunk: elements that are worked on at once; contents do not depend on it.
    """

    name: str
    key: int
    folder: Path = Path()
    chunk: int | None = None

    def each(self, target: torch.Tensor, make: Callable[[int, int], torch.Tensor]) -> None:
        """Write `make(start, count)`, a vector of the elements in row-major order, piece by piece."""
        limit = self.chunk or (CHUNK_CPU if target.device.type == "cpu" else CHUNK_GPU)
        for index, start, count in pieces(target.shape, limit):
            place = target[index]
            place.copy_(_cast(make(start, count), target.dtype).view(place.shape))


def normal(
    target: torch.Tensor, source: Source, mean: float, std: float, clamp: Sequence[float] | None
) -> None:
    """Normally distributed numbers, cut to `clamp`."""
    dtype = _drawn_as(target, source, "normal")

    def make(start: int, count: int) -> torch.Tensor:
        bits = draw.hashed(source.key, start, count, target.device)
        return _cut(draw.normal(bits, dtype).mul_(std).add_(mean), clamp)

    source.each(target, make)


def uniform(
    target: torch.Tensor, source: Source, low: float, high: float, clamp: Sequence[float] | None
) -> None:
    """Evenly distributed numbers, cut to `clamp`."""
    dtype = _drawn_as(target, source, "uniform")

    def make(start: int, count: int) -> torch.Tensor:
        bits = draw.hashed(source.key, start, count, target.device)
        return _cut(draw.uniform(bits, dtype).mul_(high - low).add_(low), clamp)

    source.each(target, make)


def randint(target: torch.Tensor, source: Source, low: int, high: int) -> None:
    """Integers from `low` to below `high`."""
    low, high = _integer(source, "low", low), _integer(source, "high", high)
    if not low < high or high - low >= 1 << 63:
        raise TensorError(f"{source.name}: randint has no integers from {low} to below {high}")
    _require_range(target, source, low, high - 1)
    source.each(
        target,
        lambda start, count: draw.integers(
            draw.hashed(source.key, start, count, target.device), low, high
        ),
    )


def full(target: torch.Tensor, source: Source, value: float) -> None:
    """`value` everywhere."""
    if not target.dtype.is_floating_point:
        number = _integer(source, "value", value)
        _require_range(target, source, number, number)
        target.fill_(number)
        return
    target.copy_(_cast(torch.tensor(value, dtype=torch.float64), target.dtype))


def arange(target: torch.Tensor, source: Source, start: float, step: float) -> None:
    """`start + i * step` for element i."""
    last = start + max(target.numel() - 1, 0) * step
    if not target.dtype.is_floating_point:
        start, step = _integer(source, "start", start), _integer(source, "step", step)
        _require_range(target, source, *sorted((int(start), int(last))))
    whole = isinstance(start, int) and isinstance(step, int)

    def make(first: int, count: int) -> torch.Tensor:
        i = torch.arange(first, first + count, dtype=torch.int64, device=target.device)
        return i.mul_(step).add_(start) if whole else i.double().mul_(step).add_(start)

    source.each(target, make)


def values(target: torch.Tensor, source: Source, values: Sequence[float]) -> None:
    """The numbers of a list, one for each element."""
    flat = values.reshape(-1).tolist() if isinstance(values, torch.Tensor) else list(values)
    if not target.dtype.is_floating_point:
        _listed(target, source, [_integer(source, "values", number) for number in flat])
        return
    _counted(target, source, len(flat))
    numbers = _cast(torch.tensor(flat, dtype=torch.float64), target.dtype)
    target.copy_(numbers.view(target.shape))


def permutation(target: torch.Tensor, source: Source) -> None:
    """Every number below the number of elements, once."""
    _require_range(target, source, 0, target.numel() - 1)
    # The hashes of distinct positions are distinct, so their order is the same everywhere.
    order = draw.hashed(source.key, 0, target.numel(), target.device).argsort()
    source.each(target, lambda start, count: order[start : start + count])


def cu_seqlens(target: torch.Tensor, source: Source, lengths: Sequence[int]) -> None:
    """Running sums of `lengths`, 0 first."""
    counts = _counts(source, "lengths", lengths)
    _listed(target, source, [0, *accumulate(counts)])


def lengths(
    target: torch.Tensor,
    source: Source,
    total: int,
    min: int,  # noqa: A002  (the parameter's name in the language)
    max: int | None,  # noqa: A002
) -> None:
    """Random lengths between `min` and `max` with the sum `total`."""
    total, least = _integer(source, "total", total), _integer(source, "min", min)
    most = total if max is None else _integer(source, "max", max)
    n = target.numel()
    if not n * least <= total <= n * most:
        raise TensorError(
            f"{source.name}: {n} lengths of {least} to {most} cannot add up to {total}"
        )
    weights = draw.integers(draw.hashed(source.key, 0, n, "cpu"), 1, 1 << 30).tolist()
    rest = _share(total - n * least, weights, most - least)
    _listed(target, source, [least + more for more in rest])


def page_table(
    target: torch.Tensor, source: Source, lengths: Sequence[int], page_size: int, unused: int
) -> None:
    """Distinct pages for every sequence, `unused` behind them."""
    page_size, unused = _integer(source, "page_size", page_size), _integer(source, "unused", unused)
    held = [-(-length // page_size) for length in _counts(source, "lengths", lengths)]
    if target.dim() != 2 or len(held) != target.shape[0]:
        raise TensorError(
            f"{source.name}: {len(held)} sequences need a page table of as many rows, "
            f"not of shape {tuple(target.shape)}"
        )
    if max(held, default=0) > target.shape[1]:
        raise TensorError(
            f"{source.name}: a sequence has {max(held)} pages and the table {target.shape[1]} columns"
        )
    _require_range(target, source, min(unused, 0), max(unused, sum(held) - 1))
    pages = draw.hashed(source.key, 0, sum(held), "cpu").argsort()
    table = torch.full(tuple(target.shape), unused, dtype=torch.int64)
    for row, (end, count) in enumerate(zip(accumulate(held), held, strict=True)):
        table[row, :count] = pages[end - count : end]
    target.copy_(table)


def file(target: torch.Tensor, source: Source, path: str, key: str | None) -> None:
    """The tensor of that key in that file."""
    found = read(source.folder / path, key)
    if tuple(found.shape) != tuple(target.shape):
        raise TensorError(
            f"{source.name}: {path} has shape {tuple(found.shape)}, wanted {tuple(target.shape)}"
        )
    if found.dtype.is_floating_point and not target.dtype.is_floating_point:
        raise TensorError(f"{source.name}: {path} is {found.dtype}, wanted {target.dtype}")
    if not found.dtype.is_floating_point and found.numel():
        _require_range(target, source, int(found.min()), int(found.max()))
    flat = found.reshape(-1)
    source.each(target, lambda start, count: flat[start : start + count].to(target.device))


def _share(amount: int, weights: list[int], most: int) -> list[int]:
    """Split `amount` in proportion to `weights`, no part above `most`, in exact integers."""
    parts = [0] * len(weights)
    while amount:
        open_parts = [i for i, part in enumerate(parts) if part < most]
        whole = sum(weights[i] for i in open_parts)
        before = amount
        for i in open_parts:
            more = min(before * weights[i] // whole, most - parts[i])
            parts[i] += more
            amount -= more
        if amount == before:  # less than one each: the heaviest get the last ones
            for i in sorted(open_parts, key=lambda i: (-weights[i], i))[:amount]:
                parts[i] += 1
            amount = max(0, amount - len(open_parts))
    return parts


def _drawn_as(target: torch.Tensor, source: Source, word: str) -> torch.dtype:
    """float32, or float64 for a tensor of float64."""
    if not target.dtype.is_floating_point:
        raise TensorError(f"{source.name}: {word} draws no {target.dtype}; use randint")
    return torch.float64 if target.dtype == torch.float64 else torch.float32


def _cut(numbers: torch.Tensor, clamp: Sequence[float] | None) -> torch.Tensor:
    if clamp is None:
        return numbers
    low, high = clamp
    return numbers.clamp_(low, high)


def _cast(numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The numbers in `dtype`; float8 through float32 and saturated, whatever the version of torch does."""
    if dtype not in _EIGHT_BITS:
        return numbers.to(dtype)
    most = torch.finfo(dtype).max
    single = numbers.float()
    finite = torch.where(single.isfinite(), single.clamp(-most, most), single)
    return finite.to(dtype)


def _integer(source: Source, parameter: str, number: object) -> int:
    """A whole number; a float that is one counts."""
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int):
        raise TensorError(f"{source.name}: {parameter} must be a whole number, got {number!r}")
    return int(number)


def _counts(source: Source, parameter: str, numbers: Sequence[int]) -> list[int]:
    """A list of whole numbers, none negative."""
    flat = numbers.reshape(-1).tolist() if isinstance(numbers, torch.Tensor) else list(numbers)
    counts = [_integer(source, parameter, number) for number in flat]
    if min(counts, default=0) < 0:
        raise TensorError(f"{source.name}: {parameter} has a negative number, {min(counts)}")
    return counts


def _listed(target: torch.Tensor, source: Source, numbers: list[int]) -> None:
    """Write a short list of integers."""
    _counted(target, source, len(numbers))
    _require_range(target, source, min(numbers, default=0), max(numbers, default=0))
    values = torch.tensor(numbers, dtype=torch.int64)
    source.each(target, lambda start, count: values[start : start + count].to(target.device))


def _counted(target: torch.Tensor, source: Source, count: int) -> None:
    """Refuse a list that has not one number for each element."""
    if count != target.numel():
        raise TensorError(
            f"{source.name}: {count} numbers for a tensor of {target.numel()} elements"
        )


def _require_range(target: torch.Tensor, source: Source, low: int, high: int) -> None:
    """Refuse integers that the target's dtype would wrap."""
    if target.dtype.is_floating_point:
        return
    bounds = (0, 1) if target.dtype == torch.bool else _bounds(target.dtype)
    if low < bounds[0] or high > bounds[1]:
        raise TensorError(
            f"{source.name}: {target.dtype} holds {bounds[0]} … {bounds[1]}, not {low} … {high}"
        )


def _bounds(dtype: torch.dtype) -> tuple[int, int]:
    info = torch.iinfo(dtype)
    return info.min, info.max
