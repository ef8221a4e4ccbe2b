"""Timing of one case: every placement, every round, and the estimate over them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tirbench.model import Estimate, Plan, Timed, TimerName, WorkDone
from tirbench.timing import DistributedBenchContext, bench, midmean

if TYPE_CHECKING:
    from tirbench.harness.case import Case, Launch, Shared
    from tirbench.harness.declarations import Timing
    from tirbench.harness.driver import CaseRun
    from tirbench.harness.verify import Expected

# Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond, the normal one.
T_975: Final = (
    math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """The timer of a case on this device, or the sentence that says why it is not timed."""

    name: TimerName
    refused: str | None = None


def choose(plan: Plan, timing: Timing, world_size: int = 1) -> Choice:
    """The timer of a case; nothing else decides it.

    The command line comes before the workload, the workload before the default of the device and of the
    number of ranks.

    A timer that does not fit the device is refused; no other takes its place.
    """
    if world_size > 1:
        return Choice("kineto", _refused_over_ranks(plan, timing))
    default: TimerName = "proton" if plan.device == "cuda" else "wall"
    name: Any = plan.timer or timing.name or default
    if plan.device == "cpu" and name != "wall":
        return Choice(name, f"timer {name} needs a CUDA device; --timer wall times CPU work")
    if plan.device == "cuda" and name == "wall":
        return Choice(
            name,
            "timer wall times CPU work; on a CUDA device use proton, event, cudagraph_proton or kineto",
        )
    return Choice(name)


def _refused_over_ranks(plan: Plan, timing: Timing) -> str | None:
    """Why a case of several ranks is not timed as asked: its protocol is one and fixed."""
    if plan.device == "cpu":
        return "several ranks are timed on CUDA devices only"
    asked = plan.timer or timing.name
    fixed = {
        "timer": asked if asked not in (None, "kineto") else None,
        "l2": timing.l2 if timing.l2 != "cold-dirty" else None,
        "regime": timing.regime if timing.regime != "burst" else None,
        "warmup": timing.warmup,
        "repeat": timing.repeat,
        "cudagraph_rep": timing.cudagraph_rep,
    }
    given = [f"{name} {value}" for name, value in fixed.items() if value is not None]
    if not given:
        return None
    return f"timing over ranks has one protocol, of kineto with fixed counts: without {', '.join(given)}"


@dataclass(slots=True)
class Samples:
    """What was measured of one implementation: per placement, per round, µs per call."""

    placements: list[list[list[float]]]
    means: list[float]
    activity: Mapping[str, Any] | None = None


def time_rows(
    run: CaseRun,
    shared: Shared,
    expected: Expected,
    names: tuple[str, ...],
    choice: Choice,
    work: WorkDone,
) -> None:
    """Time these implementations on every placement and answer their rows.

    They are timed together, in balanced order; where that fails, each alone, so that only the one at
    fault has no time.
    """
    measured: dict[str, Samples] = {name: Samples([], []) for name in names}
    for placement in range(run.plan.placements):
        names = tuple(name for name in names if name in run.pending)
        if not names:
            return
        measure_placement(run, shared, expected, names, choice, placement, measured)
    for name in names:
        if name in run.pending:
            answer(run, name, measured[name], choice, work)


def measure_placement(
    run: CaseRun,
    shared: Shared,
    expected: Expected,
    names: tuple[str, ...],
    choice: Choice,
    placement: int,
    measured: dict[str, Samples],
) -> None:
    """One placement: build, time, verify once more."""
    run.stage("allocate")
    try:
        case = run.open(placement, shared)
    except Exception as error:  # noqa: BLE001 - tensors are drawn by functions of the workload
        run.fail_all("allocate", error)
        return
    with case.contexts:
        launches = {
            name: launch
            for name in names
            if (launch := run.build(case, case.implementations[name])) is not None
        }
        for group in _time_together(run, case, launches, choice, measured, placement):
            for name in group:
                if run.job.verify:
                    run.verify(
                        case, case.implementations[name], launches[name], expected, "reverify"
                    )


def _time_together(
    run: CaseRun,
    case: Case,
    launches: Mapping[str, Launch],
    choice: Choice,
    measured: dict[str, Samples],
    placement: int,
) -> list[tuple[str, ...]]:
    """Time all, or each alone where timing them together failed; what succeeded is returned."""
    together = tuple(launches)
    if not together:
        return []
    run.stage("time", together[0] if len(together) == 1 else None)
    try:
        result = run.ranks.agree(lambda: call_bench(run, case, launches, choice))
        keep(run, result, measured, placement)
    except Exception as error:  # noqa: BLE001 - kernels raise what they like
        if len(together) == 1:
            run.fail(together[0], "time", error)
            return []
        run.report({"event": "note", "case": run.job.case, "text": f"timed one by one: {error}"})
        return [
            group
            for name in together
            for group in _time_together(
                run, case, {name: launches[name]}, choice, measured, placement
            )
        ]
    return [together]


def call_bench(
    run: CaseRun, case: Case, launches: Mapping[str, Launch], choice: Choice
) -> dict[str, Any]:
    """`bench()` with the protocol of MEASURING, section 2, and what the workload overrides of it."""
    if run.ranks.world_size > 1:
        return _bench_over_ranks(run, case, launches, choice)
    timing = run.program.timing
    budgets = {
        name: value
        for name in ("warmup", "repeat", "cudagraph_rep")
        if (value := getattr(timing, name)) is not None
    }
    reset = case.before_launch
    result: dict[str, Any] = bench(
        dict(launches),
        timer=choice.name,
        prepare=None if reset is None else dict.fromkeys(launches, reset),
        # A sustained regime is one implementation's own: what runs beside it would share its power budget.
        order="interleaved" if timing.regime == "burst" else "blocked",
        calls=None if budgets else "auto",
        regime=timing.regime,
        l2="warm" if run.plan.device == "cpu" else timing.l2,
        cooldown_s=timing.cooldown_s or 0.0,
        rounds=timing.rounds or run.plan.rounds,
        **budgets,
    )
    return result


def _bench_over_ranks(
    run: CaseRun, case: Case, launches: Mapping[str, Launch], choice: Choice
) -> dict[str, Any]:
    """`bench()` with its protocol over ranks, which nothing overrides; on every rank at once."""
    import torch

    reset = case.before_launch
    context = DistributedBenchContext(
        rank=run.ranks.rank,
        world_size=run.ranks.world_size,
        barrier=run.ranks.barrier,
        max_reduce=run.ranks.max_reduce,
        stream=torch.cuda.current_stream(),
    )
    result: dict[str, Any] = bench(
        dict(launches),
        timer=choice.name,
        prepare=None if reset is None else dict.fromkeys(launches, reset),
        cooldown_s=run.program.timing.cooldown_s or 0.0,
        rounds=run.program.timing.rounds or run.plan.rounds,
        distributed=context,
    )
    return result


def keep(
    run: CaseRun, result: Mapping[str, Any], measured: dict[str, Samples], placement: int
) -> None:
    """File the samples of one placement and hand them on."""
    for name, rounds in result["samples"].items():
        measured[name].placements.append(rounds)
        measured[name].means.append(result["impls"][name])
        measured[name].activity = result["activity"].get(name)
        run.report(
            {
                "event": "samples",
                "case": run.job.case,
                "implementation": name,
                "placement": placement,
                "rounds": rounds,
                "protocol": result["benchmark_protocol"],
            }
        )


def answer(run: CaseRun, name: str, samples: Samples, choice: Choice, work: WorkDone) -> None:
    """Answer a row with the estimate over its placements."""
    try:
        estimate = estimated(samples, choice.name)
    except ValueError as error:
        run.fail(name, "time", error)
        return
    run.answer(
        Timed(
            row=run.pending[name],
            verification=run.verified[name],
            estimate=estimate,
            work=work,
            code=run.facts.get(name),
            notes=tuple(run.notes[name]),
        )
    )


def estimated(samples: Samples, timer: TimerName) -> Estimate:
    """The time over all placements.

    `midmean_us` is the mean over placements of the mean over rounds of the interquartile mean of calls.
    Rounds repeat one placement, so their spread within placements (pooled) says how well the number
    comes back on the same seeds: placements are the same in every later run and add nothing to it. One round
    says nothing of that, and gets no interval.

    Raises:
        ValueError: a sample is not positive and finite.
    """
    calls = [call for rounds in samples.placements for round_ in rounds for call in round_]
    if not calls or not all(math.isfinite(call) and call > 0 for call in calls):
        raise ValueError(f"{len(calls)} samples, not all of them positive and finite")
    rounds_us = [[midmean(round_) for round_ in rounds] for rounds in samples.placements]
    placements = [statistics.fmean(rounds) for rounds in rounds_us]
    centre = statistics.fmean(placements)
    within, freedom = _within_variance(rounds_us)
    quantile = T_975[freedom] if freedom < len(T_975) else 1.96
    ordered = sorted(calls)
    activity = samples.activity or {}
    return Estimate(
        timer=timer,
        midmean_us=centre,
        half_width_us=centre * quantile * math.sqrt(within / len(placements)) if freedom else None,
        mean_us=statistics.fmean(samples.means),
        median_us=statistics.median(ordered),
        min_us=ordered[0],
        p10_us=ordered[len(ordered) // 10],
        p90_us=ordered[len(ordered) * 9 // 10],
        calls=len(calls),
        placements_us=tuple(placements),
        within_sd=math.sqrt(within),
        busy_us=activity.get("busy_us"),
        span_us=activity.get("span_us"),
        sum_us=activity.get("sum_us"),
        kernels=activity.get("kernels"),
    )


def _within_variance(rounds_us: list[list[float]]) -> tuple[float, int]:
    """Relative variance of one placement's midmean when measured again, and its degrees of freedom."""
    repeated = [rounds for rounds in rounds_us if len(rounds) > 1]
    if not repeated:
        return 0.0, 0
    total, freedom = 0.0, 0
    for rounds in repeated:
        centre = statistics.fmean(rounds)
        total += sum((value / centre - 1) ** 2 for value in rounds)
        freedom += len(rounds) - 1
    of_one_round = total / freedom
    return of_one_round / statistics.fmean(len(rounds) for rounds in repeated), freedom
