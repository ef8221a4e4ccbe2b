"""How far two tensors are apart, in float64 and piece by piece: no copy of a whole tensor is made."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, inf, sqrt
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
    """What the wanted values are like; `norm` is the L2 norm of the finite ones among those compared.

    `first_nan` and `first_infinity` are row-major numbers, -1 where there is none.
    """

    count: int
    nonzero: int
    norm: float
    nans: int
    infinities: int
    first_nan: int
    first_infinity: int

    @property
    def rms(self) -> float:
        """Root of the mean square of the finite elements."""
        finite = self.count - self.nans - self.infinities
        return self.norm / sqrt(finite) if finite else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """|got - want| <= rtol * |want| + floor; a perfectly rounded value is always within it.

    With `bits` the bits of the perfectly rounded value are wanted: -0.0 is another value than 0.0. The
    payload of a NaN is none that an operation promises, so any NaN is like another.
    """

    rtol: float
    floor: float
    bits: bool = False


EXACT: Final = Tolerance(rtol=0.0, floor=0.0)
BITS: Final = Tolerance(rtol=0.0, floor=0.0, bits=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """How the compared elements stand to a tolerance.

    Args:
        count: compared elements.
        wrong: those outside the tolerance.
        worst: largest error as a share of its limit; `inf` where nothing is tolerated.
        worst_at: row-major number of the first element with that share.
    """

    count: int
    wrong: int
    worst: float
    worst_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """How far `got` as a whole is from `want`, over the compared elements.

    Args:
        errors: ||got - want||, `inf` if NaN or infinities do not match.
        got: ||got||.
        want: ||want||.
        product: sum of the products of both.
    """

    errors: float
    got: float
    want: float
    product: float

    @property
    def relative_l2(self) -> float:
        """||got - want|| / ||want||; 0 for equal tensors, also if both are 0."""
        if self.errors == 0:
            return 0.0
        return self.errors / self.want if self.want else inf

    @property
    def cosine(self) -> float:
        """Cosine of the angle between both; 1 if both are 0, 0 if only one is or an element is bad."""
        if self.errors == inf:
            return 0.0
        if self.got == self.want == 0:
            return 1.0
        return self.product / self.got / self.want if self.got and self.want else 0.0


def scale(want: torch.Tensor, region: Region | None) -> Scale:
    """What the compared elements of `want` are like."""
    count = nonzero = 0
    norm = 0.0
    bad, first = [0, 0], [-1, -1]
    for piece, keep in kept(want, region):
        w = wide(want[piece.at], want.device)
        kinds = [w.isnan() & keep, w.double().isinf() & keep]
        fine = keep & ~kinds[0] & ~kinds[1]
        sums = [keep.sum(), ((w != 0) & keep).sum(), *(kind.sum() for kind in kinds)]
        places = [kind.reshape(-1).int().argmax() for kind in kinds]
        numbers = [*(one.double() for one in (*sums, *places)), _norm(torch.where(fine, w, 0))]
        found = torch.stack(numbers).tolist()
        for kind in range(2):
            if found[2 + kind] and first[kind] < 0:
                first[kind] = piece.start + int(found[4 + kind])
            bad[kind] += int(found[2 + kind])
        count, nonzero = count + int(found[0]), nonzero + int(found[1])
        norm = hypot(norm, found[6])
    return Scale(
        count=count,
        nonzero=nonzero,
        norm=norm,
        nans=bad[0],
        infinities=bad[1],
        first_nan=first[0],
        first_infinity=first[1],
    )


def elements(
    got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance, region: Region | None
) -> Elements:
    """How the elements of `got` stand to a tolerance around `want`, which may have another dtype."""
    count = wrong = worst_at = 0
    worst = -1.0
    for piece, keep in kept(got, region):
        g, w = wide(got[piece.at], got.device), wide(want[piece.at], got.device)
        share = _shares(g, w, keep, tolerance, got.dtype).reshape(-1)
        at = share.argmax()
        found = torch.stack(
            [keep.sum().double(), (share > 1).sum().double(), share[at], at.double()]
        ).tolist()
        count, wrong = count + int(found[0]), wrong + int(found[1])
        if found[2] > worst:
            worst, worst_at = found[2], piece.start + int(found[3])
    return Elements(count=count, wrong=wrong, worst=max(worst, 0.0), worst_at=worst_at)


def norms(got: torch.Tensor, want: torch.Tensor, region: Region | None) -> Norms:
    """How far `got` as a whole is from `want`, which may have another dtype."""
    sizes, product = [0.0] * 3, 0.0
    for piece, keep in kept(got, region):
        g, w = (wide(one[piece.at], got.device).double() for one in (got, want))
        same = (g == w) | (g.isnan() & w.isnan())
        fine = keep & g.isfinite() & w.isfinite()
        g, w = torch.where(fine, g, 0), torch.where(fine, w, 0)
        errors = torch.where((keep & ~fine & ~same).any(), inf, _norm(g - w))
        found = torch.stack([errors, _norm(g), _norm(w), (g * w).sum()]).tolist()
        sizes = [hypot(one, more) for one, more in zip(sizes, found[:3], strict=True)]
        product += found[3]
    return Norms(errors=sizes[0], got=sizes[1], want=sizes[2], product=product)


def rounding(want: torch.Tensor, dtype: torch.dtype, region: Region | None) -> float:
    """Relative L2 error of `want` perfectly rounded to `dtype`: no output of it can be expected below."""
    errors = norm = 0.0
    for piece, keep in kept(want, region):
        w = wide(want[piece.at], want.device)
        fine = keep & w.isfinite()
        error = torch.where(fine, rounded(w, dtype) - w, 0)
        found = torch.stack([_norm(error), _norm(torch.where(fine, w, 0))]).tolist()
        errors, norm = hypot(errors, found[0]), hypot(norm, found[1])
    return errors / norm if norm else 0.0


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


def _shares(
    g: torch.Tensor,
    w: torch.Tensor,
    keep: torch.Tensor,
    tolerance: Tolerance,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Errors as shares of their limits, 0 for what is not compared; `dtype` is that of the output."""
    if tolerance.bits and dtype.is_floating_point:
        other_sign = (g == 0) & (g.signbit() != rounded(w, dtype).signbit())
        shares = _shares(g, w, keep, EXACT, dtype)
        return torch.where(keep & other_sign, inf, shares)
    error = (g.double() - w.double()).abs()
    limit = w.abs().double() * tolerance.rtol + tolerance.floor
    if dtype.is_floating_point and bool((~keep | ((error <= limit) & error.isfinite())).all()):
        return torch.where(keep & (limit > 0), error / limit, 0)
    right = (g == w) | (g.isnan() & w.isnan())
    if not dtype.is_floating_point:
        error = error.clamp(min=1)  # float64 cannot tell huge neighbours apart
    share = torch.where(right, 0, error / limit)
    # A perfectly rounded value is right however small the limit: it may be subnormal, or overflow.
    perfect = g == rounded(w, dtype)
    share = torch.where(perfect, torch.where(limit > 0, share.clamp(max=1), 0), share)
    # NaN or an infinity in the wrong place is outside of every tolerance: inf <= inf would pass.
    bad = ~right & ~perfect & ~(g.isfinite() & w.isfinite())
    return torch.where(keep, torch.where(bad, inf, share), 0)


def _norm(elements: torch.Tensor) -> torch.Tensor:
    """L2 norm in float64; squares neither overflow nor vanish."""
    exact = elements.double()
    peak = exact.abs().max()
    return torch.where(peak > 0, (exact / peak).square().sum().sqrt() * peak, 0)
