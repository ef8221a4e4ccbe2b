"""The loop of a comparison: measure what `judge` asks for, until every row has its verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench import codec, selftest
from tirbench.comparing.ask import Asked
from tirbench.comparing.measure import Bench, Seen
from tirbench.comparing.pairing import Pair, Paired, paired
from tirbench.comparing.price import workers_of
from tirbench.comparing.sides import Sides, opened
from tirbench.errors import UsageError
from tirbench.judge import (
    Policy,
    incomparable,
    judge,
    placebo,
    same_code,
    settle,
    tau_squared,
)
from tirbench.judge.gate import is_at_fault
from tirbench.model import (
    Failed,
    MeasureMore,
    Outcome,
    PairEvidence,
    PairReport,
    PairSide,
    Verdict,
    Wrong,
)
from tirbench.store import write

if TYPE_CHECKING:
    from tirbench.execute.events import Event
    from tirbench.judge import Next
    from tirbench.model import PairMethod

METHODS: Final[tuple[PairMethod, ...]] = ("one worker", "paired workers")

MOST_STAGES: Final = 8
"""No rule asks for more; a row that would is settled."""


def compare(
    root: Path, asked: Asked, watch: Callable[[Event], None], say: Callable[[str], None]
) -> PairReport:
    """Compare what is asked for, on this machine.

    Args:
        root: the project's folder.
        asked: what is compared.
        watch: is shown every event as it happens.
        say: takes sentences: what is waited for.

    Raises:
        UsageError: a revision or workload that nothing has.
        InputError: a workload of head is not right.
    """
    from tirbench.execute import Workers, describe

    hardware = describe(asked.device).hardware
    with opened(root, asked) as sides:
        rows = paired(sides, asked, hardware)
        if not (rows.pairs or rows.decided or rows.left_out):
            raise UsageError("nothing to compare: no case that is asked for has such a row")
        policy = Policy(workers=workers_of(root, rows.pairs, asked.resolve, hardware))
        if rows.pairs:
            with Workers(sides.folder / "logs") as workers:
                workers.warm(asked.device)
                bench = Bench(sides=sides, asked=asked, workers=workers, watch=watch, say=say)
                verdicts = _Trial(sides, rows.pairs, bench, policy).run()
                failures = tuple(bench.failed.values())
        else:
            verdicts, failures = {}, ()
        known = selftest.notes(root, hardware, hint=asked.device == "cuda")
        report = _report(sides, rows, verdicts, failures, hardware)
        report = replace(report, notes=(*report.notes, *known))
        text = json.dumps(codec.dump(report), allow_nan=False, indent=2)
        write(sides.folder / "report.json", text + "\n")
    return report


def exit_code(report: PairReport) -> int:
    """1 where a row is slower or a kernel of head fails, 3 where a row could not be decided, else 0."""
    at_fault = any(
        _is_of_head(outcome)
        and (isinstance(outcome, Wrong) or (isinstance(outcome, Failed) and is_at_fault(outcome)))
        for outcome in report.failures
    )
    kinds = {verdict.kind for verdict in report.verdicts}
    if at_fault or "slower" in kinds:
        return 1
    return 3 if kinds & {"undecided", "incomparable"} else 0


def _is_of_head(outcome: Outcome) -> bool:
    """Whether it is head that failed: `harness.pairs` says the side first."""
    reason = getattr(outcome, "reason", "")
    return outcome.row.role == "kernel" and not reason.startswith(("base: ", "twin: "))


@dataclass(slots=True)
class _Trial:
    """Rows with what is known of them, on the way to their verdicts."""

    sides: Sides
    rows: Iterable[Pair]
    bench: Bench
    policy: Policy
    pairs: dict[str, Pair] = field(default_factory=dict)
    evidence: dict[str, PairEvidence] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def run(self) -> dict[str, Verdict]:
        """Measure until every row has a verdict."""
        self.pairs = {pair.key: pair for pair in self.rows}
        self.evidence = {
            key: PairEvidence(
                row=pair.row,
                slower_than=pair.slower_than,
                same_code=pair.placebo or (self.sides.identical and pair.same_source),
            )
            for key, pair in self.pairs.items()
        }
        for _ in range(MOST_STAGES):
            wanted = self._wanted()
            if not wanted:
                break
            self._measure(wanted)
        self._settle_rest("no stage is left")
        return self.verdicts

    def _open(self) -> dict[str, PairEvidence]:
        return {key: one for key, one in self.evidence.items() if key not in self.verdicts}

    def _wanted(self) -> list[MeasureMore]:
        """What is still to be measured; rows that have all they need get their verdict.

        τ is pooled over the whole suite, rows with a verdict among them.
        """
        wanted: list[MeasureMore] = []
        for evidence, answer in self._answers():
            key = evidence.row.key
            if key in self.verdicts:
                continue
            if isinstance(answer, MeasureMore):
                wanted.append(answer)
            else:
                self.verdicts[key] = answer
        return wanted

    def _answers(self) -> Iterator[tuple[PairEvidence, Next]]:
        """What `judge` says of each row: rows measured by one method scatter alike, and are pooled."""
        for method in METHODS:
            alike = [one for one in self.evidence.values() if one.method == method]
            yield from zip(alike, judge(alike, self.policy), strict=True)

    def _measure(self, wanted: list[MeasureMore]) -> None:
        found = self.bench.measure(self.pairs, wanted)
        for more in wanted:
            key = more.row.key
            readings = tuple(found.get(key, ()))
            evidence = self.evidence[key]
            if more.stage == "screen":
                evidence = replace(evidence, screening=(*evidence.screening, *readings))
            else:
                evidence = replace(evidence, confirming=(*evidence.confirming, *readings))
            self.evidence[key] = self._learn(evidence)
        self._settle_failed()

    def _learn(self, evidence: PairEvidence) -> PairEvidence:
        """What the workers say of code and settings: sides may be the same, or not comparable at all."""
        key = evidence.row.key
        seen = self.bench.seen.get(key, ())
        if not seen:
            return evidence
        base, head = _sides_seen(self.pairs[key], seen[0])
        verdict = incomparable(evidence.row, base, head)
        if verdict is not None:
            self.verdicts[key] = verdict
        return replace(evidence, same_code=evidence.same_code or same_code(base, head))

    def _settle_failed(self) -> None:
        for key, outcome in list(self.bench.failed.items()):
            if key in self.verdicts:
                continue
            if self._is_apart(key, outcome):
                continue
            said = getattr(outcome, "reason", "") or getattr(outcome, "untimed", "no answer")
            # Equal code is no verdict of a row that did not run.
            evidence = replace(self.evidence[key], same_code=False)
            self.verdicts[key] = settle(evidence, self._tau(evidence), said, self.policy)

    def _is_apart(self, key: str, outcome: Outcome) -> bool:
        """Whether the sides of a row may fail for being in one process; they get workers of their own."""
        evidence = self.evidence[key]
        alone = isinstance(outcome, Failed) and outcome.stage in {"load", "allocate", "build"}
        if not alone or evidence.method != "one worker" or evidence.screening:
            return False
        del self.bench.failed[key]
        self.bench.apart.add(key)
        self.evidence[key] = replace(evidence, method="paired workers")
        return True

    def _settle_rest(self, why: str) -> None:
        for key, evidence in self._open().items():
            self.verdicts[key] = settle(evidence, self._tau(evidence), why, self.policy)

    def _tau(self, of: PairEvidence) -> float:
        alike = [one for one in self.evidence.values() if one.method == of.method]
        return tau_squared(alike, own_spread=self.policy.own_spread)


def _sides_seen(pair: Pair, seen: Seen) -> tuple[PairSide, PairSide]:
    """Both sides with what only running them could tell."""
    base, head = (
        replace(
            side,
            code="" if code is None else code.digest,
            launch=f"{side.launch} {'' if code is None else code.configuration or ''}",
            settings=settings,
        )
        for side, code, settings in zip(
            (pair.base, pair.head), seen.code, seen.settings, strict=True
        )
    )
    return base, head


def _report(
    sides: Sides,
    rows: Paired,
    verdicts: Mapping[str, Verdict],
    failures: tuple[Outcome, ...],
    hardware: str,
) -> PairReport:
    placebos = [verdicts[pair.key] for pair in rows.pairs if pair.placebo]
    judged = [verdicts[pair.key] for pair in rows.pairs if not pair.placebo]
    return PairReport(
        id=sides.id,
        base=sides.base.label,
        head=sides.head.label,
        hardware=hardware,
        verdicts=tuple(sorted((*judged, *rows.decided), key=lambda one: one.row.key)),
        placebos=tuple(placebos),
        environment=placebo((*judged, *placebos)),
        failures=failures,
        left_out=tuple(sorted(rows.left_out.items())),
        notes=sides.base.notes,
        paths=tuple(
            (name, workload.source.path)
            for name, workload in sorted({**sides.base.workloads, **sides.head.workloads}.items())
        ),
    )
