"""What a harness says of a case beside its implementations: needs, timing, oracle, work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch


@dataclass(frozen=True, slots=True)
class Requires:
    """What an implementation needs of the machine; see `[requires]` of the language."""

    device: Literal["cuda", "cpu"] | None = None
    capability: str | None = None
    memory: float | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """How the workload asks to be timed; what is `None` is left to `bench()`."""

    name: str | None = None
    rounds: int | None = None
    warmup: float | None = None
    repeat: float | None = None
    cudagraph_rep: float | None = None
    cooldown_s: float | None = None
    l2: Literal["cold-dirty", "cold-clean", "warm"] = "cold-dirty"
    regime: Literal["burst", "sustained"] = "burst"


@dataclass(frozen=True, slots=True)
class Oracle:
    """The function that says what is right, and in which precision its inputs are given."""

    function: Callable[..., Any]
    returns: tuple[str, ...]
    dtype: torch.dtype | None


@dataclass(frozen=True, slots=True)
class Work:
    """Least work of the case: numbers, or functions of the tensors' contents."""

    flops: float | Callable[[], Any] | None = None
    bytes: float | Callable[[], Any] | None = None
    roof: str | None = None
