"""How often is a verdict right? False alarms on identical code, and slowdowns found.

    python -m benchmarks.verdicts simulate --out benchmarks/results
    python -m benchmarks.verdicts device --readings FILE.jsonl --seconds 450 --out benchmarks/results

`simulate`: thousands of synthetic suites with the noise measured on an H200; the rules that others use
beside ours, on the same kernels. Prints the tables and writes `verdicts_simulated.md` and `.json`. The same
seed gives the same numbers. A few minutes on one core.

`device`: equal code and planted slowdowns of the suite on a GPU. Readings are appended to a file, so that
several runs add up; `--seconds 0` renders what is there. Exit of both: 0 targets met, 1 missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from benchmarks import verdicts_device, verdicts_report
from benchmarks.verdicts_rules import RULES
from benchmarks.verdicts_synthetic import (
    ASSUMED,
    BY_NOISE_CALLS,
    EFFECTS,
    EVEN_CALLS,
    SHIPPED_CALLS,
    STRESS,
    SUITE,
    WRITTEN_CALLS,
    Calls,
    Kernel,
    draw_sides,
    draw_suites,
    quad_sd,
)
from tirbench.calls import FLUSH_US
from tirbench.judge import Policy, judge, lower_bound, minimal_effect, power, upper_bound
from tirbench.model import PairEvidence, PairReading, Row, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.verdicts_synthetic import SyntheticRow

MOST_FALSE_ALARMS: Final = 0.001
LEAST_FOUND: Final = 0.95
MOST_GPU_S: Final = 0.25
LEAST_SUITES: Final = 36  # a third of them holds difficult rows; effects take turns over twelve
SEQUENTIAL_CALLS: Final = (
    400  # per side; more do not help a rule that measures one side after the other
)


@dataclass(frozen=True)
class Setup:
    """A decision rule and the calls that it is given."""

    policy: Policy
    calls: Calls


SETUPS: Final = {
    "as written": Setup(Policy(equal_z=1.645, own_spread=False), WRITTEN_CALLS),
    "even calls": Setup(Policy(equal_z=1.645, own_spread=False), EVEN_CALLS),
    "calls by noise": Setup(Policy(equal_z=1.645, own_spread=False), BY_NOISE_CALLS),
    "even calls, own spread": Setup(Policy(equal_z=1.645, own_spread=True), EVEN_CALLS),
    "even calls, own spread, same at 2.33": Setup(
        Policy(equal_z=2.33, own_spread=True), EVEN_CALLS
    ),
}


def shipped() -> str:
    """The setup that tirbench has now."""
    return next(name for name, one in SETUPS.items() if one == Setup(Policy(), SHIPPED_CALLS))


@dataclass
class Tally:
    """Verdicts on rows of one kind, and the workers and GPU seconds of one side that they took."""

    kinds: Counter[str] = field(default_factory=Counter)
    workers: int = 0
    gpu_s: float = 0.0

    def count(self, kind: str, workers: int, gpu_s: float) -> None:
        """Count one row."""
        self.kinds[kind] += 1
        self.workers += workers
        self.gpu_s += gpu_s

    def data(self, *, planted: bool) -> dict[str, Any]:
        """Shares with their one-sided 95 % bounds: what must be rare from above, else from below."""
        rows = sum(self.kinds.values())
        found = self.kinds["slower"] + (0 if planted else self.kinds["faster"])
        bound = lower_bound if planted else upper_bound
        return {
            "rows": rows,
            "flagged": found / rows,
            "bound": bound(found, rows),
            "undecided": self.kinds["undecided"] / rows,
            "same": self.kinds["same"] / rows,
            "workers": self.workers / rows,
            "gpu_s": self.gpu_s / rows,
        }


Tallies: TypeAlias = "dict[tuple[str, float], Tally]"


def main() -> int:
    """Choose the experiment."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    simulated = commands.add_parser("simulate", help="synthetic suites; no GPU")
    simulated.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    simulated.add_argument("--suites", type=int, default=3000, help="how many")
    simulated.add_argument("--seed", type=int, default=1)
    simulated.set_defaults(run=simulate)
    verdicts_device.add_arguments(
        commands.add_parser("device", help="trials on this machine, accumulated in a file")
    )
    arguments = parser.parse_args()
    run: Callable[[argparse.Namespace], int] = arguments.run
    return run(arguments)


def simulate(arguments: argparse.Namespace) -> int:
    """Run every simulation, print, write."""
    begin = time.monotonic()
    suites, seed = arguments.suites, arguments.seed
    if suites < LEAST_SUITES:
        print(
            f"--suites must be at least {LEAST_SUITES}, for every effect to occur", file=sys.stderr
        )
        return 2
    document: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": f"python -m benchmarks.verdicts simulate --suites {suites} --seed {seed}",
        "numpy": np.__version__,
        "suites": suites,
        "kernels": {kernel.name: asdict(kernel) for kernel in (*SUITE, *STRESS)},
        "plans": {name: plans(setup.calls) for name, setup in SETUPS.items()},
        "targets": {"found": LEAST_FOUND, "flagged": MOST_FALSE_ALARMS, "gpu_s": MOST_GPU_S},
        "ours": paired(SUITE, suites, seed),
        "stress": paired((*SUITE, *STRESS), suites // 3, seed),
        "others": sequential(suites // 10, seed),
        "shipped": shipped(),
        "assumed": ASSUMED,
    }
    text = verdicts_report.markdown(document)
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "verdicts_simulated.md").write_text(text, encoding="utf-8")
    written = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (arguments.out / "verdicts_simulated.json").write_text(written, encoding="utf-8")
    print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
    alarms, found = (document["ours"][shipped()]["all"][effect] for effect in ("0", "0.01"))
    met = alarms["bound"] <= MOST_FALSE_ALARMS and found["bound"] >= LEAST_FOUND
    return 0 if met else 1


def plans(calls: Calls) -> dict[str, Any]:
    """What the closed forms say of one stage of five workers, by kernel."""
    found = {}
    for kernel in (*SUITE, *STRESS):
        plan = kernel.plan(calls, quad_sd(kernel), 5)
        found[kernel.name] = {
            "call_sd": kernel.call_sd,
            "quads": plan.quads,
            "standard_error": plan.standard_error,
            "minimal_effect": minimal_effect(plan),
            "power": power(plan, 0.01),
            "gpu_s": kernel.gpu_seconds(calls, 5),
        }
    return found


def paired(kernels: Sequence[Kernel], suites: int, seed: int) -> dict[str, Any]:
    """Our rule in every setup, on the same synthetic measurements where the calls are the same."""
    tallies: dict[str, Tallies] = {name: {} for name in SETUPS}
    for calls in dict.fromkeys(setup.calls for setup in SETUPS.values()):
        for rows in draw_suites(np.random.default_rng(seed), kernels, calls, suites):
            for name, setup in SETUPS.items():
                if setup.calls == calls:
                    judge_suite(rows, setup, tallies[name])
    return {name: summary(kernels, found) for name, found in tallies.items()}


def judge_suite(rows: Sequence[SyntheticRow], setup: Setup, tallies: Tallies) -> None:
    """Judge one suite to the end: what the rule asks for is measured, then it is asked again."""
    pairs = [
        PairEvidence(
            row=Row(workload="synthetic", case=str(number), implementation="", role="kernel")
        )
        for number in range(len(rows))
    ]
    while True:
        answers = judge(pairs, setup.policy)
        waiting = False
        for number, answer in enumerate(answers):
            if isinstance(answer, Verdict):
                continue
            waiting = True
            fresh = tuple(
                rows[number].readings[answer.placement : answer.placement + answer.workers]
            )
            pairs[number] = with_workers(pairs[number], answer.stage, fresh)
        if not waiting:
            break
    for row, pair, answer in zip(rows, pairs, answers, strict=True):
        workers = len(pair.screening) + len(pair.confirming)
        tally = tallies.setdefault((row.kernel.name, row.effect), Tally())
        kind = answer.kind if isinstance(answer, Verdict) else ""
        tally.count(kind, workers, row.kernel.gpu_seconds(setup.calls, workers))


def with_workers(pair: PairEvidence, stage: str, fresh: tuple[PairReading, ...]) -> PairEvidence:
    """The evidence with more workers of a stage."""
    screening, confirming = pair.screening, pair.confirming
    if stage == "screen":
        screening = (*screening, *fresh)
    else:
        confirming = (*confirming, *fresh)
    return PairEvidence(row=pair.row, screening=screening, confirming=confirming)


def summary(kernels: Sequence[Kernel], tallies: Tallies) -> dict[str, Any]:
    """Shares by kernel and effect, and over all kernels but the difficult ones."""
    found: dict[str, Any] = {}
    total: dict[float, Tally] = {effect: Tally() for effect in EFFECTS}
    for kernel in kernels:
        mine = {effect: tallies[kernel.name, effect] for effect in EFFECTS}
        found[kernel.name] = {f"{e:g}": t.data(planted=e > 0) for e, t in mine.items()}
        for effect, tally in mine.items() if kernel in SUITE else ():
            total[effect].kinds.update(tally.kinds)
            total[effect].workers += tally.workers
            total[effect].gpu_s += tally.gpu_s
    found["all"] = {f"{e:g}": t.data(planted=e > 0) for e, t in total.items()}
    return found


def sequential(rows: int, seed: int) -> dict[str, Any]:
    """The rules of others, on the same kernels, one side measured after the other."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for own_addresses in (False, True):
        tallies: dict[tuple[str, float], Tally] = {}
        for kernel in SUITE:
            calls = min(SEQUENTIAL_CALLS, 10 * kernel.quads(SHIPPED_CALLS) * kernel.block[1])
            gpu_s = calls * (kernel.launch_us + FLUSH_US) / 1e6
            for effect, share in ((0.0, 4), (0.01, 1)):
                base, head = draw_sides(
                    rng, kernel, share * rows, calls, effect, own_addresses=own_addresses
                )
                for name, rule in RULES.items():
                    tally = tallies.setdefault((name, effect), Tally())
                    for one, other in zip(base, head, strict=True):
                        kind = ("same", "slower", "faster")[rule(one, other)]
                        tally.count(kind, 1, gpu_s)
        found["own addresses" if own_addresses else "same addresses"] = {
            name: {f"{e:g}": tallies[name, e].data(planted=e > 0) for e in (0.0, 0.01)}
            for name in RULES
        }
    return found


if __name__ == "__main__":
    raise SystemExit(main())
