"""What must hold for one output, and how loose each dtype is by default."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import TYPE_CHECKING, Final

import torch

from tirbench.errors import TirbenchError

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULT_RTOL: Final = {
    # At least twice the relative error of a perfect rounding; tight enough to see a lost term.
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.float16: 1e-3,
    torch.bfloat16: 8e-3,
    torch.float8_e4m3fn: 0.07,
    torch.float8_e5m2: 0.13,
}


class CheckError(TirbenchError):
    """The check itself is wrong, whatever an implementation computes; the message says how."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The conditions on one output; all that are given must hold.

    Without `exact`, `rtol`, `atol`, `matched`, `relative_l2` and `cosine` the default tolerance of the
    output's dtype holds.

    Args:
        tensor: name of the output.
        exact: the bits of the wanted value rounded to the output's dtype; -0.0 is not 0.0, NaN is NaN.
        rtol: |got - want| <= rtol * (|want| + rms(want)), rms over the compared elements.
        atol: absolute; takes the place of the rms term: atol + rtol * |want|.
        matched: share of the elements that must be within the tolerance, 0 < matched <= 1.
        relative_l2: bound of ||got - want|| / ||want||.
        cosine: least cosine of the angle between got and want.
        rows: name of an integer tensor: compare these rows, negative numbers are padding.
        lengths: name of an integer tensor: compare the first so many elements of each row.
        mask: name of a tensor that is not zero where outputs are compared.
        through: function of outputs whose result is compared instead; the caller applies it.
        allow_nan: NaN may be wanted; then it must stand at the same positions.
        allow_inf: infinities may be wanted; then they must stand at the same positions.
        not_worse_than: name of a reference whose relative L2 error may not be exceeded.
        unchecked: reason why nothing is compared.
        looser: what the tolerances are multiplied by, 1 or more; `exact` stays exact.
    """

    tensor: str
    _: KW_ONLY
    exact: bool = False
    rtol: float | None = None
    atol: float | None = None
    matched: float | None = None
    relative_l2: float | None = None
    cosine: float | None = None
    rows: str | None = None
    lengths: str | None = None
    mask: str | None = None
    through: Callable[..., object] | None = None
    allow_nan: bool = False
    allow_inf: bool = False
    not_worse_than: str | None = None
    unchecked: str | None = None
    looser: float = 1.0

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.rows, self.lengths, self.mask)) > 1:
            raise CheckError(f"{self.tensor}: only one of rows, lengths and mask can be given")
        if self.matched is not None and not 0 < self.matched <= 1:
            raise CheckError(f"{self.tensor}: matched is a share above 0 up to 1")
        for name, bound in (("rtol", self.rtol), ("atol", self.atol), ("l2", self.relative_l2)):
            if bound is not None and not bound >= 0:
                raise CheckError(f"{self.tensor}: {name} is {bound}, must be 0 or more")
        if not 1 <= self.looser < inf:
            raise CheckError(f"{self.tensor}: looser is {self.looser}, must be 1 or more")

    @property
    def region(self) -> str | None:
        """Name of the tensor that says which elements are compared; `None`: all."""
        return self.rows or self.lengths or self.mask

    @property
    def share(self) -> float | None:
        """The share of the elements that must be within the tolerance; `None`: all."""
        return None if self.matched is None else max(0.0, 1 - (1 - self.matched) * self.looser)

    @property
    def elementwise(self) -> bool:
        """Whether every element has a tolerance, be it the default one."""
        if any(one is not None for one in (self.rtol, self.atol, self.matched)):
            return True
        return not self.exact and self.relative_l2 is None and self.cosine is None


def default_rtol(dtype: torch.dtype) -> float:
    """The relative tolerance of a dtype where a rule gives none; integers and bool are exact.

    Raises:
        CheckError: a dtype of which nothing is known.
    """
    if not dtype.is_floating_point:
        return 0.0
    if dtype not in _DEFAULT_RTOL:
        raise CheckError(f"{dtype} has no default tolerance; give rtol")
    return _DEFAULT_RTOL[dtype]
