"""Many comparisons of equal code, and of planted slowdowns, in one worker: what `selftest` runs.

A worker holds several loads of the files of one tree and, where a slowdown can be planted, four loads of
files whose kernels can be delayed: two are launched without a delay, two with it. For one placement seed all
are opened on one arena and built; then sequence after sequence of sub-blocks in balanced order is measured by
the protocol of `ab` (`pairs.bench_arms`). Any two arms of a sequence are a pair as `ab` would measure it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench.averages import midmean
from tirbench.harness import timed
from tirbench.harness.case import Case
from tirbench.harness.costs import costs, flush_us, launches_of, most_arms
from tirbench.harness.pairs import bench_arms, blocks_together, digests, in_turn
from tirbench.harness.planting import (
    DELAY,
    STEP_NS,
    Effect,
    effect,
    followed_by_waiting,
    strengthen,
)
from tirbench.harness.sides import Arm, Report, Side, SidesOfCase, SideSpec, open_sides, read_spec
from tirbench.launch import triton
from tirbench.model import CaseJob, Failed, Plan, Timed

if TYPE_CHECKING:
    import torch

    from tirbench.harness.case import Launch, Shared
    from tirbench.harness.device import Device
    from tirbench.harness.verify import Expected
    from tirbench.tensors import Computed, Tensor, Tensors

QUIET: Final = "quiet"
"""The side whose kernels can be delayed, and are not; there is another one like it."""

PLANTED: Final = "planted"
"""The side whose kernels are slower; there is another one like it, too."""

SLOWER: Final = frozenset({PLANTED, "planted2"})

DELAYED: Final = frozenset({QUIET, "quiet2"}) | SLOWER

TARGET: Final = math.log(1.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is asked of one row.

    Attributes:
        sides: all that its sequences name.
        sequences: number and sides of each; a number is that of a virtual run.
        strength: of the planted side.
        calibrate: look for that strength instead.
    """

    sides: tuple[str, ...]
    sequences: tuple[tuple[int, tuple[str, ...]], ...] = ()
    strength: int = 0
    calibrate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec(SideSpec):
    """What one worker measures: a `Trial` for each row, by case and implementation."""

    rows: Mapping[str, Mapping[str, Trial]]

    @classmethod
    def read(cls, path: str | Path) -> TrialSpec:
        """Read the file that `selftest` writes."""
        data = read_spec(path)
        data["twins"] = tuple(data["twins"])
        data["rows"] = {
            case: {name: _trial(**row) for name, row in rows.items()}
            for case, rows in data["rows"].items()
        }
        return cls(**data)


def _trial(sides: Sequence[str], sequences: Sequence[Any], **rest: Any) -> Trial:
    return Trial(
        sides=tuple(sides),
        sequences=tuple((number, tuple(names)) for number, names in sequences),
        **rest,
    )


class TrialProgram:
    """The loads of one workload."""

    def __init__(self, spec: TrialSpec) -> None:
        """Isolate the trees from each other, then import the harness of each."""
        self.spec = spec
        self.programs = open_sides(spec)

    def run(self, job: CaseJob, plan: Plan, report: Report) -> None:
        """Measure the rows of one case; every one of them is answered exactly once."""
        TrialCase(self.programs, self.spec, job, plan, report).run()


def open_trials(path: str | Path) -> TrialProgram:
    """Open what `selftest` asks one worker to measure.

    Raises:
        UsageError: the file is of another version, or a side is no harness.
        Exception: what a side raises when it is imported.
    """
    return TrialProgram(TrialSpec.read(path))


class CaseOverTensors(Case):
    """A case that declares tensors which another case has laid out and filled already."""

    def __init__(self, *, memory: Tensors, **rest: Any) -> None:
        """Begin a case over these tensors; `rest` as `Case` takes it."""
        super().__init__(**rest)
        self._given = memory

    def tensors(
        self, *specs: Tensor, computed: tuple[Computed, ...] = ()
    ) -> tuple[torch.Tensor, ...]:
        """The other case's tensors of these names."""
        del computed
        self._memory = self._given
        return tuple(self._given[spec.name] for spec in specs if not spec.temporary)


class TrialCase(SidesOfCase):
    """Runs the sequences of one case."""

    def __init__(
        self,
        programs: Mapping[str, Any],
        spec: TrialSpec,
        job: CaseJob,
        plan: Plan,
        report: Report,
    ) -> None:
        """Prepare to run; nothing is allocated yet."""
        self.rows = spec.rows[job.case]
        arms: dict[str, tuple[Arm, ...]] = {
            name: tuple((side, name) for side in row.sides) for name, row in self.rows.items()
        }
        super().__init__(programs, spec, arms, job, plan, report)
        self._delay = DELAY
        self._delays = False
        self._cold_s = 0.0
        self._took: list[tuple[int, float]] = []
        self._unplanted: dict[str, str] = {}
        self._build_s: dict[Arm, float] = {}

    # --- Opening: only base has tensors and is verified; the others load the same files

    def in_order(self, names: list[str]) -> list[str]:
        """Base first, whose tensors are everybody's."""
        return sorted(names, key=lambda name: name != "base")

    def open_case(self, side: str, device: Device, shared: Shared, base: Side | None) -> Case:
        """The case of a side; all but base work on base's tensors."""
        program, name = self.programs[side], self.job.case
        if base is None:
            return program.open(name, device, self.spec.placement, shared)
        case = CaseOverTensors(
            name=name,
            folder=program.folder,
            device=device,
            seed=program.seed,
            placement=self.spec.placement,
            shared=shared,
            memory=base.case.memory,
        )
        program.cases[name].function(case)
        return case

    def expected(self, side: str, case: Case, base: Side | None) -> Expected:
        """What is right; how long the oracle took is not held against later workers."""
        if base is not None:
            return base.expected
        begin = time.perf_counter()
        found = super().expected(side, case, base)
        self._cold_s += time.perf_counter() - begin
        return found

    def build_one(self, side: Side, one: str) -> None:
        """Build an arm and launch it once; base is verified, and so is the planted side when it is new."""
        begin = time.perf_counter()
        if side.name == "base" or (side.name == PLANTED and self.rows[one].calibrate):
            super().build_one(side, one)
            self._cold_s += time.perf_counter() - begin if self.rows[one].calibrate else 0.0
            return
        launch = side.run.build(side.case, side.case.implementations[one])
        if launch is None:
            return
        side.case.reset()
        declared = side.case.implementations[one]
        try:
            with triton.own_compiler(compiled_by_torch=declared.compiled_by_torch):
                launch()
                side.case.device.synchronize()
        except Exception as error:  # noqa: BLE001 - kernels raise what they like
            side.run.fail(one, "build", error)
            return
        side.launches[one] = launch
        self._build_s[side.name, one] = time.perf_counter() - begin

    def answer_failed(self) -> None:
        """Answer rows of arms that failed; new planted sides that fail only leave their row unplanted."""
        for side, one in list(self.failed):
            if side in DELAYED and self.rows[one].calibrate:
                outcome = self.failed.pop((side, one))
                self._unplanted[one] = str(getattr(outcome, "reason", "") or "was not run")
        super().answer_failed()

    # --- Timing

    def time(self, sides: Mapping[str, Side]) -> None:
        """Measure every row, one after the other."""
        self._plant(sides)
        for name in list(self.pending):
            try:
                last = self._row(sides, name)
            except Exception as error:  # noqa: BLE001 - kernels raise what they like
                message = f"{type(error).__name__}: {error}".splitlines()[0]
                self.answer(Failed(row=self.pending[name], stage="time", reason=message))
                continue
            self.verify_again(sides, [arm for arm in self.arms[name] if arm[0] == "base"])
            if name in self.pending:
                self._answer_timed(sides, name, last)

    def _plant(self, sides: Mapping[str, Side]) -> None:
        """Have the planted sides' kernels ask for their delay."""
        if PLANTED not in sides:
            return
        if self.plan.device == "cpu":
            self._delays = True
            return
        self._delay.multiprocessors = sides[PLANTED].case.device.sm_count
        found = [
            self._delay.into(Path(self.spec.trees[side]).resolve())
            for side in sides
            if side in DELAYED
        ]
        self._delays = all(found)

    def _row(self, sides: Mapping[str, Side], name: str) -> Mapping[str, Any]:
        row = self.rows[name]
        if row.calibrate:
            return self._calibrate(sides, name)
        last: Mapping[str, Any] = {}
        for number, of in row.sequences:
            launches = {side: self._launch(sides, side, name, row.strength) for side in of}
            last, said = self._sequence(sides, name, launches, {side: side for side in of})
            self.report({"event": "trial", **said, "sequence": number})
        return last

    def _launch(self, sides: Mapping[str, Side], side: str, name: str, strength: int) -> Launch:
        """The launch of a side; of the planted sides with this strength, or without a delay."""
        launch = sides[side].launches[name]
        if side not in DELAYED:
            return launch
        strength = strength if side in SLOWER else 0
        if self.plan.device == "cpu":
            return followed_by_waiting(launch, strength)
        return self._delay.launching(launch, strength)

    def _sequence(
        self,
        sides: Mapping[str, Side],
        name: str,
        launches: Mapping[str, Launch],
        side_of: Mapping[str, str],
    ) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """One call of `bench()`, and what of it is told: logarithms of the midmeans of sub-blocks."""
        self.stage("time", name)
        timing = self.programs["base"].timing
        begin = time.perf_counter()
        arms = list(launches)
        turns = {arm: launches[arm] for arm in in_turn(arms, self.spec.placement)}
        of = {arm: sides[side_of[arm]] for arm in arms}
        result = bench_arms(self.plan, timing, turns, of)
        seconds = time.perf_counter() - begin
        self._took.append((len(launches), seconds))
        blocks = dict(zip(arms, blocks_together(result, arms), strict=True))
        said = {
            "case": self.job.case,
            "implementation": name,
            "placement": self.spec.placement,
            "logs": {
                arm: [round(math.log(midmean(block)), 7) for block in found]
                for arm, found in blocks.items()
            },
            "midmean_us": {
                arm: midmean([call for round_ in result["samples"][arm] for call in round_])
                for arm in arms
            },
            "launches": {arm: launches_of(result, arm) for arm in arms},
            "seconds": round(seconds, 4),
            "timer": result["timer"],
        }
        return result, said

    def _calibrate(self, sides: Mapping[str, Side], name: str) -> Mapping[str, Any]:
        """Look at the row once, and for the strength of the delay that makes it slower by 1 %."""
        self._took.clear()
        base = {"base": self._launch(sides, "base", name, 0)}
        result, first = self._sequence(sides, name, base, {"base": "base"})
        said: dict[str, Any] = {
            "event": "calibrated",
            **{key: first[key] for key in ("case", "implementation", "midmean_us", "launches")},
            "flush_us": flush_us(self.plan.device, result["benchmark_protocol"]["l2"]),
            "timer": first["timer"],
            "outputs": digests(sides["base"].expected, name),
            "configuration": None
            if (facts := sides["base"].run.facts.get(name)) is None
            else facts.configuration,
            "build_s": max(
                (s for (_, one), s in self._build_s.items() if one == name), default=0.0
            ),
            "cold_s": self._cold_s,
        }
        self._cold_s = 0.0
        launch_us = first["midmean_us"]["base"]
        said |= self._strength(sides, name, launch_us, launch_us + said["flush_us"])
        if len(self._took) == 1:
            pair = {side: self._launch(sides, side, name, 0) for side in ("base", "twin1")}
            self._sequence(sides, name, pair, {side: side for side in pair})
        said["sequence_s"], said["arm_s"] = costs(self._took)
        said["spent_s"] = sum(seconds for _, seconds in self._took)
        self.report(said)
        return result

    def _strength(
        self, sides: Mapping[str, Side], name: str, launch_us: float, cycle_us: float
    ) -> dict[str, Any]:
        """The strength that makes it slower by 1 %, or why there is none; what was seen on the way."""
        none: dict[str, Any] = {"strength": None, "unplanted": self._unplanted.get(name, "")}
        if PLANTED not in self.rows[name].sides or none["unplanted"]:
            return none
        if not self._delays or any(name not in sides[side].launches for side in (QUIET, PLANTED)):
            return {**none, "unplanted": "no kernel of it asks for its delay"}
        offsets: list[float] = []

        def measure(strengths: Sequence[int]) -> list[Effect]:
            arms = {str(steps): self._launch(sides, PLANTED, name, steps) for steps in strengths}
            still = {side: self._launch(sides, side, name, 0) for side in ("base", QUIET)}
            side_of = {**{side: side for side in still}, **dict.fromkeys(arms, PLANTED)}
            together = [list(arms)]
            if len(still) + len(arms) > most_arms(launch_us, cycle_us):
                together, still = [[arm] for arm in arms], {QUIET: still[QUIET]}
            found = []
            for some in together:
                launches = {**still, **{arm: arms[arm] for arm in some}}
                _, sequence = self._sequence(sides, name, launches, side_of)
                logs = sequence["logs"]
                found += [effect(logs[QUIET], logs[arm]) for arm in some]
                if "base" in logs:
                    offsets.append(effect(logs["base"], logs[QUIET]).log_ratio)
            return found

        unit_ns = 1.0 if self.plan.device == "cpu" else STEP_NS
        chosen = strengthen(measure, TARGET * 1e3 * launch_us / unit_ns, TARGET)
        return {
            "strength": chosen.steps,
            "expected": chosen.expected,
            "unplanted": chosen.reason,
            "offset": statistics.fmean(offsets) if offsets else None,
            "seen": {
                str(steps): [one.log_ratio, math.sqrt(one.variance)]
                for steps, one in chosen.seen.items()
            },
        }

    def _answer_timed(
        self, sides: Mapping[str, Side], name: str, result: Mapping[str, Any]
    ) -> None:
        run = sides["base"].run
        arm = next(iter(result["samples"]))  # base, unless two others were asked for again
        samples = timed.Samples([result["samples"][arm]], [result["impls"][arm]])
        estimate = timed.estimated(samples, result["timer"])
        self.answer(
            Timed(
                row=self.pending[name],
                verification=run.verified[name],
                estimate=estimate,
                code=run.facts.get(name),
            )
        )
