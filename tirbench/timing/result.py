"""The dictionary that `bench()` returns."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from tirbench.timing import distributed, schedule
from tirbench.timing.samples import Samples

if TYPE_CHECKING:
    from tirbench.timing.distributed import DistributedRun
    from tirbench.timing.local import LocalRun
    from tirbench.timing.references import Failures
    from tirbench.timing.request import Request


def local_result(run: LocalRun, *, device: str, flush_bytes: int) -> dict[str, Any]:
    """Results of one process; a reference that failed has an error and no number.

    `impls` is the mean over rounds of the mean of each round, as the public API says.
    """
    measured = _in_order(run)
    return {
        "impls": {name: fmean(samples.means_us()) for name, samples in measured.items()},
        "round_samples": {name: samples.means_us() for name, samples in measured.items()},
        **_failures(run.failures),
        "timer": run.request.timer,
        "benchmark_protocol": _local_protocol(run, measured, device, flush_bytes),
        "samples": {name: samples.rounds_us for name, samples in measured.items()},
        "activity": {
            name: activity
            for name, samples in measured.items()
            if (activity := samples.activity()) is not None
        },
    }


def distributed_result(run: DistributedRun, *, device: str) -> dict[str, Any]:
    """Results of one rank: slowest-rank times, the same on every rank, and this rank's activities."""
    found = run.samples
    local = {name: Samples() for name in found}
    for name, samples in found.items():
        local[name].activities = [
            record.activity for record in samples.records if record.activity is not None
        ]
    return {
        "impls": {name: samples.mean_us() for name, samples in found.items()},
        "round_samples": {name: samples.medians_us() for name, samples in found.items()},
        **_failures(run.failures),
        "timer": run.request.timer,
        "benchmark_protocol": {**distributed.protocol(run.request, run), "device": device},
        "samples": {name: samples.slowest_us for name, samples in found.items()},
        "rank_samples": {name: samples.ranks_us for name, samples in found.items()},
        "rank_skew": {name: samples.skew_us() for name, samples in found.items()},
        "activity": {name: samples.activity() for name, samples in local.items()},
    }


def _failures(failures: Failures) -> dict[str, Any]:
    return {
        "errors": dict(failures.errors),
        "error_types": dict(failures.error_types),
        "tracebacks": dict(failures.tracebacks),
        "skipped": dict(failures.skipped),
    }


def _in_order(run: LocalRun) -> dict[str, Samples]:
    """Samples of what did not fail, ours first, then references as they were given."""
    names = [*run.request.funcs, *run.request.references]
    return {
        name: run.samples[name]
        for name in names
        if name in run.samples and name not in run.failures.errors
    }


def _local_protocol(
    run: LocalRun, measured: dict[str, Samples], device: str, flush_bytes: int
) -> dict[str, Any]:
    request = run.request
    counts = {name: run.counts[name] for name in measured}
    return {
        **_budgets(request),
        "calls": request.calls,
        "ignored": list(request.ignored),
        "cooldown_s": request.cooldown_s,
        "rounds": request.rounds,
        "sample_aggregate": "mean",
        "round_aggregate": "mean",
        "order": list(measured),
        "schedule": request.order,
        "regime": request.regime,
        "burst": {"work_us": schedule.BURST_WORK_US, "rest_s": schedule.BURST_REST_S}
        if request.regime == "burst"
        else None,
        # There is no flush on a CPU: caches are as the previous call left them.
        "l2": "warm" if request.timer == "wall" else request.l2,
        "flush_bytes": flush_bytes,
        "prepared": [name for name in measured if name in request.prepare],
        "device": device,
        "torch": torch.__version__,
        **run.timer.facts(),
        "warmup_counts": {
            name: [count.warmup for count in found] for name, found in counts.items()
        },
        "repeat_counts": {
            name: [count.repeat for count in found] for name, found in counts.items()
        },
        "sample_counts": {
            name: [len(samples) for samples in found.rounds_us] for name, found in measured.items()
        },
        "zero_estimates": [
            name for name, found in counts.items() if any(count.zero_estimate for count in found)
        ],
        "estimates_us": {
            name: [pilot.launch_us for pilot in run.pilots[name]] for name in measured
        },
        "rejected_samples": {name: found.rejected for name, found in measured.items()},
        "replays_per_sample": {name: found.replays for name, found in measured.items()},
        "context_broken_by": run.broken_by,
        "groups": run.groups,
        "sub_blocks": run.sub_blocks,
        "sequence": run.sequence,
    }


def _budgets(request: Request) -> dict[str, object]:
    """Effective budgets in ms; None for one that `calls` has replaced."""
    repeat_ms = request.budget.repeat_ms if request.calls is None else None
    if request.timer == "cudagraph_proton":
        return {"cudagraph_rep": repeat_ms}
    warmup_ms = request.budget.warmup_ms
    if request.calls is not None and not request.warmup_given:
        warmup_ms = 0.0
    if request.regime == "sustained":
        warmup_ms = max(warmup_ms or 0.0, schedule.SUSTAINED_WARMUP_MS)
    return {"warmup": warmup_ms, "repeat": repeat_ms}
