"""How far two tensors are apart, in float64 and piece by piece: no copy of a whole tensor is made."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING, Final

import torch

from tirbench.pieces import Piece, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tirbench.check.regions import Region

CHUNK_CPU: Final = 1 << 16  # elements whose float64 temporaries stay in a core's cache
CHUNK_GPU: Final = 1 << 21  # a dozen float64 temporaries of them take 200 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What the wanted values are like: over the compared elements, sums over the finite ones."""

    count: int
    nonzero: int
    squares: float
    not_finite: int
    first_not_finite: int

    @property
    def rms(self) -> float:
        """Root of the mean square of the finite elements."""
        finite = self.count - self.not_finite
        return sqrt(self.squares / finite) if finite else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """|got - want| <= rtol * |want| + floor; a perfectly rounded value is always within it."""

    rtol: float
    floor: float


EXACT: Final = Tolerance(rtol=0.0, floor=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far `got` is from `want` over the compared elements.

    Args:
        count: compared elements.
        wrong: those outside the tolerance.
        worst: largest error as a share of its limit; `inf` where nothing is tolerated.
        worst_at: row-major number of the first element with that share.
        errors: sum of the squared errors, `inf` if NaN or infinities do not match.
        got: sum of the squares of `got`.
        want: sum of the squares of `want`.
        product: sum of the products of both.
    """

    count: int
    wrong: int
    worst: float
    worst_at: int
    errors: float
    got: float
    want: float
    product: float

    @property
    def relative_l2(self) -> float:
        """||got - want|| / ||want||; 0 for equal tensors, also if both are 0."""
        if self.errors == 0:
            return 0.0
        return sqrt(self.errors / self.want) if self.want else inf

    @property
    def cosine(self) -> float:
        """Cosine of the angle between both; 1 if both are 0, 0 if only one is or an element is bad."""
        if self.errors == inf:
            return 0.0
        if self.got == self.want == 0:
            return 1.0
        return self.product / sqrt(self.got * self.want) if self.got and self.want else 0.0


def scale(want: torch.Tensor, region: Region | None) -> Scale:
    """What the compared elements of `want` are like."""
    count = nonzero = not_finite = 0
    first, squares = -1, 0.0
    for piece, keep in kept(want, region):
        exact = wide(want[piece.at], want.device)
        bad = ~exact.isfinite() & keep
        fine = torch.where(keep & ~bad, exact, 0).double()
        sums = [keep.sum(), ((exact != 0) & keep).sum(), bad.sum(), bad.reshape(-1).int().argmax()]
        numbers = torch.stack([*(one.double() for one in sums), fine.square().sum()]).tolist()
        if numbers[2] and first < 0:
            first = piece.start + int(numbers[3])
        count, nonzero = count + int(numbers[0]), nonzero + int(numbers[1])
        not_finite, squares = not_finite + int(numbers[2]), squares + numbers[4]
    return Scale(
        count=count, nonzero=nonzero, squares=squares, not_finite=not_finite, first_not_finite=first
    )


def distance(
    got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance, region: Region | None
) -> Distance:
    """How far `got` is from `want`, which has the same shape and may have another dtype."""
    count = wrong = worst_at = 0
    worst, sums = -1.0, [0.0] * 4
    for piece, keep in kept(got, region):
        share, squares = _errors(got, want, piece, keep, tolerance)
        at = share.argmax()
        numbers = torch.stack(
            [keep.sum().double(), (share > 1).sum().double(), share[at], at.double(), *squares]
        ).tolist()
        count, wrong = count + int(numbers[0]), wrong + int(numbers[1])
        if numbers[2] > worst:
            worst, worst_at = numbers[2], piece.start + int(numbers[3])
        sums = [one + more for one, more in zip(sums, numbers[4:], strict=True)]
    return Distance(
        count=count,
        wrong=wrong,
        worst=max(worst, 0.0),
        worst_at=worst_at,
        errors=sums[0],
        got=sums[1],
        want=sums[2],
        product=sums[3],
    )


def rounding(want: torch.Tensor, dtype: torch.dtype, region: Region | None) -> float:
    """Relative L2 error of `want` perfectly rounded to `dtype`: no output of it can be expected below."""
    errors = squares = 0.0
    for piece, keep in kept(want, region):
        w = wide(want[piece.at], want.device)
        fine = keep & w.isfinite()
        error = torch.where(fine, rounded(w, dtype) - w, 0).square().sum()
        more = torch.stack([error.double(), torch.where(fine, w, 0).double().square().sum()])
        errors, squares = (
            one + two for one, two in zip((errors, squares), more.tolist(), strict=True)
        )
    return sqrt(errors / squares) if squares else 0.0


def kept(tensor: torch.Tensor, region: Region | None) -> Iterator[tuple[Piece, torch.Tensor]]:
    """The pieces of a tensor, each with whether its elements are compared."""
    for piece in pieces(tensor.shape, CHUNK_CPU if tensor.device.type == "cpu" else CHUNK_GPU):
        shape = tensor[piece.at].shape
        if region is None:
            yield piece, torch.ones((), dtype=torch.bool, device=tensor.device).expand(shape)
        else:
            yield piece, region.keep(piece.at)


def wide(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The elements as float64, or as int64, in which they and their differences are exact enough."""
    dtype = torch.float64 if tensor.dtype.is_floating_point else torch.int64
    return tensor.to(device=device, dtype=dtype)


def rounded(want: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`want` as a perfect computation would store it in `dtype`, in the dtype of `wide`."""
    return want.double().to(dtype).double() if dtype.is_floating_point else want


def _errors(
    got: torch.Tensor,
    want: torch.Tensor,
    piece: Piece,
    keep: torch.Tensor,
    tolerance: Tolerance,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Shares of the limit as a vector, and the sums of squares: errors, got, want, product."""
    g, w = wide(got[piece.at], got.device), wide(want[piece.at], got.device)
    right = (g == w) | (g.isnan() & w.isnan())
    perfect = g == rounded(w, got.dtype)
    g, w = g.double(), w.double()
    error = torch.where(right, 0, (g - w).abs())
    if not got.dtype.is_floating_point:
        error = torch.where(
            right, 0, error.clamp(min=1)
        )  # float64 cannot tell huge neighbours apart
    # NaN or an infinity in the wrong place is outside of every tolerance: inf <= inf would pass.
    bad = ~right & ~perfect & ~(g.isfinite() & w.isfinite())
    limit = w.abs() * tolerance.rtol + tolerance.floor
    share = torch.where(error > 0, error / limit, 0)
    share = torch.where(perfect, torch.where(limit > 0, share.clamp(max=1), 0), share)
    share = torch.where(keep, torch.where(bad, inf, share), 0)
    fine = keep & g.isfinite() & w.isfinite()
    g, w = torch.where(fine, g, 0), torch.where(fine, w, 0)
    errors = torch.where((bad & keep).any(), inf, (g - w).square().sum())
    return share.reshape(-1), [errors, g.square().sum(), w.square().sum(), (g * w).sum()]
