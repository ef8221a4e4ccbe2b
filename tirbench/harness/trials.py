"""Many comparisons of equal code, and of planted slowdowns, in one worker: what `selftest` runs.

A worker holds several loads of the files of one tree and, where it can be planted, the load of a tree whose
kernels are slower. For one placement seed all are opened on one arena and built; then sequence after sequence
of sub-blocks in balanced order is measured by the protocol of `ab` (`pairs.bench_arms`). Any two arms of a
sequence are a pair as `ab` would measure it.
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
from tirbench.harness.pairs import bench_arms, blocks_together, digests
from tirbench.harness.planting import STEP_NS, Delay, Search, effects, followed_by_waiting
from tirbench.harness.sides import Arm, Report, Side, SidesOfCase, SideSpec, open_sides, read_spec
from tirbench.launch import triton
from tirbench.model import CaseJob, Failed, Plan, Timed

if TYPE_CHECKING:
    import torch

    from tirbench.harness.case import Launch, Shared
    from tirbench.harness.device import Device
    from tirbench.harness.verify import Expected
    from tirbench.tensors import Computed, Tensor, Tensors

PLANTED: Final = "planted"
"""The side whose kernels are slower."""

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
        self, programs: Mapping[str, Any], spec: TrialSpec, job: CaseJob, plan: Plan, report: Report
    ) -> None:
        """Prepare to run; nothing is allocated yet."""
        self.rows = spec.rows[job.case]
        arms: dict[str, tuple[Arm, ...]] = {
            name: tuple((side, name) for side in row.sides) for name, row in self.rows.items()
        }
        super().__init__(programs, spec, arms, job, plan, report)
        self._delay = Delay()
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
        side.case.memory.restore()
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
        """Answer rows of arms that failed; a new planted side that fails only leaves its row unplanted."""
        for side, one in list(self.failed):
            if side == PLANTED and self.rows[one].calibrate:
                outcome = self.failed.pop((side, one))
                self._unplanted[one] = str(getattr(outcome, "reason", "") or "was not run")
        super().answer_failed()

    # --- Timing

    def time(self, sides: Mapping[str, Side]) -> None:
        """Measure every row, one after the other."""
        if PLANTED in sides and self.plan.device == "cuda":
            self._delays = self._delay.into(Path(self.spec.trees[PLANTED]).resolve()) > 0
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

    def _row(self, sides: Mapping[str, Side], name: str) -> Mapping[str, Any]:
        row = self.rows[name]
        if row.calibrate:
            return self._calibrate(sides, name)
        last: Mapping[str, Any] = {}
        for number, of in row.sequences:
            launches = {side: self._launch(sides, side, name, row.strength) for side in of}
            last, said = self._sequence(sides, name, launches, dict(zip(of, of, strict=True)))
            self.report({"event": "trial", **said, "sequence": number})
        return last

    def _launch(self, sides: Mapping[str, Side], side: str, name: str, strength: int) -> Launch:
        launch = sides[side].launches[name]
        if side != PLANTED:
            return launch
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
        of = {arm: sides[side_of[arm]] for arm in launches}
        result = bench_arms(self.plan, timing, launches, of)
        seconds = time.perf_counter() - begin
        self._took.append((len(launches), seconds))
        arms = list(launches)
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
            "launches": {arm: _launches(result, arm) for arm in arms},
            "seconds": round(seconds, 4),
            "timer": result["timer"],
        }
        return result, said

    def _calibrate(self, sides: Mapping[str, Side], name: str) -> Mapping[str, Any]:
        """Look at the row once, and for the strength of the delay that makes it slower by 1 %."""
        row = self.rows[name]
        self._took.clear()
        base = {"base": self._launch(sides, "base", name, 0)}
        result, first = self._sequence(sides, name, base, {"base": "base"})
        pair = {side: self._launch(sides, side, name, 0) for side in row.sides if side != PLANTED}
        self._sequence(sides, name, pair, {side: side for side in pair})
        said: dict[str, Any] = {
            "event": "calibrated",
            **{key: first[key] for key in ("case", "implementation", "midmean_us", "launches")},
            "flush_us": flush_us(self.plan.device, result["benchmark_protocol"]["l2"]),
            "timer": first["timer"],
            "outputs": digests(sides["base"].expected, name),
            "configuration": None
            if (facts := sides["base"].run.facts.get(name)) is None
            else facts.configuration,
            "strength": None,
            "unplanted": self._unplanted.get(name, ""),
            "build_s": max(
                (s for (_, one), s in self._build_s.items() if one == name), default=0.0
            ),
            "cold_s": self._cold_s,
        }
        self._cold_s = 0.0
        can = self._delays or self.plan.device == "cpu"
        if PLANTED in row.sides and name in sides[PLANTED].launches and can:
            launch_us = first["midmean_us"]["base"]

            def measure(strengths: Sequence[int]) -> list[float]:
                arms = {
                    str(steps): self._launch(sides, PLANTED, name, steps) for steps in strengths
                }
                side_of = {"base": "base", **dict.fromkeys(arms, PLANTED)}
                _, found = self._sequence(sides, name, {**base, **arms}, side_of)
                return effects(found["logs"], "base", list(arms))

            unit_ns = 1.0 if self.plan.device == "cpu" else STEP_NS
            search = Search(measure, TARGET, both=self.plan.device == "cuda")
            said["strength"], said["expected"] = search.run(round(10 * launch_us / unit_ns))
            said["seen"] = {str(steps): found for steps, found in search.seen.items()}
        said["sequence_s"], said["arm_s"] = costs(self._took)
        said["spent_s"] = sum(seconds for _, seconds in self._took)
        self.report(said)
        return result

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


def _launches(result: Mapping[str, Any], arm: str) -> int:
    """How often an arm was launched with its time taken, discarded calls among them."""
    protocol = result["benchmark_protocol"]
    discarded, kept = protocol["sub_blocks"].get(arm, (0, 1))
    return int(
        sum(-(-count // kept) * discarded + count for count in protocol["repeat_counts"][arm])
    )


def costs(took: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds of a sequence, and of each arm in it: a line through what sequences took (least squares).

    Args:
        took: number of arms and seconds of each, with two different numbers among them.
    """
    arms, seconds = (statistics.fmean(values) for values in zip(*took, strict=True))
    square = sum((count - arms) ** 2 for count, _ in took)
    slope = sum((count - arms) * (s - seconds) for count, s in took) / square if square else 0.0
    arm_s = min(max(slope, 0.0), seconds / arms)
    return round(seconds - arm_s * arms, 5), round(arm_s, 5)


def flush_us(device: str, l2: str) -> float:
    """What flushing before one call takes on this device."""
    if device == "cpu" or l2 == "warm":
        return 0.0
    import torch

    from tirbench.timing.device import open_cuda
    from tirbench.timing.flush import BUFFERS

    flush: Any = BUFFERS.flush(
        open_cuda(None, "event"), "cold-clean" if l2 == "cold-clean" else "cold-dirty"
    )
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush()
    start.record()
    for _ in range(10):
        flush()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 100  # ms of ten
