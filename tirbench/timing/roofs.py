"""How fast this device can be at most: copying, and multiplying matrices of each element type.

Measured in the burst regime, rested, with cold caches; a kernel above 105 % of its roof has been mistimed,
or its bytes or operations are declared wrong.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch

from tirbench.averages import midmean
from tirbench.timing.api import bench
from tirbench.timing.plan import Closure

Multiply: TypeAlias = Callable[[torch.Tensor, torch.Tensor], object]

# Long enough that an event pair (about 5 µs) is no part of it, short enough for a burst.
COPY_BYTES: Final = {"cuda": 1 << 30, "cpu": 1 << 27}
CALLS: Final = {"cuda": 16, "cpu": 5}

# Square products; the best of them is the roof. Types without matrix units get the smaller ones alone,
# since 2 · 8192³ operations at 60 TFLOP/s outlast a burst.
SIDES: Final = {"cuda": (4096, 8192), "cpu": (512, 1024)}
SLOW_SIDES: Final = {"cuda": (2048, 4096), "cpu": (512, 1024)}
SLOW: Final = frozenset({"float32", "float64"})
EIGHT_BITS: Final = frozenset({"float8_e4m3fn", "float8_e5m2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The roofs of a device.

    Attributes:
        copy_gbytes_per_s: GB/s of a large copy, bytes read plus bytes written.
        tflops: TFLOP/s of the best matrix product of random values, by dtype (TOP/s for int8).
        zeros_tflops: the same of zeros. Arithmetic draws power by the bits that change, and power sets the
            clock: operands with few bits (dequantised fp4) run faster than random ones, none faster
            than zeros.
    """

    copy_gbytes_per_s: float
    tflops: dict[str, float]
    zeros_tflops: dict[str, float]


def measure_roofs(
    device: object = None, dtypes: Iterable[str] = ("float16", "bfloat16", "float32")
) -> Measured:
    """Measure the roofs of a device.

    Args:
        device: a CUDA device, None for torch's current one, or "cpu".
        dtypes: element types by their names in torch.

    Returns:
        The roofs; types that the device cannot multiply are left out. float32 is measured with TF32
        allowed: that is what a kernel may use.
    """
    place = torch.device("cuda" if device is None else str(device))
    names = tuple(dtypes)
    with _tf32():
        random, zeros = (
            {
                dtype: tflops
                for dtype in names
                if (tflops := _product_tflops(place, dtype, random=random)) is not None
            }
            for random in (True, False)
        )
    return Measured(copy_gbytes_per_s=_copy_gbytes_per_s(place), tflops=random, zeros_tflops=zeros)


def _copy_gbytes_per_s(place: torch.device) -> float:
    size = COPY_BYTES[place.type]
    source = torch.zeros(size // 4, dtype=torch.int32, device=place)
    target = torch.empty_like(source)
    return 2 * size / _midmean_us(place, lambda: target.copy_(source)) / 1e3


def _product_tflops(place: torch.device, dtype: str, *, random: bool) -> float | None:
    """The best product of that type; None where torch cannot multiply it there."""
    sides = SLOW_SIDES if dtype in SLOW else SIDES
    best: float | None = None
    for side in sides[place.type]:
        try:
            launch = _product(place, dtype, side, random=random)
            launch()
        except (RuntimeError, TypeError, NotImplementedError, AttributeError):
            # torch says so in all these ways when a type has no product on a device
            return best
        tflops = 2 * side**3 / _midmean_us(place, launch) / 1e6
        best = max(best or 0.0, tflops)
    return best


def _product(place: torch.device, dtype: str, side: int, *, random: bool) -> Closure:
    """A closure that multiplies two square matrices of random values, or of zeros."""
    generator = torch.Generator(place).manual_seed(0)
    kind: torch.dtype = getattr(torch, dtype)
    if dtype == "int8":
        low, high = (-128, 127) if random else (0, 1)
        a, b = (
            torch.randint(low, high, (side, side), dtype=kind, device=place, generator=generator)
            for _ in range(2)
        )
        return lambda: torch._int_mm(a, b)  # noqa: SLF001  # torch has no public int8 product
    a, b = (torch.randn(side, side, device=place, generator=generator).to(kind) for _ in range(2))
    if not random:
        a, b = torch.zeros_like(a), torch.zeros_like(b)
    if dtype in EIGHT_BITS:
        one = torch.ones((), device=place)
        right = b.t()
        return lambda: torch._scaled_mm(  # noqa: SLF001  # nor a float8 one
            a, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
    out = torch.empty(side, side, dtype=kind, device=place)
    return lambda: torch.mm(a, b, out=out)


def _midmean_us(place: torch.device, launch: Closure) -> float:
    result = bench(
        {"roof": launch},
        timer="event" if place.type == "cuda" else "wall",
        cooldown_s=0.0,
        calls=CALLS[place.type],
        regime="burst",
        device=place if place.type == "cuda" else None,
    )
    value = midmean(result["samples"]["roof"][0])
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"a roof of {value} µs")
    return value


@contextlib.contextmanager
def _tf32() -> Iterator[None]:
    """Allow TF32 in float32 products, and put the setting back."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
