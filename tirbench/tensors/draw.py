"""Random numbers that are a function of a key and a position.

A generator with a state gives other numbers on another device, with another number of
multiprocessors or in other chunks. Here element i of a tensor is a hash of the tensor's key and i, in
64-bit integer arithmetic: the integers drawn are the same bits on every machine and with every
version of torch, and floats agree to the rounding of `log` and `cos`.
"""

from __future__ import annotations

from hashlib import blake2b
from math import tau
from typing import Final

import torch

# Weyl step and finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
_STEP: Final = 0x9E3779B97F4A7C15
_MIX: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def key(seed: int, name: str, rank: int | None) -> int:
    """64 bits for the contents of one tensor; `rank` is `None` where all ranks draw the same."""
    text = f"tirbench contents\0{seed}\0{name}\0{'' if rank is None else rank}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def hashed(key: int, start: int, count: int, device: torch.device | str) -> torch.Tensor:
    """64 random bits for each position `start` … `start + count - 1`: int64, one hash of a bijection.

    Distinct positions below 2**64 have distinct values.
    """
    bits = torch.arange(start, start + count, dtype=torch.int64, device=device)
    bits.mul_(_signed(_STEP)).add_(_signed(key))
    for shift, factor in _MIX:
        bits.bitwise_xor_(_shifted(bits, shift)).mul_(_signed(factor))
    return bits.bitwise_xor_(_shifted(bits, 31))


def integers(bits: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """Integers low <= i < high from 64 random bits each; `high - low` is below 2**63."""
    span = high - low
    if span <= 1 << 31:  # the high half of a product of 32 bits by the span: no visible bias
        return _shifted(_shifted(bits, 32).mul_(span), 32).add_(low)
    return _shifted(bits, 1).remainder_(span).add_(low)


def uniform(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Numbers 0 <= u < 1 on the grid that `dtype`, float32 or float64, represents exactly."""
    digits = 53 if dtype == torch.float64 else 24
    return _shifted(bits, 64 - digits).to(dtype).mul_(2.0**-digits)


def normal(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Standard normal numbers, float32 or float64, by the method of Box and Muller; |z| < 6.7."""
    radius = _shifted(bits, 32).add_(1).to(dtype).mul_(2.0**-32)
    radius = radius.log_().mul_(-2).sqrt_()
    angle = bits.bitwise_and((1 << 32) - 1).to(dtype).mul_(tau * 2.0**-32)
    return radius.mul_(angle.cos_())


def _shifted(bits: torch.Tensor, count: int) -> torch.Tensor:
    """A new tensor of the bits moved to the right, zeros coming in: torch moves the sign in."""
    return bits.bitwise_right_shift(count).bitwise_and_((1 << (64 - count)) - 1)


def _signed(word: int) -> int:
    """The int64 with the same 64 bits."""
    return word - (1 << 64) if word >> 63 else word
