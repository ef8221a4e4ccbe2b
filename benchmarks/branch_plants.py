"""Slowdowns that are planted into one kernel of the suite, and the search for the strength of a size.

A plant is a change of a kernel's body as somebody might make it: more work, on which the result depends, so
that no compiler drops it. How much slower the kernel becomes is not computed but measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tirbench.model import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A change of one kernel: `old` becomes `new` in `file`, with `{strength}` filled in.

    Attributes:
        workload: whose kernel it is.
        kernel: the implementation whose rows become slower; no other does.
        first: the strength that is tried first.
    """

    workload: str
    kernel: str
    file: str
    old: str
    new: str
    first: int

    def into(self, root: Path, strength: int) -> None:
        """Change the file.

        Raises:
            ValueError: the kernel is not written as the plant knows it.
        """
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} is not as the plant knows it")
        planted = self.new.replace("{strength}", str(strength))
        path.write_text(text.replace(self.old, planted), encoding="utf-8")

    def owns(self, verdict: Verdict) -> bool:
        """Whether a verdict is on a row of the planted kernel."""
        row = verdict.row
        return (row.workload, row.implementation) == (self.workload, self.kernel)


MATMUL: Final = Plant(
    workload="matmul",
    kernel="triton",
    file="workloads/kernels/matmul.py",
    # matmul_kernel and matmul_tma_kernel share the file; only the first masks its store.
    old="    inside = (row[:, None] < M) & (column[None, :] < N)\n    tl.store(c_tile, accumulator",
    # A chain of dependent multiplications after the loop over K. A tile takes about as many
    # nanoseconds as K has elements beyond its first 192, so the chain is the same share of every size.
    new="""\
    chain = M * 1.0
    for _ in range((K - 192) * {strength} // 4096):
        chain = chain * 1.0001 + 1.0
    rows_left = tl.where(chain > 0.0, M, 0)
    inside = (row[:, None] < rows_left) & (column[None, :] < N)
    tl.store(c_tile, accumulator""",
    first=90,
)

SOFTMAX_CPU: Final = Plant(
    workload="softmax",
    kernel="tirx_llvm",
    file="workloads/kernels/softmax_tirx.py",
    old="""\
            x: T.let = T.cast(X[row, T.ramp(i * LANES, 1, LANES)], f"float32x{LANES}")
            reduced[T.ramp(0, 1, LANES)] = T.max(reduced[T.ramp(0, 1, LANES)], x)
        peak""",
    # More walks over the row than finding its maximum takes, none of which can raise it.
    new="""\
            x: T.let = T.cast(X[row, T.ramp(i * LANES, 1, LANES)], f"float32x{LANES}")
            reduced[T.ramp(0, 1, LANES)] = T.max(reduced[T.ramp(0, 1, LANES)], x)
        for walk in T.serial({strength}):
            below: T.let = T.broadcast(T.cast(walk, "float32"), LANES)
            for i in T.serial(N // LANES):
                x: T.let = T.cast(X[row, T.ramp(i * LANES, 1, LANES)], f"float32x{LANES}")
                reduced[T.ramp(0, 1, LANES)] = T.max(reduced[T.ramp(0, 1, LANES)], x - below)
        peak""",
    first=2,
)

PLANTS: Final = {"cuda": MATMUL, "cpu": SOFTMAX_CPU}


# --- The strength of a size -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effect:
    """How much slower one row became, relative, with the half width of its 95 % interval."""

    slower: float
    half_width: float


Effects: TypeAlias = "Mapping[str, Effect]"
"""By row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The slowdown that is looked for, relative; `low` and `high` still are one."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """What a strength is computed for."""
        return (self.low + self.high) / 2

    def met(self, effects: Effects) -> bool:
        """Whether every row is slowed down as asked."""
        return bool(effects) and all(
            self.low <= one.slower <= self.high for one in effects.values()
        )


def effects_of(verdicts: tuple[Verdict, ...], plant: Plant) -> dict[str, Effect]:
    """What a comparison says of the rows of the planted kernel."""
    return {
        verdict.row.key: Effect(
            math.expm1(verdict.estimate.log_ratio), 1.96 * verdict.estimate.standard_error
        )
        for verdict in verdicts
        if plant.owns(verdict) and verdict.estimate is not None
    }


def mean_effect(effects: Effects) -> float:
    """Over rows: strengths are chosen for all of them together."""
    return sum(one.slower for one in effects.values()) / len(effects)


def strength_for(tried: Mapping[int, float], wanted: float) -> int:
    """The strength of a slowdown, on the line through the two tries that are nearest to it.

    Args:
        tried: mean slowdown by strength; one of them is taken with no slowdown at strength 0.
        wanted: the slowdown.
    """
    known = {0: 0.0, **tried} if len(tried) == 1 else dict(tried)
    (one, low), (other, high) = sorted(known.items(), key=lambda at: abs(at[1] - wanted))[:2]
    slope = (high - low) / (other - one)
    if slope <= 0:  # noise, or far too weak
        return 2 * max(known)
    return max(1, min(round(one + (wanted - low) / slope), 8 * max(known)))


def search(
    plant: Plant, aim: Aim, measure: Callable[[int], Effects], tries: int
) -> tuple[int, dict[int, Effects]]:
    """Measure strengths until one is what is asked for; the last try stands where none is.

    Args:
        plant: of which kernel.
        aim: the slowdown.
        measure: plants a strength and compares; empty where it could not be measured.
        tries: at most so many.
    """
    found: dict[int, Effects] = {}
    strength = plant.first
    for _ in range(tries):
        effects = measure(strength)
        if not effects:
            break
        found[strength] = effects
        if aim.met(effects):
            break
        better = strength_for({s: mean_effect(e) for s, e in found.items()}, aim.middle)
        if better in found:
            break
        strength = better
    return (strength if strength in found else max(found, default=plant.first)), found
