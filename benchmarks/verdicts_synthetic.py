"""Synthetic kernels and suites: call times with the noise that was measured on an H200.

Every time of a call is drawn, with clock ticks and outliers, and taken through sub-blocks and quads as the
harness measures them. Quads are drawn once a kernel into a pool and resampled from it, so that thousands of
suites take minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tirbench.calls import CALLS, CALLS_BEYOND, FLUSH_US, LONG_BLOCK, SHORT_BLOCK, SHORT_CALL_US
from tirbench.judge import PairPlan, gpu_seconds
from tirbench.model import PairReading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.float64]"

TICK_US: Final = 0.032

Calls: TypeAlias = "tuple[tuple[float, int], ...]"
"""Calls of one side and worker: (the launch takes at most so many µs, calls)."""

WRITTEN_CALLS: Final[Calls] = ((2.0, 720), (10.0, 320), (300.0, 48), (2000.0, 24))
EVEN_CALLS: Final[Calls] = ((2.0, 600), (10.0, 480), (300.0, 48), (2000.0, 24))
BY_NOISE_CALLS: Final[Calls] = ((10.0, 480), (100.0, 144), (300.0, 48), (2000.0, 24))
SHIPPED_CALLS: Final[Calls] = CALLS

# Assumed, as nobody measured them: one call in fifty is late by 0.5 µs and 1 % on average; clocks wander by
# 0.3 % within a second; a session is off by 0.3 % (`tirbench.store.pin.SESSION_SD`); how far τ differs
# between rows of one kernel; and how much of its placement pattern a changed kernel has for itself.
OUTLIERS: Final = 0.02
LATE_US: Final = 0.5
LATE: Final = 0.01
DRIFT_SD: Final = 0.003
DRIFT_SECONDS: Final = 1.0
SESSION_SD: Final = 0.003
TAU_SPREAD: Final = 0.4
INTERACTION: Final = 0.2

ASSUMED: Final = (
    "calls are log-normal; their spread is such that a midmean of 160 calls has the residual below",
    f"{OUTLIERS:.0%} of the calls are late by {LATE_US:g} µs and {LATE:.0%} on average, exponentially",
    f"both ends of a call are read on ticks of {1000 * TICK_US:g} ns, at any phase",
    f"clocks wander by {DRIFT_SD:.1%} with a time constant of {DRIFT_SECONDS:g} s",
    f"a session of its own moves a side by {SESSION_SD:.1%}; so does placement if nobody owns addresses",
    f"τ of a row is the spread between processes, an upper bound, times exp({TAU_SPREAD:g}·N(0, 1))",
    f"changed code has {INTERACTION:.0%} of the placement spread for itself",
    f"every call is preceded by {FLUSH_US:g} µs of flushing, discarded calls too",
)

EFFECTS: Final = (0.0, 0.005, 0.01, 0.02)
MOST_WORKERS: Final = 15
POOL: Final = 40_000
CALIBRATION_CALLS: Final = 160  # the residuals below are those of a midmean of so many calls


@dataclass(frozen=True)
class Kernel:
    """A kind of kernel and its noise; relative standard deviations.

    `residual_sd` is that of a midmean of 160 calls measured again at once; `tau_sd`, for kernels that
    no worker measures alike, replaces what follows from `process_sd`; `late` is how much longer, on
    average, a late call takes beside `LATE_US`.
    """

    name: str
    launch_us: float
    placement_sd: float
    process_sd: float
    residual_sd: float
    source: str = "measured"
    tau_sd: float | None = None
    late: float = LATE

    @property
    def block(self) -> tuple[int, int]:
        """Discarded and kept calls of a sub-block."""
        return SHORT_BLOCK if self.launch_us < SHORT_CALL_US else LONG_BLOCK

    def quads(self, calls: Calls) -> int:
        """Of one worker."""
        wanted = next((count for limit, count in calls if self.launch_us <= limit), CALLS_BEYOND)
        return wanted // (2 * self.block[1])

    @cached_property
    def call_sd(self) -> float:
        """Standard deviation of log call time that gives the residual, found by simulation.

        Ticks and outliers have a share of the residual; where they alone exceed it there is no more.
        """
        found = self.residual_sd * math.sqrt(CALIBRATION_CALLS / 1.2)
        for _ in range(6):
            rng = np.random.default_rng(7)
            calls = draw_calls(
                rng, np.full((1500, CALIBRATION_CALLS), self.launch_us), found, self.late
            )
            found *= self.residual_sd / float(np.std(np.log(midmeans(calls))))
        return found

    def plan(self, calls: Calls, quad_sd: float, workers: int) -> PairPlan:
        """The plan of a row of this kernel."""
        tau = self.process_sd if self.tau_sd is None else self.tau_sd
        return PairPlan(quad_sd=quad_sd, quads=self.quads(calls), tau=tau, workers=workers)

    def gpu_seconds(self, calls: Calls, workers: int) -> float:
        """GPU seconds of one side of a row over so many workers, flushes included."""
        plan = self.plan(calls, 0.0, workers)
        return gpu_seconds(plan, self.launch_us, FLUSH_US, block=self.block)


# Six are of MEASURING, section 1. Longer ones are assumed twice as noisy as its A/A of interleaved calls
# makes them (0.04 % at 56 µs, 0.08 % at 1,380 µs). The layer norm scatters as in the self-test of 2026-11-30,
# a pair of 48 calls a side by 0.74 %; its placement and process are those of others of its class.
SUITE: Final = (
    Kernel("add 4k", 1.31, 0.0081, 0.0017, 0.0053),
    Kernel("rmsnorm 32×128", 1.58, 0.0057, 0.0016, 0.0050),
    Kernel("rmsnorm 128×4096", 3.41, 0.0089, 0.0020, 0.0050),
    Kernel("matmul 512", 3.75, 0.0022, 0.0005, 0.0018),
    Kernel("add 1M", 4.99, 0.0155, 0.0004, 0.0022),
    Kernel("layernorm 4096²", 21.1, 0.003, 0.0006, 0.0029, "self-test"),
    Kernel("matmul 2048", 24.3, 0.0074, 0.0006, 0.0016),
    Kernel("softmax 4096²", 56.1, 0.003, 0.0006, 0.0010, "assumed"),
    Kernel("add 64M", 187.4, 0.003, 0.0006, 0.0010, "assumed"),
    Kernel("attention", 600.0, 0.002, 0.0006, 0.0010, "assumed"),
    Kernel("matmul 8192", 1380.0, 0.001, 0.0006, 0.0010, "assumed"),
)

# What a suite may hold besides: kernels noisier than any measured; single calls of which one in fifty is
# 15 % late, from which a sub-block of one call has no midmean to protect it; kernels that allocate their
# outputs themselves, so that placement seeds do not make the two sides equal (half the placement of add 1M).
STRESS: Final = (
    Kernel("noisy 9 µs", 9.0, 0.005, 0.0020, 0.0080, "stress"),
    Kernel("noisy 12 µs", 12.0, 0.005, 0.0020, 0.0035, "stress"),
    Kernel("late calls 600 µs", 600.0, 0.002, 0.0006, 0.0010, "stress", late=0.15),
    Kernel("own allocations", 5.0, 0.0155, 0.0004, 0.0022, "stress", tau_sd=0.0075),
)


def draw_calls(rng: np.random.Generator, launch_us: Array, call_sd: float, late: float) -> Array:
    """Call times in µs as the profiler's clock reads them: both ends on ticks, at any phase."""
    shape = launch_us.shape
    times = launch_us * np.exp(call_sd * rng.standard_normal(shape))
    is_late = rng.random(shape) < OUTLIERS
    times = times + is_late * rng.exponential(LATE_US + late * launch_us)
    phase = rng.random(shape)
    return np.maximum(np.floor(phase + times / TICK_US), 1) * TICK_US


def midmeans(calls: Array) -> Array:
    """Interquartile means over the last axis, whose length is 1 or a multiple of four."""
    count = calls.shape[-1]
    if count == 1:
        return calls[..., 0]
    ordered = np.sort(calls, axis=-1)
    return np.asarray(ordered[..., count // 4 : count - count // 4].mean(axis=-1))


def quad_pool(rng: np.random.Generator, kernel: Kernel, effect: float) -> Array:
    """Log-ratios of many quads of a kernel against one that takes `effect` longer.

    Drift: over a quad the wandering of the clocks is a sum of small steps s between neighbouring
    sub-blocks; of A B B A remains half the difference of the first and the last step.
    """
    discarded, kept = kernel.block
    place = np.exp(kernel.placement_sd * rng.standard_normal((POOL, 1, 1)))
    slower = np.array([1.0, 1 + effect, 1 + effect, 1.0])[None, :, None]
    times = np.broadcast_to(kernel.launch_us * place * slower, (POOL, 4, kept))
    logs = np.log(midmeans(draw_calls(rng, times, kernel.call_sd, kernel.late)))
    seconds = (discarded + kept) * (kernel.launch_us + FLUSH_US) / 1e6
    step = DRIFT_SD * math.sqrt(2 * seconds / DRIFT_SECONDS)
    drift = step / math.sqrt(2) * rng.standard_normal(POOL)
    return np.asarray((logs[:, 1] + logs[:, 2] - logs[:, 0] - logs[:, 3]) / 2 + drift)


@dataclass(frozen=True)
class SyntheticRow:
    """A row of a suite, the true effect, and what every worker that may be asked for would read."""

    kernel: Kernel
    effect: float
    readings: tuple[PairReading, ...]


def draw_suites(
    rng: np.random.Generator, kernels: Sequence[Kernel], calls: Calls, suites: int
) -> Iterator[list[SyntheticRow]]:
    """Suites of two unchanged rows of every kernel and planted ones of some, in turn.

    A third of the kernels has +1 % in a suite, a twelfth +0.5 %, another +2 %.
    """
    pools = {
        (kernel.name, effect): quad_pool(rng, kernel, effect)
        for kernel in kernels
        for effect in EFFECTS
    }
    for suite in range(suites):
        rows: list[SyntheticRow] = []
        for index, kernel in enumerate(kernels):
            turn = (index + suite) % 12
            effects = [0.0, 0.0]
            effects += [0.01] if turn % 3 == 0 else [0.005] if turn == 1 else []
            effects += [0.02] if turn == 2 else []
            for effect in effects:
                pool = pools[kernel.name, effect]
                readings = draw_workers(rng, kernel, kernel.quads(calls), pool, effect)
                rows.append(SyntheticRow(kernel, effect, readings))
        yield rows


def draw_workers(
    rng: np.random.Generator, kernel: Kernel, quads: int, pool: Array, effect: float
) -> tuple[PairReading, ...]:
    """All the workers that a row may be given, quads from the kernel's pool.

    Placement and session are the same on both sides and drop out. What remains of a worker: τ, of
    which the spread between processes is an upper bound, and for changed code a part of the placement
    pattern that only one side has.
    """
    drawn = pool[rng.integers(len(pool), size=(MOST_WORKERS, quads))]
    tau = kernel.tau_sd or kernel.process_sd * math.exp(TAU_SPREAD * rng.standard_normal())
    own = INTERACTION * kernel.placement_sd if effect else 0.0
    ratios = drawn.mean(axis=1) + math.hypot(tau, own) * rng.standard_normal(MOST_WORKERS)
    variances = drawn.var(axis=1, ddof=1)
    return tuple(
        PairReading(
            placement=placement,
            log_ratio=ratio,
            quad_variance=variance,
            quads=quads,
        )
        for placement, (ratio, variance) in enumerate(
            zip(ratios.tolist(), variances.tolist(), strict=True)
        )
    )


def quad_sd(kernel: Kernel) -> float:
    """Standard deviation of the log-ratio of a quad of identical code."""
    return float(quad_pool(np.random.default_rng(3), kernel, 0.0).std())


def draw_sides(
    rng: np.random.Generator,
    kernel: Kernel,
    rows: int,
    calls: int,
    effect: float,
    *,
    own_addresses: bool,
) -> tuple[Array, Array]:
    """Calls of two sides measured one after the other: (rows, calls) of base and of head.

    Each side is a session of its own: an offset, clocks that wander, and, where nobody owns the
    addresses, a placement of its own.
    """
    sides = []
    seconds = (kernel.launch_us + FLUSH_US) / 1e6
    keep = math.exp(-seconds / DRIFT_SECONDS)
    shared = kernel.placement_sd * rng.standard_normal((rows, 1))
    for slower in (1.0, 1 + effect):
        place = kernel.placement_sd * rng.standard_normal((rows, 1)) if own_addresses else shared
        session = SESSION_SD * rng.standard_normal((rows, 1))
        process = kernel.process_sd * rng.standard_normal((rows, 1))
        drift = np.empty((rows, calls))
        drift[:, 0] = DRIFT_SD * rng.standard_normal(rows)
        steps = DRIFT_SD * math.sqrt(1 - keep * keep) * rng.standard_normal((calls, rows))
        for call in range(1, calls):
            drift[:, call] = keep * drift[:, call - 1] + steps[call]
        times = kernel.launch_us * slower * np.exp(place + session + process + drift)
        sides.append(draw_calls(rng, times, kernel.call_sd, kernel.late))
    return sides[0], sides[1]
