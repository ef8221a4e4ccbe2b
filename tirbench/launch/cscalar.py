"""A number with the width that a C kernel takes it in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CScalar:
    """`value` as the C type `ctype` (`int32`, `float32` …): a bare number has no width of its own."""

    ctype: str
    value: float
