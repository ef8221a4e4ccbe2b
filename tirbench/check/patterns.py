"""Differences that tell what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from tirbench.check.measure import EXACT, Norms, elements, kept, wide

if TYPE_CHECKING:
    from tirbench.check.regions import Region

_FEW: Final = 4  # elements that can look like anything by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What the compared elements of an output have in common.

    `rows` are the numbers along the first dimension of which no compared element was written.
    """

    count: int
    zero: int
    unwritten: int
    initial: int
    rows: tuple[int, ...]


def telling(
    got: torch.Tensor,
    want: torch.Tensor,
    initial: torch.Tensor | None,
    region: Region | None,
    whole: Norms,
) -> str | None:
    """What a wrong output looks like, if it looks like something that has a name."""
    look = _look(got, initial, region)
    if look.count == 0:
        return None
    if look.zero == look.count:
        return "all got values are 0"
    if look.unwritten == look.count:
        return f"all got values are {_unwritten_word(got)}: never written"
    if look.initial == look.count:
        return "got equals its initial contents: not updated"
    if look.rows:
        return f"{_rows(look.rows)} never written"
    if look.unwritten:
        return f"{look.unwritten} got values are {_unwritten_word(got)}: never written, or not a number"
    return _factor(got, look.count, whole) or _transposed(got, want, region)


def _look(got: torch.Tensor, initial: torch.Tensor | None, region: Region | None) -> _Look:
    """One pass over the output."""
    rows = max(got.shape[0], 1) if got.dim() else 1
    # per row: elements compared, and of these unwritten
    compared = torch.zeros(rows, dtype=torch.int64, device=got.device)
    unwritten = torch.zeros(rows, dtype=torch.int64, device=got.device)
    zero, same = (torch.zeros((), dtype=torch.int64, device=got.device) for _ in range(2))
    for piece, keep in kept(got, region):
        g = wide(got[piece.at], got.device)
        lost = _unwritten(g, got.dtype) & keep
        zero += ((g == 0) & keep).sum()
        if initial is not None:
            then = wide(initial[piece.at], got.device)
            same += (((g == then) | (g.isnan() & then.isnan())) & keep).sum()
        at = piece.at[0] if piece.at else slice(0, rows)
        count = len(range(rows)[at]) if isinstance(at, slice) else 1
        compared[at] += keep.reshape(count, -1).sum(1).reshape(compared[at].shape)
        unwritten[at] += lost.reshape(count, -1).sum(1).reshape(unwritten[at].shape)
    never = ((unwritten == compared) & (compared > 0)).nonzero().flatten().tolist()
    return _Look(
        count=int(compared.sum()),
        zero=int(zero),
        unwritten=int(unwritten.sum()),
        initial=int(same),
        rows=tuple(never),
    )


def _unwritten(elements: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Which elements still look poisoned: NaN, or an extreme integer; a bool cannot be told."""
    if dtype.is_floating_point:
        return elements.isnan()
    if dtype == torch.bool:
        return torch.zeros_like(elements, dtype=torch.bool)
    info = torch.iinfo(dtype)
    return elements == (info.min or info.max)


def _unwritten_word(got: torch.Tensor) -> str:
    """How an unwritten element of that dtype reads."""
    if got.dtype.is_floating_point:
        return "NaN"
    info = torch.iinfo(got.dtype)
    return str(info.min or info.max)


def _rows(rows: tuple[int, ...]) -> str:
    """`rows 128…255`, or how many there are when they do not follow one another."""
    if len(rows) == 1:
        return f"row {rows[0]}"
    if rows[-1] - rows[0] == len(rows) - 1:
        return f"rows {rows[0]}…{rows[-1]}"
    return f"{len(rows)} rows, the first {rows[0]} and the last {rows[-1]},"


def _factor(got: torch.Tensor, count: int, whole: Norms) -> str | None:
    """The number that all wanted values seem to be multiplied by."""
    if count <= _FEW or not whole.want or not whole.got or whole.errors == float("inf"):
        return None
    factor = whole.cosine * whole.got / whole.want
    rest = 1 - whole.cosine**2  # what of `got` is not in the direction of `want`, squared
    rounding = torch.finfo(got.dtype).eps if got.dtype.is_floating_point else 1e-6
    if rest > max(rounding**2, 1e-12) or abs(factor - 1) <= 4 * rounding:
        return None
    return f"off by a constant factor {float(f'{factor:.4g}')!r}"


def _transposed(got: torch.Tensor, want: torch.Tensor, region: Region | None) -> str | None:
    """Whether the matrix is right but for the order of its dimensions."""
    if region is not None or got.dim() != 2 or got.shape[0] != got.shape[1]:
        return None
    if elements(got.T, want, EXACT, None).wrong:
        return None
    return "got is the transpose of what is wanted"
