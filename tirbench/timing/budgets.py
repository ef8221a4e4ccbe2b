"""How many calls a measurement makes: defaults, budgets, and the table of calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tirbench.calls import calls_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tirbench.model import TimerName
    from tirbench.timing.plan import Pilot


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Time to spend in ms; `warmup_ms` is None for a timer without a warm-up phase."""

    repeat_ms: float
    warmup_ms: float | None


# The one place of every timer's defaults: triton.testing.do_bench(warmup=25, rep=100),
# do_bench_cudagraph(rep=20); `kineto` and `wall` have no public default and take do_bench's.
DEFAULTS: Final[Mapping[TimerName, Budget]] = {
    "event": Budget(warmup_ms=25.0, repeat_ms=100.0),
    "proton": Budget(warmup_ms=25.0, repeat_ms=100.0),
    "cudagraph_proton": Budget(warmup_ms=None, repeat_ms=20.0),
    "kineto": Budget(warmup_ms=25.0, repeat_ms=100.0),
    "wall": Budget(warmup_ms=25.0, repeat_ms=100.0),
}

TIMERS: Final = tuple(DEFAULTS)

# (warm-up, repeat) when the estimate is zero. 1000 as triton's do_bench_cudagraph and
# do_bench_proton; 25 and 100 as meta-pytorch/tritonbench#1040 for events, where do_bench divides by
# zero. A timer that answers nothing but zeros fails afterwards: no sample of zero is accepted.
ZERO_ESTIMATE: Final[Mapping[TimerName, tuple[int, int]]] = {
    "event": (25, 100),
    "proton": (1000, 1000),
    "cudagraph_proton": (1000, 1000),
    "kineto": (1000, 1000),
    "wall": (25, 100),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Launches of one implementation in one round; `zero_estimate` tells that they are no quotient."""

    warmup: int
    repeat: int
    zero_estimate: bool = False


def from_budget(timer: TimerName, budget: Budget, pilot: Pilot) -> Counts:
    """Divide the budgets by the estimate, at least one call each, as `triton.testing.do_bench`."""
    zero_warmup, zero_repeat = ZERO_ESTIMATE[timer]
    zero = not pilot.budget_us > 0
    repeat = zero_repeat if zero else max(1, int(budget.repeat_ms * 1e3 / pilot.budget_us))
    if budget.warmup_ms is None:
        return Counts(warmup=0, repeat=repeat, zero_estimate=zero)
    warmup = zero_warmup if zero else max(1, int(budget.warmup_ms * 1e3 / pilot.budget_us))
    return Counts(warmup=warmup, repeat=repeat, zero_estimate=zero)


def from_table(launch_us: float, rounds: int) -> int:
    """Calls per round, so that all rounds together make what the table asks for the duration."""
    return -(-calls_for(launch_us) // rounds)
