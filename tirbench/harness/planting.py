"""Slowdowns planted on purpose: run-time half.

On a GPU the kernel itself is another one: the tree of the planted side has one argument and one statement
more (`tirbench.selftest.plant`), which has a program do so many dependent multiply-adds before its work. The
count is an argument of the launch, so that one compiled kernel serves every strength. On a CPU, where `wall`
times the whole call, the call is followed by waiting.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from tirbench.harness.case import Launch

ARGUMENT: Final = "tirbench_delay"
"""The argument that a planted kernel has more. Positive: every program is delayed; negative: the last
one alone, which lengthens a kernel whose programs hide each other's delays."""

STEP_NS: Final = 2.3
"""About what one multiply-add that waits for the one before takes at 1.98 GHz; where the search begins."""

ROUNDS: Final = 4
"""Of a search, at most."""

NEAR: Final = 0.12
"""A strength whose measured effect is off by less than this share of the target is good enough."""


class Delay:
    """The strength that kernels of a tree are launched with from now on."""

    def __init__(self) -> None:
        """No delay."""
        self.steps = 0

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
                # Of the class, and looked up now: whoever records launches replaces it there.
                more = {ARGUMENT: launchable(self.steps)}
                return type(kernel).run(kernel, *args, **more, **kwargs)

            kernel.run = run
        return True

    def launching(self, launch: Launch, steps: int) -> Launch:
        """The launch with this strength."""

        def delayed() -> Any:
            self.steps = steps
            return launch()

        return delayed


def launchable(steps: int) -> int:
    """A strength near this one that Triton does not compile code of its own for, as for 1 and 16."""
    if abs(steps) < 2:
        return 2 if steps >= 0 else -2
    return steps if steps % 16 else steps + 1


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


@dataclass(slots=True)
class Search:
    """Looks for the strength whose effect is the one that is wanted.

    Args:
        measure: effects (log-ratios) of strengths, measured side by side.
        target: the log-ratio that is wanted.
        both: whether a strength may be negative (the last program alone).
    """

    measure: Callable[[Sequence[int]], Sequence[float]]
    target: float
    both: bool
    seen: dict[int, list[float]] = field(default_factory=dict)

    def run(self, first: int) -> tuple[int, float]:
        """The best strength and the effect that it is expected to have.

        Args:
            first: where to begin: about what a fully visible delay would take.
        """
        start = [max(1, first), max(2, 3 * first)]
        self._look([*start, *(-steps for steps in start)] if self.both else start)
        for _ in range(ROUNDS - 1):
            steps, effect = self._best()
            if abs(effect / self.target - 1) <= NEAR and len(self.seen.get(steps, ())) > 0:
                break
            near = {steps, _scaled(steps, 0.8), _scaled(steps, 1.25)}
            self._look(sorted(near))
        return self._best()

    def _look(self, strengths: Sequence[int]) -> None:
        for steps, effect in zip(strengths, self.measure(strengths), strict=True):
            self.seen.setdefault(steps, []).append(effect)

    def _best(self) -> tuple[int, float]:
        """The proposal of each sign; delays of every program are preferred where both would do."""
        proposals = [self._proposal(sign) for sign in ((1, -1) if self.both else (1,))]
        return min(
            proposals, key=lambda one: (round(abs(one[1] / self.target - 1) / 0.3), one[0] < 0)
        )

    def _proposal(self, sign: int) -> tuple[int, float]:
        """The strength at which a line through what was seen on both sides of the target crosses it."""
        points = [
            (0, 0.0),
            *sorted(
                (abs(steps), math.fsum(found) / len(found))
                for steps, found in self.seen.items()
                if steps * sign > 0
            ),
        ]
        for (low, below), (high, above) in pairwise(points):
            if below < self.target <= above:
                share = (self.target - below) / (above - below)
                steps = max(1, round(low + share * (high - low)))
                if steps == high:
                    return sign * steps, above
                return sign * steps, self.target if steps > low else below
        most, effect = points[-1]
        if effect >= self.target:
            return sign * most, effect
        growth = min(8.0, max(1.5, self.target / max(effect, self.target / 8)))
        return sign * math.ceil(most * growth), effect


def _scaled(steps: int, factor: float) -> int:
    """Another strength of the same sign."""
    return int(math.copysign(max(1, round(abs(steps) * factor)), steps))


def effects(logs: Mapping[str, Sequence[float]], base: str, others: Sequence[str]) -> list[float]:
    """Log-ratios of arms to base over all sub-blocks.

    Args:
        logs: logarithms of the midmeans of sub-blocks, by arm.
        base: the arm they are compared with.
        others: the arms.
    """
    mean = {name: math.fsum(values) / len(values) for name, values in logs.items()}
    return [mean[name] - mean[base] for name in others]
