"""The arguments of `bench()`, checked before anything is launched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, cast

from tirbench.timing.budgets import DEFAULTS, TIMERS, Budget
from tirbench.timing.context import DistributedBenchContext
from tirbench.timing.flush import POLICIES
from tirbench.timing.schedule import ORDERS, REGIMES, Order

if TYPE_CHECKING:
    from tirbench.model import L2Policy, Regime, TimerName
    from tirbench.timing.plan import Closure

# What `timer=None` means, here and nowhere else.
LOCAL_TIMER: Final[TimerName] = "proton"
DISTRIBUTED_TIMER: Final[TimerName] = "kineto"

# Options whose values a distributed measurement fixes: all ranks must make the same launches.
FIXED_WHEN_DISTRIBUTED: Final = ("warmup", "repeat", "cudagraph_rep", "calls")

# Budgets that a timer has no use for; they are ignored, as the API page says, and recorded as such.
IGNORED: Final[Mapping[TimerName, tuple[str, ...]]] = {
    "event": ("cudagraph_rep",),
    "proton": ("cudagraph_rep",),
    "cudagraph_proton": ("warmup", "repeat"),
    "kineto": ("cudagraph_rep",),
    "wall": ("cudagraph_rep",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a call of `bench()` asks for, with every default resolved.

    `budget` is the effective budget; `warmup_given` tells that the caller asked for a warm-up, which
    counts then even where `calls` replaces the repeat budget. `ignored` names the options that were
    given and have no effect.
    """

    funcs: Mapping[str, Closure]
    references: Mapping[str, Closure]
    prepare: Mapping[str, Closure]
    timer: TimerName
    budget: Budget
    warmup_given: bool
    calls: int | str | None
    cooldown_s: float
    rounds: int
    order: Order
    l2: L2Policy
    regime: Regime | None
    device: object
    distributed: DistributedBenchContext | None
    ignored: tuple[str, ...]


def validate(  # noqa: PLR0913  # the signature of the public function
    funcs: object,
    *,
    warmup: object,
    repeat: object,
    cudagraph_rep: object,
    timer: object,
    references: object,
    cooldown_s: object,
    rounds: object,
    distributed: object,
    prepare: object,
    order: object,
    calls: object,
    l2: object,
    regime: object,
    device: object,
) -> Request:
    """Check every argument in a fixed order; the first fault wins.

    Raises:
        TypeError: an argument is of a wrong type.
        ValueError: its value is out of range or contradicts another.
    """
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
        raise ValueError(f"rounds must be >= 1, an int; got {rounds!r}")
    cooldown = _number("cooldown_s", cooldown_s)
    if cooldown < 0:
        raise ValueError(f"cooldown_s must be >= 0, got {cooldown_s!r}")
    budgets = {"warmup": warmup, "repeat": repeat, "cudagraph_rep": cudagraph_rep}
    given = {name: value for name, value in budgets.items() if value is not None}
    if distributed is None:
        name = _local_timer(given, timer)
    else:
        name = _distributed_timer(distributed, timer, {**budgets, "calls": calls})
    chosen_order = _choice("order", order, ORDERS)
    chosen_l2 = _choice("l2", l2, POLICIES)
    chosen_regime = None if regime is None else _choice("regime", regime, REGIMES)
    _require_calls(calls)
    _refuse_contradictions(name, chosen_order, chosen_l2, chosen_regime, distributed)
    checked_funcs, checked_references = _implementations(funcs, references)
    checked_prepare = _callables("prepare", prepare)
    unknown = [key for key in checked_prepare if key not in {**checked_funcs, **checked_references}]
    if unknown:
        raise ValueError(f"prepare names unknown implementations: {', '.join(map(repr, unknown))}")
    return Request(
        funcs=checked_funcs,
        references=checked_references,
        prepare=checked_prepare,
        timer=name,
        budget=_budget(name, given),
        warmup_given=warmup is not None,
        calls=cast("int | str | None", calls),
        cooldown_s=cooldown,
        rounds=rounds,
        order=cast("Order", chosen_order),
        l2=cast("L2Policy", chosen_l2),
        regime=cast("Regime | None", chosen_regime),
        device=device,
        distributed=cast("DistributedBenchContext | None", distributed),
        ignored=_ignored(name, given, calls),
    )


def _number(name: str, value: object) -> float:
    """A finite number.

    Raises:
        TypeError: it is none.
        ValueError: it is NaN or infinite.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__} {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return float(value)


def _local_timer(given: Mapping[str, object], timer: object) -> TimerName:
    """Check the budgets that were given, and resolve the timer of one process."""
    for name in ("repeat", "warmup", "cudagraph_rep"):
        if name not in given:
            continue
        value = _number(name, given[name])
        if name == "warmup" and value < 0:
            raise ValueError(f"warmup must be >= 0 ms, got {value:g}")
        if name != "warmup" and value <= 0:
            raise ValueError(f"{name} must be > 0 ms, got {value:g}")
    if timer is None:
        return LOCAL_TIMER
    if timer not in TIMERS:
        raise ValueError(f"timer must be one of {', '.join(TIMERS)} or None; got {timer!r}")
    return timer


def _distributed_timer(
    distributed: object, timer: object, fixed: Mapping[str, object]
) -> TimerName:
    """Check the context, and that nothing is asked for that its protocol fixes."""
    if not isinstance(distributed, DistributedBenchContext):
        raise TypeError(
            f"distributed must be a DistributedBenchContext, got {type(distributed).__name__}"
        )
    distributed.require_valid()
    if timer is not None and timer != DISTRIBUTED_TIMER:
        raise ValueError(
            f"a distributed benchmark supports only timer={DISTRIBUTED_TIMER!r}, got {timer!r}"
        )
    rejected = [name for name in FIXED_WHEN_DISTRIBUTED if fixed[name] is not None]
    if rejected:
        raise ValueError(
            "distributed timing has fixed iteration counts and rejects overrides: "
            + ", ".join(rejected)
        )
    return DISTRIBUTED_TIMER


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return str(value)


def _require_calls(calls: object) -> None:
    if calls is None or (isinstance(calls, str) and calls == "auto"):
        return
    if isinstance(calls, bool) or not isinstance(calls, int | str):
        raise TypeError(f"calls must be an int, 'auto' or None; got {type(calls).__name__}")
    if isinstance(calls, str) or calls < 1:
        raise ValueError(f"calls must be an int >= 1, 'auto' or None; got {calls!r}")


def _refuse_contradictions(
    timer: str, order: str, l2: str, regime: str | None, distributed: object
) -> None:
    """Options that are fine alone and cannot be had together."""
    if regime == "sustained" and order == "interleaved":
        raise ValueError(
            "regime='sustained' is measured solo: an interleaved neighbour would set the power "
            "budget; use order='blocked'"
        )
    if timer == "wall" and l2 == "cold-clean":
        raise ValueError("timer 'wall' flushes no cache: l2='cold-clean' cannot be had on a CPU")
    if distributed is None:
        return
    other = {"order": (order, "blocked"), "l2": (l2, "cold-dirty"), "regime": (regime, None)}
    wrong = [name for name, (value, fixed) in other.items() if value != fixed]
    if wrong:
        raise ValueError(
            f"distributed timing has one fixed protocol and rejects {', '.join(wrong)}"
        )


def _implementations(
    funcs: object, references: object
) -> tuple[Mapping[str, Closure], Mapping[str, Closure]]:
    if not isinstance(funcs, Mapping) or not funcs:
        raise TypeError("funcs must be a non-empty mapping of name to no-argument callable")
    checked = _callables("funcs", funcs)
    builders = _callables("references", references)
    both = [name for name in builders if name in checked]
    if both:
        raise ValueError(
            f"in both funcs and references: {', '.join(map(repr, both))}; a reference must not "
            "replace a kernel"
        )
    return checked, builders


def _callables(argument: str, mapping: object) -> Mapping[str, Closure]:
    """The mapping with its types checked; empty for None."""
    if mapping is None:
        return {}
    if not isinstance(mapping, Mapping):
        raise TypeError(f"{argument} must be a mapping, got {type(mapping).__name__}")
    for name, value in mapping.items():
        if not isinstance(name, str):
            raise TypeError(f"{argument}: a name must be a str, got {name!r}")
        if not callable(value):
            raise TypeError(f"{argument}[{name!r}] must be callable, got {type(value).__name__}")
    return dict(mapping)


def _budget(timer: TimerName, given: Mapping[str, Any]) -> Budget:
    default = DEFAULTS[timer]
    if default.warmup_ms is None:
        return Budget(warmup_ms=None, repeat_ms=given.get("cudagraph_rep", default.repeat_ms))
    return Budget(
        warmup_ms=given.get("warmup", default.warmup_ms),
        repeat_ms=given.get("repeat", default.repeat_ms),
    )


def _ignored(timer: TimerName, given: Mapping[str, object], calls: object) -> tuple[str, ...]:
    """Options that were given and have no effect: on this timer, or because `calls` says how many."""
    replaced = ("repeat", "cudagraph_rep") if calls is not None else ()
    return tuple(name for name in given if name in IGNORED[timer] or name in replaced)
