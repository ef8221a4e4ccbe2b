"""What one worker of `benchmarks/variance.py` measures: the same case again and again, one thing changed."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tirbench import codec
from tirbench.averages import midmean
from tirbench.harness import timed
from tirbench.harness.case import Shared
from tirbench.harness.device import Device
from tirbench.harness.program import Program, open_program
from tirbench.model import CaseJob, Failed, Plan, Verification, Verified
from tirbench.tensors import Arena
from tirbench.timing import bench

CALLS: Final = 160
"""Of a midmean, as in MEASURING, section 1."""

LONG_CALLS: Final = 16
"""Of a launch of a millisecond and more."""

ROUNDS: Final = 2
"""Midmeans of one placement in one process: what differs between them is the residual."""

LONG_US: Final = 300.0

JITTER_US: Final = 0.004
"""Ticks are told in whole nanoseconds, so that steps between them are rounded."""

SUSTAINED_US: Final = 600_000.0
"""Continuous work after which a device runs as it does for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a worker is asked for: `task` is `places`, `l2`, `company` or `regimes`."""

    harness: str
    task: str
    placements: int


class Variance:
    """A program like a harness whose rows are measured under varied conditions."""

    def __init__(self, program: Program, spec: Spec) -> None:
        """Nothing is measured yet."""
        self.program = program
        self.spec = spec

    def run(self, job: CaseJob, plan: Plan, report: Callable[[dict[str, Any]], None]) -> None:
        """Measure every row and answer it."""
        device = Device(plan.device)
        shared = Shared(Arena(device.torch), chosen=dict(job.configurations))
        task = {
            "places": self._places,
            "l2": self._l2,
            "company": self._company,
            "regimes": self._regimes,
        }[self.spec.task]
        for row in job.rows:
            stage = {"implementation": row.implementation, "stage": "time"}
            report({"event": "stage", "case": job.case, **stage})
            try:
                found = task(job.case, row.implementation, device, shared, plan)
            except Exception as error:  # noqa: BLE001 - kernels raise what they like
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                answer: Any = Failed(row=row, stage="time", reason=reason)
            else:
                report(
                    {
                        "event": "variance",
                        "case": job.case,
                        "implementation": row.implementation,
                        "task": self.spec.task,
                        **found,
                    }
                )
                unchecked = Verification(method="unchecked", worst=None)
                answer = Verified(row=row, verification=unchecked, untimed="a study, not a row")
            report({"event": "outcome", "outcome": codec.dump(answer)})
        report({"event": "case_done", "case": job.case})

    def _places(
        self, case: str, name: str, device: Device, shared: Shared, plan: Plan
    ) -> dict[str, Any]:
        """Midmeans of every placement, `ROUNDS` of each, and the steps between distinct call times."""
        midmeans: list[list[float]] = []
        calls: list[float] = []
        wanted = CALLS
        for placement in range(self.spec.placements):
            opened = self.program.open(case, device, placement, shared)
            with opened.contexts:
                launch = opened.build(opened.implementations[name])
                if placement == 0:
                    first = self._bench(opened, launch, plan, rounds=1, calls=4)
                    wanted = CALLS if midmean(first["samples"]["it"][0]) < LONG_US else LONG_CALLS
                result = self._bench(opened, launch, plan, calls=wanted)
            rounds = result["samples"]["it"]
            midmeans.append([midmean(round_) for round_ in rounds])
            calls += [call for round_ in rounds for call in round_]
        distinct = sorted(set(calls))
        steps = [high - low for low, high in pairwise(distinct)]
        wide = [round(step, 3) for step in steps if step > JITTER_US]
        common = statistics.mode(wide) if wide else None
        return {"midmeans_us": midmeans, "tick_us": common}

    def _l2(
        self, case: str, name: str, device: Device, shared: Shared, plan: Plan
    ) -> dict[str, Any]:
        """Midmeans of each state of the L2 cache on placement 0."""
        opened = self.program.open(case, device, 0, shared)
        found: dict[str, list[float]] = {}
        with opened.contexts:
            launch = opened.build(opened.implementations[name])
            policies = ("cold-dirty", "cold-clean", "warm") if plan.device == "cuda" else ("warm",)
            for _ in range(ROUNDS):
                for policy in policies:
                    result = self._bench(opened, launch, plan, l2=policy, rounds=1)
                    found.setdefault(policy, []).append(midmean(result["samples"]["it"][0]))
        return {"midmeans_us": found}

    def _company(
        self, case: str, name: str, device: Device, shared: Shared, plan: Plan
    ) -> dict[str, Any]:
        """Midmeans on placement 0 by what else runs: nothing, its case, or a reader of the same tensors.

        That reader asks that what it reads be evicted last, as inductor does for what it reads twice: a
        flush that left such lines where they are would make a kernel quicker in company.
        """
        opened = self.program.open(case, device, 0, shared)
        found: dict[str, list[float]] = {}
        with opened.contexts:
            launches: dict[str, Any] = {}
            for one, declared in opened.implementations.items():
                with suppress(Exception):  # a library that is not here, or no support for this case
                    launches[one] = opened.build(declared)
            others = {one: launch for one, launch in launches.items() if launch is not None}
            launch = others.pop(name)
            for _ in range(ROUNDS):
                for what, options in (
                    ("alone", {}),
                    ("among its case", {"references": _builders(others)}),
                    *((what, {"prepare": {"it": run}}) for what, run in _readers(opened, plan)),
                ):
                    result = self._bench(opened, launch, plan, rounds=1, **options)
                    found.setdefault(what, []).append(midmean(result["samples"]["it"][0]))
        return {"midmeans_us": found}

    def _regimes(
        self, case: str, name: str, device: Device, shared: Shared, plan: Plan
    ) -> dict[str, Any]:
        """Call after call: rested ones in bursts, then so many without a rest that the device is hot."""
        opened = self.program.open(case, device, 0, shared)
        with opened.contexts:
            launch = opened.build(opened.implementations[name])
            burst = self._bench(opened, launch, plan, rounds=1)
            call_us = midmean(burst["samples"]["it"][0])
            time.sleep(1.0)
            many = max(20, min(2000, math.ceil(SUSTAINED_US / call_us)))
            hot = self._bench(opened, launch, plan, rounds=1, regime=None, calls=many)
        return {
            "burst_us": burst["samples"]["it"][0],
            "continuous_us": hot["samples"]["it"][0],
        }

    def _bench(self, opened: Any, launch: Any, plan: Plan, **options: Any) -> Mapping[str, Any]:
        timing = self.program.timing
        choice = timed.choose(plan, timing)
        memory = opened.memory
        given: dict[str, Any] = {
            "timer": choice.name,
            "prepare": {"it": memory.restore} if memory.restored else None,
            "order": "interleaved",
            "calls": CALLS,
            "regime": "burst",
            "l2": timing.l2 if plan.device == "cuda" else "warm",
            "cooldown_s": 0.0,
            "rounds": ROUNDS,
        }
        result: Mapping[str, Any] = bench({"it": launch}, **{**given, **options})
        return result


def _readers(opened: Any, plan: Plan) -> Iterator[tuple[str, Callable[[], object]]]:
    """What reads all tensors of a case before the flush, and asks for them to be kept."""
    if plan.device == "cpu":
        return
    import torch

    from benchmarks import kept_kernels

    memory = opened.memory
    storages = {memory[name].untyped_storage().data_ptr(): memory[name] for name in memory.names}
    words = [
        torch.empty(0, dtype=torch.int32, device=one.device).set_(one.untyped_storage())
        for one in storages.values()
        if one.untyped_storage().nbytes() % 4 == 0
    ]
    out = torch.empty(
        1 + max(one.numel() for one in words) // kept_kernels.BLOCK,
        dtype=torch.int32,
        device=words[0].device,
    )

    def keep() -> None:
        memory.restore()
        for one in words:
            kept_kernels.keep(one, out)

    yield "kept by a reader", keep


def _builders(launches: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """As `bench` takes references: functions that build a launch."""

    def built(launch: Any) -> Callable[[], Any]:
        return lambda: launch

    return {name: built(launch) for name, launch in launches.items()}


def open_variance(path: str | Path) -> Variance:
    """Open what `benchmarks/variance.py` asks for."""
    spec = Spec(**json.loads(Path(path).read_text(encoding="utf-8")))
    program = open_program(spec.harness)
    if not isinstance(program, Program):
        raise TypeError(f"{spec.harness} is no harness")
    return Variance(program, spec)
