"""Initialisers: the words that a workload fills tensors with.

A parameter may be a number, a list, a torch tensor, or a callable whose parameters are the names of
tensors that it reads (`lambda lens: f.max(lens)`); it is called when those are filled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from tirbench.tensors import fill

if TYPE_CHECKING:
    from collections.abc import Sequence


Parameter: TypeAlias = Any
"""A number, a sequence of numbers, a torch tensor, or a callable that returns one of them."""

Fill: TypeAlias = Callable[..., None]
"""`fill(target, source, **parameters)`: write every element of `target`, a view of the tensor in which
nothing is repeated, from `source`, a `fill.Source`."""


@dataclass(frozen=True, slots=True)
class Init:
    """How a tensor gets its contents: the word of the language, its parameters, and what writes them."""

    kind: str
    fill: Fill = field(repr=False)
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def constant(self) -> float | None:
        """The one value of every element, where that is known without filling anything."""
        if self.kind != "full":
            return None
        number = self.parameters["value"]
        return number if isinstance(number, (bool, int, float)) else None


def normal(
    mean: Parameter = 0, std: Parameter = 1, clamp: Sequence[float] | Parameter | None = None
) -> Init:
    """Normally distributed numbers; `clamp` is the pair of bounds that they are cut to."""
    return Init("normal", fill.normal, {"mean": mean, "std": std, "clamp": clamp})


def uniform(
    low: Parameter = 0, high: Parameter = 1, clamp: Sequence[float] | Parameter | None = None
) -> Init:
    """Numbers low <= x < high before rounding to the tensor's dtype."""
    return Init("uniform", fill.uniform, {"low": low, "high": high, "clamp": clamp})


def randint(low: Parameter, high: Parameter) -> Init:
    """Integers low <= i < high, the same on every machine."""
    return Init("randint", fill.randint, {"low": low, "high": high})


def zeros() -> Init:
    """Nothing but zeros."""
    return full(0)


def ones() -> Init:
    """Nothing but ones."""
    return full(1)


def full(value: Parameter) -> Init:
    """The same value everywhere; `inf` and `nan` are values, too."""
    return Init("full", fill.full, {"value": value})


def arange(start: Parameter = 0, step: Parameter = 1) -> Init:
    """start, start + step, … in row-major order."""
    return Init("arange", fill.arange, {"start": start, "step": step})


def values(values: Parameter) -> Init:
    """The numbers of a list in row-major order, one for each element."""
    return Init("values", fill.values, {"values": values})


def permutation() -> Init:
    """0 … numel - 1 in random order, the same on every machine."""
    return Init("permutation", fill.permutation)


def cu_seqlens(lengths: Parameter) -> Init:
    """0 and the running sums of `lengths`: where each sequence of a packed batch begins and ends."""
    return Init("cu_seqlens", fill.cu_seqlens, {"lengths": lengths})


def lengths(
    total: Parameter,
    min: Parameter = 0,  # noqa: A002  (the parameter's name in the language)
    max: Parameter = None,  # noqa: A002
) -> Init:
    """Random lengths, each from `min` to `max`, that add up to `total`; no `max` is no upper bound."""
    return Init("lengths", fill.lengths, {"total": total, "min": min, "max": max})


def page_table(lengths: Parameter, page_size: Parameter, unused: Parameter = 0) -> Init:
    """The pages of each sequence of a paged cache, one row per sequence.

    Sequence b holds `cdiv(lengths[b], page_size)` pages; the entries behind them are `unused`. With n
    pages held in all they are the numbers 0 … n - 1, each once, in random order: a cache that holds
    the sequences at all has these pages.
    """
    return Init(
        "page_table",
        fill.page_table,
        {"lengths": lengths, "page_size": page_size, "unused": unused},
    )


def file(path: Parameter, key: Parameter = None) -> Init:
    """The contents of a file: `.pt`, `.npy`, `.npz` or `.safetensors`; `key` picks one of several."""
    return Init("file", fill.file, {"path": path, "key": key})
