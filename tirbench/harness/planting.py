"""Slowdowns planted on purpose: run-time half.

On a GPU the kernel itself is another one: in the trees of the planted sides it has one argument and one
statement more (`tirbench.selftest.plant`), by which programs do so many dependent multiply-adds before their
work. Only those wait that the device starts at once, as many as are resident together: later ones would hide
their delay behind others' work, whereas all of the first ones put off everything. So a launch takes longer by
the delay, whatever its grid. How long and how many is an argument of the launch: one compiled kernel serves
every strength, none among them. On a CPU, where `wall` times the whole call, the call is followed by waiting.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tirbench.launch import resources, triton

if TYPE_CHECKING:
    from pathlib import Path

    from tirbench.harness.case import Launch

ARGUMENT: Final = "tirbench_delay"
"""The argument that a planted kernel has more."""

NOBODY: Final = 2
"""Of it: no program waits. Neither 1 nor a multiple of 16, for which Triton compiles code of its own."""

MOST_STEPS: Final = (1 << 16) - 2
EVERY_PROGRAM: Final = (1 << 15) - 1
"""What fits into the halves of the argument; no GPU has as many programs resident."""

STEP_NS: Final = 5.0
"""About what one multiply-add with its branch takes at 1.98 GHz; where looking begins. It is more where warps
of other programs want the same units."""


# --- Delays -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Strength:
    """How long the programs of one arm wait.

    Attributes:
        steps: beyond the first, which every arm has: what a delay costs whatever its length has no part in
            what arms differ by.
        programs: how many of each kernel wait, by its identity; learnt from its first launch, in which
            nobody does.
    """

    steps: int
    programs: dict[int, int] = field(default_factory=dict)


class Delay:
    """The strength that kernels of some trees are launched with from now on; one for a process."""

    def __init__(self) -> None:
        """No delay."""
        self._now = Strength(0)
        self.multiprocessors = 0

    def into(self, tree: Path) -> int:
        """Have every planted kernel that was loaded from a tree launched with it; says how many those are."""
        from triton.runtime.jit import KernelInterface

        return sum(
            self._into(kernel)
            for module in list(sys.modules.values())
            if str(getattr(module, "__file__", None) or "").startswith(f"{tree}/")
            for kernel in list(vars(module).values())
            if isinstance(kernel, KernelInterface)
        )

    def _into(self, kernel: Any) -> bool:
        while hasattr(inner := getattr(kernel, "fn", None), "run"):
            kernel = inner  # below a tuner or heuristics
        if ARGUMENT not in getattr(kernel, "arg_names", ()):
            return False
        if "run" not in vars(kernel):

            def run(*args: Any, **kwargs: Any) -> Any:
                now = self._now
                programs = now.programs.get(id(kernel), 0)
                more = {ARGUMENT: packed(now.steps, programs) if programs else NOBODY}
                # Of the class, and looked up now: whoever records launches replaces it there.
                compiled = type(kernel).run(kernel, *args, **more, **kwargs)
                if not programs:
                    now.programs[id(kernel)] = resident(compiled, self.multiprocessors)
                return compiled

            kernel.run = run
        return True

    def launching(self, launch: Launch, steps: int) -> Launch:
        """The launch with so many steps of delay beyond the first; nobody waits in its first call."""
        strength = Strength(steps)

        def delayed() -> Any:
            self._now = strength
            return launch()

        return delayed


DELAY: Final = Delay()
"""Of this process: a kernel may be launched by several cases and workloads."""


def packed(steps: int, programs: int) -> int:
    """The argument with which so many programs wait for one step and about so many more."""
    return min(programs, EVERY_PROGRAM) << 16 | 1 + usable(min(steps, MOST_STEPS - 1))


def usable(steps: int) -> int:
    """A number of steps near this one with which the argument is no multiple of 16."""
    return steps if (steps + 1) % 16 else steps + 1


def resident(compiled: Any, multiprocessors: int) -> int:
    """How many programs of a compiled kernel a device runs at once; every one where that is not known."""
    try:
        codes = triton.machine_code_of(compiled)
        limits = resources.MULTIPROCESSORS[f"sm_{compiled.metadata.target.arch}".rstrip("af")]
    except (AttributeError, KeyError, TypeError, ValueError):
        return EVERY_PROGRAM
    each = [
        round(code.occupancy * limits.warps / math.ceil(code.threads / 32))
        for code in codes
        if code.occupancy is not None and code.threads
    ]
    return max(1, min(each) * multiprocessors) if each and multiprocessors else EVERY_PROGRAM


def followed_by_waiting(launch: Launch, nanoseconds: int) -> Launch:
    """A call on a CPU that takes so much longer."""
    clock_ns = time.perf_counter_ns

    def slower() -> Any:
        result = launch()
        end = clock_ns() + nanoseconds
        while clock_ns() < end:
            pass
        return result

    return slower


# --- How strong -------------------------------------------------------------------------------------

LOOKED_AT: Final = (2, 4)
"""Multiples of the wanted effect that are measured: the slope is then known twice and four times as well as
by measuring the effect itself."""

EXPECTED: Final = (0.4, 3.0)
"""How much of its expected effect a delay may have for the first look to be the last."""

FURTHEST: Final = 16
"""A second look takes delays at most so many times as long, or as short, as were expected to do."""

FLOOR_SD: Final = 0.0005
"""Less than that no arm of one worker is known to, as in `judge`."""

WELL_ENOUGH: Final = 0.25
"""Standard error of a slope that is used, as a share of it."""

USEFUL: Final = (0.7, 1.5)
"""Shares of the target that the nearest whole number of steps may come to."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The log-ratio of an arm to the same code without a delay, and the variance of that."""

    log_ratio: float
    variance: float


@dataclass(frozen=True, slots=True)
class Slope:
    """Log-ratio of one step, with its standard error."""

    per_step: float
    error: float

    @classmethod
    def of(cls, seen: Mapping[int, Effect]) -> Slope:
        """Weighted least squares through the origin: no delay has no effect on the same code."""
        weights = {steps: 1 / (one.variance + FLOOR_SD**2) for steps, one in seen.items()}
        square = math.fsum(weight * steps**2 for steps, weight in weights.items())
        mixed = math.fsum(weights[steps] * steps * one.log_ratio for steps, one in seen.items())
        per_step = mixed / square
        misfit = math.fsum(
            weights[steps] * (one.log_ratio - per_step * steps) ** 2 for steps, one in seen.items()
        )
        freedom = max(1, len(seen) - 1)
        return cls(per_step, math.sqrt(max(1.0, misfit / freedom) / square))

    @property
    def is_known(self) -> bool:
        """Whether it is known well enough to foretell an effect."""
        return self.error <= WELL_ENOUGH * self.per_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Strengthening:
    """Which delay has the wanted effect.

    Attributes:
        steps: `None` where no delay can be told to have it.
        expected: log-ratio of that many.
        reason: why there is none; empty where there is one.
        seen: effects of the latest look.
    """

    steps: int | None
    expected: float | None = None
    reason: str = ""
    seen: Mapping[int, Effect]


def strengthen(
    measure: Callable[[Sequence[int]], Sequence[Effect]], expected_steps: float, target: float
) -> Strengthening:
    """Find the number of steps with an effect of about `target`, in one look or two.

    Effects grow in proportion to the steps, so that a slope says all. A second look is taken where the
    first was far off: another slope than expected, or none that can be told from noise.

    Args:
        measure: the effects of strengths, measured side by side.
        expected_steps: how many should have it: one step takes about `STEP_NS`.
        target: a log-ratio.
    """
    seen = _look(measure, expected_steps)
    slope = Slope.of(seen)
    low, high = EXPECTED
    share = slope.per_step * expected_steps / target
    if not slope.is_known or not low <= share <= high:
        factor = 1 / share if slope.is_known else FURTHEST
        factor = min(float(FURTHEST), max(1 / FURTHEST, factor))
        seen = _look(measure, factor * expected_steps)
        slope = Slope.of(seen)
    if not slope.is_known:
        reason = (
            f"the slope of its delay cannot be told: {100 * slope.per_step:.2g} ± "
            f"{100 * slope.error:.2g} % a step, up to {max(seen)} steps"
        )
        return Strengthening(steps=None, reason=reason, seen=seen)
    steps = usable(max(1, round(target / slope.per_step)))
    expected = steps * slope.per_step
    low, high = USEFUL
    if not low <= expected / target <= high or steps > FURTHEST * max(1.0, expected_steps):
        reason = f"its nearest delay, {steps} steps, is {100 * math.expm1(expected):.2g} %"
        return Strengthening(steps=None, reason=reason, seen=seen)
    return Strengthening(steps=steps, expected=expected, seen=seen)


def _look(measure: Callable[[Sequence[int]], Sequence[Effect]], wanted: float) -> dict[int, Effect]:
    strengths = sorted(
        {usable(max(2 + index, round(of * wanted))) for index, of in enumerate(LOOKED_AT)}
    )
    return dict(zip(strengths, measure(strengths), strict=True))


def effect(base: Sequence[float], head: Sequence[float]) -> Effect:
    """What the sub-blocks of two arms say, two of each a quad, as `harness.quads` pairs them.

    Args:
        base: logarithms of the midmeans of sub-blocks, in order.
        head: the same of the other arm.
    """
    count = min(len(base), len(head)) // 2
    quads = [math.fsum(head[2 * at : 2 * at + 2]) / 2 for at in range(count)]
    quads = [value - math.fsum(base[2 * at : 2 * at + 2]) / 2 for at, value in enumerate(quads)]
    mean = math.fsum(quads) / count
    spread = math.fsum((value - mean) ** 2 for value in quads)
    return Effect(mean, spread / (max(1, count - 1) * count))
