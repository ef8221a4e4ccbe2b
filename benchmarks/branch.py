"""The whole way of a change, on a machine that measures: pin, branch, slow a kernel down, `ab`, `gate`.

    python -m benchmarks.branch --out benchmarks/results

In a git repository with the suite's workloads, made for this: a few of them are pinned on this card, then

 1. `exec --pin` again changes no number;
 2. `gate` passes the clean tree;
 3. `gate` cannot say anything where the pins are another card's;
 4. a commit slows one kernel down by about 1 %, whose true size a longer comparison tells;
    `ab main` names that kernel's rows and nothing else;
 5. a commit slows it down by more than its band; `gate` fails these rows and nothing else, each confirmed by
    `ab` against the code at its last pin;
 6. `ab main main` names nothing.

Writes `branch_<hardware>.md` and `.json` with every command, its exit code and what it printed. About five
minutes on an H200. Exit: 0 all as expected, 1 not, 3 something was left out for want of time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from benchmarks.branch_plants import (
    PLANTS,
    Aim,
    Effects,
    Plant,
    effects_of,
    mean_effect,
    search,
    strength_for,
)
from benchmarks.branch_project import Project, Said, gate_report, pair_report
from benchmarks.branch_report import Step, Verdict, document, exit_code, facts_of, markdown
from tirbench import store
from tirbench.bands import OTHER_UNIT
from tirbench.model import Timed

if TYPE_CHECKING:
    from tirbench.model import PairReport

DEFAULT_FILES: Final = {
    "cuda": (
        "workloads/matmul.toml::m2048*",
        "workloads/vector_add.toml::n4*",
        "workloads/softmax.toml::r4096_c4096_*",
        "workloads/rmsnorm.toml::h4096_r2048_*",
        "workloads/silu_and_mul.toml::w14336_r1024_*",
    ),
    "cpu": ("workloads/softmax.toml", "workloads/vector_add.toml"),
}
"""Workloads that are fast to measure, the planted one first."""

AIMS: Final = {"cuda": Aim(low=0.009, high=0.014), "cpu": Aim(low=0.3, high=0.8)}
GATE_AIMS: Final = {"cuda": 0.06, "cpu": 1.0}
RESOLVE: Final = {"cuda": "0.3%", "cpu": "5%"}
"""How finely the true size is measured."""

MUST: Final = 0.009
MAY: Final = 0.003
"""Rows of the planted kernel with a true slowdown from here on must be named; below, they must not be."""

OTHER_CARD: Final = {"cuda": "nvidia-another", "cpu": "cpu-another"}
"""Baselines of hardware that this is not."""


@dataclass
class Proof:
    """The steps, each of which leaves the repository as the next one takes it."""

    project: Project
    plant: Plant
    device: Literal["cuda", "cpu"]
    files: Sequence[str]
    until: float
    truth: Effects = field(default_factory=dict)
    tried: dict[int, Effects] = field(default_factory=dict)
    clean_run: str = ""

    def steps(self) -> Iterator[Step]:
        """Everything in order; what the time does not suffice for is left out, and said."""
        for number, (name, step) in enumerate(self.order().items()):
            if number == 0 or time.monotonic() < self.until:
                yield step()
            else:
                yield _left_out(name, "no time was left")

    def order(self) -> dict[str, Callable[[], Step]]:
        """The steps by name."""
        return {
            "exec --pin": self.pins,
            "exec --pin again": self.pins_again,
            "gate, clean": self.gate_clean,
            "gate, another card": self.gate_other_card,
            "ab --plan": self.plan,
            "ab main, planted": self.planted,
            "gate, planted": self.gate_planted,
            "ab main main": self.placebo,
            "gate, another unit": self.gate_other_unit,
        }

    # --- Commands

    def exec_(self, *options: str, environment: dict[str, str] | None = None) -> Said:
        """`exec` of the files."""
        device = ("--device", self.device)
        return self.project.run("exec", *self.files, *device, *options, environment=environment)

    def ab(self, *sides: str, files: Sequence[str], options: Sequence[str] = ()) -> Said:
        """`ab`, as JSON."""
        how = ("--device", self.device, "--format", "json")
        return self.project.run("ab", *sides, *files, *how, *options)

    def own_files(self) -> list[str]:
        """The planted workload's."""
        return [
            name for name in self.files if Path(name.partition("::")[0]).stem == self.plant.workload
        ]

    # --- Pins

    def pins(self) -> Step:
        """Pin on this card."""
        said = self.exec_("--pin")
        self.project.commit("Pin")
        rows = len(self.project.numbers())
        return Step(
            name="exec --pin",
            expected="exit 0, every timed row is pinned",
            said=f"exit {said.code}, {rows} rows pinned",
            verdict=_verdict(said.code == 0 and rows > 0),
            commands=[said],
        )

    def pins_again(self) -> Step:
        """Pin again: numbers stay."""
        before = self.project.numbers()
        runs = self._runs()
        said = self.exec_("--pin")
        self.clean_run = min(
            self._runs() - runs, default=""
        )  # rows that left their band have another
        after = self.project.numbers()
        moved = [key for key in before if before[key] != after.get(key)]
        changed = self.project.git("diff", "--stat").strip().splitlines()
        self.project.commit("Pin again")
        excess = self._excess(before, store.read_run(self.project.root, self.clean_run))
        return Step(
            name="exec --pin again",
            expected="exit 0, no number changes",
            said=f"exit {said.code}, {len(moved)} of {len(before)} rows have another number; "
            f"{changed[-1].strip() if changed else 'no file changed'}; "
            f"largest change of a time {100 * max(excess, default=0.0):.2f} %",
            verdict=_verdict(said.code == 0 and set(before) == set(after) and not moved),
            commands=[said],
            facts={"moved": ["/".join(key) for key in moved], "changes": excess},
        )

    def _runs(self) -> set[str]:
        return {path.name for path in (self.project.root / ".tirbench" / "runs").iterdir()}

    def _excess(
        self, pinned: dict[tuple[str, str, str], dict[str, float | None]], kept: store.KeptRun
    ) -> list[float]:
        """By how much each time of a run differs from its pin, relative."""
        found = []
        for outcome in kept.run.outcomes:
            key = (outcome.row.workload, outcome.row.case, outcome.row.implementation)
            pin = pinned.get(key, {}).get("midmean_us")
            if isinstance(outcome, Timed) and pin:
                found.append(abs(outcome.estimate.midmean_us / pin - 1))
        return sorted(found)

    # --- Gates

    def gate_clean(self) -> Step:
        """Nothing changed."""
        said = self.project.run("gate", self.clean_run, "--format", "json")
        return _gate_step("gate, clean", "exit 0", said, said.code == 0)

    def gate_planted(self) -> Step:
        """A slowdown beyond the band of its row is confirmed and fails."""
        wanted = GATE_AIMS[self.device]
        known = {strength: mean_effect(effects) for strength, effects in self.tried.items()}
        strength = _stronger(known, wanted, self.plant)
        self._plant("planted-more", strength)
        run = self.exec_()
        said = self.project.run("gate", "--format", "json")
        report = gate_report(said)
        failed = (
            [] if report is None else [row for row in report.rows if row.decision.exit_code == 1]
        )
        own = [
            row
            for row in failed
            if (row.workload, row.decision.implementation)
            == (self.plant.workload, self.plant.kernel)
        ]
        right = said.code == 1 and own == failed and own != []
        confirmed = all(row.decision.rule == "confirmed" for row in failed)
        step = _gate_step(
            "gate, planted",
            f"exit 1: rows of {self.plant.workload}/*/{self.plant.kernel} and no other, confirmed by ab "
            "against the code at their last pin",
            said,
            right and confirmed,
        )
        ratios = [row.decision.ratio for row in own if row.decision.ratio is not None]
        step.said += (
            f"; planted: {', '.join(f'{100 * (one - 1):+.2f} %' for one in ratios)} to the pin"
        )
        step.commands.insert(0, run)
        step.facts["strength"] = strength
        return step

    def gate_other_card(self) -> Step:
        """The pins are of hardware that this is not."""
        self.project.branch("another-card")
        folder = self.project.root / "workloads" / "baselines"
        (here,) = (path.name for path in folder.iterdir())
        other = OTHER_CARD[self.device]
        self.project.git("mv", f"workloads/baselines/{here}", f"workloads/baselines/{other}")
        self.project.commit("Pins of another card")
        said = self.project.run("gate", self.clean_run, "--format", "json")
        self.project.branch("main")
        return _gate_step("gate, another card", "exit 3", said, said.code == 3)

    def gate_other_unit(self) -> Step:
        """The same product's other unit, where there is one: its rows are judged wider."""
        name = "gate, another unit"
        if self.device == "cpu" or _gpus() < 2:
            return Step(name=name, expected="", said="one GPU is visible", verdict="left out")
        self.project.branch("main")
        run = self.exec_(environment={"CUDA_VISIBLE_DEVICES": "1"})
        other = {"CUDA_VISIBLE_DEVICES": "1"}
        said = self.project.run("gate", "--format", "json", environment=other)
        step = _gate_step(name, f"bands are {100 * OTHER_UNIT:g} % wider", said, said.code == 0)
        step.verdict = "for information"
        step.commands.insert(0, run)
        excess = self._excess(self.project.numbers(), store.read_run(self.project.root))
        step.said += f"; largest change of a time {100 * max(excess, default=0.0):.2f} %"
        step.facts["changes"] = excess
        return step

    # --- Comparisons

    def plan(self) -> Step:
        """What a comparison would find and cost."""
        said = self.project.run("ab", "main", *self.files, "--device", self.device, "--plan")
        last = said.out.strip().splitlines()[-1] if said.out.strip() else ""
        return Step(
            name="ab --plan",
            expected="exit 0, nothing is measured",
            said=f"exit {said.code}: {last}",
            verdict=_verdict(said.code == 0),
            commands=[said],
        )

    def planted(self) -> Step:
        """A slowdown of about T in one kernel."""
        aim = AIMS[self.device]
        strength, self.tried = search(self.plant, aim, self._measured, tries=4)
        self._plant("planted", strength)
        truth = self.ab("main", files=self.own_files(), options=("--resolve", RESOLVE[self.device]))
        report = pair_report(truth)
        self.truth = {} if report is None else effects_of(report.verdicts, self.plant)
        said = self.ab("main", files=self.files)
        compared = pair_report(said)
        verdict, line = self._named(compared)
        if said.code != 1:
            verdict = "NOT AS EXPECTED"
        return Step(
            name="ab main, planted",
            expected="exit 1: the rows of the planted kernel are slower, and nothing else is named",
            said=f"exit {said.code}: {line}; true size (ab --resolve {RESOLVE[self.device]}): "
            f"{_sizes(self.truth)}",
            verdict=verdict,
            commands=[truth, said],
            facts={
                "strength": strength,
                "tried": {s: {k: asdict(e) for k, e in es.items()} for s, es in self.tried.items()},
                "truth": {key: asdict(one) for key, one in self.truth.items()},
                "diff": self.project.git("diff", "main", "--", self.plant.file),
            },
        )

    def _plant(self, branch: str, strength: int) -> None:
        self.project.branch(branch)
        self.plant.into(self.project.root, strength)
        self.project.commit(f"Slow {self.plant.workload}/{self.plant.kernel} down")

    def _measured(self, strength: int) -> Effects:
        self._plant("tried", strength)
        report = pair_report(self.ab("main", files=self.own_files()))
        effects = {} if report is None else effects_of(report.verdicts, self.plant)
        print(f"          strength {strength}: {_sizes(effects)}", file=sys.stderr, flush=True)
        return effects

    def _named(self, report: PairReport | None) -> tuple[Verdict, str]:
        """Whether the verdicts are those that the true sizes ask for."""
        if report is None:
            return "NOT AS EXPECTED", "no report"
        wrong: list[str] = []
        named = Counter[str]()
        for verdict in report.verdicts:
            key, own = verdict.row.key, self.plant.owns(verdict)
            if verdict.kind in {"slower", "faster"}:
                named[f"{verdict.kind} {'of the plant' if own else 'of others'}"] += 1
            slower = self.truth[key].slower if key in self.truth else 0.0
            must, may = own and slower >= MUST, own and slower > MAY
            is_named = verdict.kind in {"slower", "faster"}
            if (must and verdict.kind != "slower") or (is_named and not may):
                wrong.append(f"{key} is {verdict.kind}")
        others = sum(not self.plant.owns(verdict) for verdict in report.verdicts)
        said = ", ".join(f"{count} {name}" for name, count in sorted(named.items())) or "none named"
        line = f"{said}, of {len(report.verdicts)} rows, {others} of them others"
        return _verdict(not wrong), "; ".join([line, *wrong])

    def placebo(self) -> Step:
        """Two archives of one commit."""
        self.project.branch("main")
        said = self.ab("main", "main", files=self.files, options=("--references",))
        report = pair_report(said)
        if report is None:
            line, right = "no report", False
        else:
            every = (*report.verdicts, *report.placebos)
            kinds = Counter(verdict.kind for verdict in report.verdicts)
            flagged = sum(verdict.flagged for verdict in every)
            shifts = [abs(v.estimate.log_ratio) for v in every if v.estimate is not None]
            line = (
                f"exit {said.code}: {', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))}; "
                f"by their times alone {flagged} of {len(every)} would have been named; "
                f"largest effect {100 * math.expm1(max(shifts, default=0.0)):.2f} %"
            )
            right = said.code == 0 and not {"slower", "faster"} & set(kinds)
        return Step(
            name="ab main main",
            expected="exit 0: nothing is slower or faster",
            said=line,
            verdict=_verdict(right),
            commands=[said],
        )


def _left_out(name: str, why: str) -> Step:
    return Step(name=name, expected="", said=why, verdict="left out")


def _sizes(effects: Effects) -> str:
    """Row by row, with intervals."""
    return ", ".join(
        f"{key} {100 * one.slower:+.2f} ± {100 * one.half_width:.2f} %"
        for key, one in effects.items()
    )


def _stronger(known: dict[int, float], wanted: float, plant: Plant) -> int:
    """The strength of a slowdown that is further away than any that was tried."""
    return strength_for(known, wanted) if known else 6 * plant.first


def _verdict(right: object) -> Verdict:
    return "as expected" if right else "NOT AS EXPECTED"


def _gate_step(name: str, expected: str, said: Said, right: object) -> Step:
    report = gate_report(said)
    if report is None:
        line = f"exit {said.code}: no report"
    else:
        rules = Counter(row.decision.rule for row in report.rows)
        line = f"exit {said.code}: " + ", ".join(f"{n} {rule}" for rule, n in sorted(rules.items()))
    return Step(name=name, expected=expected, said=line, verdict=_verdict(right), commands=[said])


def _gpus() -> int:
    """How many GPUs are visible to a process that is started now."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name])
    import torch

    return int(torch.cuda.device_count())


def _options(given: argparse.Namespace) -> list[str]:
    """The command line without the folder that was written to."""
    files = ["--files", *given.files] if given.files else []
    return ["--device", given.device, "--seconds", f"{given.seconds:g}", *files]


def main() -> int:
    """Prove, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="folder for the two files")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--files", nargs="+", help="workloads to pin, the planted one among them")
    parser.add_argument("--seconds", type=float, default=330.0, help="begin nothing after this")
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        proof = Proof(
            project=Project.make(Path(scratch) / "project"),
            plant=PLANTS[given.device],
            device=given.device,
            files=given.files or DEFAULT_FILES[given.device],
            until=begin + given.seconds,
        )
        steps: list[Step] = []
        text = ""
        for step in proof.steps():
            print(f"{step.verdict}: {step.name}: {step.said}", flush=True)
            steps.append(step)
            # After every step: whoever interrupts the next one keeps those before it.
            later = [_left_out(name, "not begun") for name in list(proof.order())[len(steps) :]]
            text = _write(given, [*steps, *later], time.monotonic() - begin)
    print(text)
    return exit_code(steps)


def _write(given: argparse.Namespace, steps: Sequence[Step], seconds: float) -> str:
    """The page, also as a file where there is a folder for it."""
    facts = facts_of(given.device, _options(given), seconds)
    text = markdown(facts, steps)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        name = f"branch_{facts['hardware'].removeprefix('nvidia-')}"
        (given.out / f"{name}.md").write_text(text, encoding="utf-8")
        data = json.dumps(document(facts, steps), indent=1, allow_nan=False)
        (given.out / f"{name}.json").write_text(data + "\n", encoding="utf-8")
    return text


if __name__ == "__main__":
    sys.exit(main())
