"""From readings to verdicts: what `ab` would have said, had it only the times to go by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tirbench.judge import Next, Policy, judge
from tirbench.model import MeasureMore, PairEvidence, PairReading, Row, Verdict
from tirbench.selftest.readings import BASE, Record, is_planted, pair_of, readings_of

NO_MORE: Final = 8
"""As `comparing.trial.MOST_STAGES`."""


class Key(NamedTuple):
    """A row-decision: a row, a pair of its sides, one virtual run of one process."""

    run: str
    row: str
    sequence: int
    pair: str

    @property
    def planted(self) -> bool:
        """Whether its second side is slower on purpose."""
        return is_planted(self.pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was said of a pair, with the evidence; `answer` wants more where too little was measured."""

    key: Key
    evidence: PairEvidence
    answer: Next

    @property
    def kind(self) -> str:
        """The kind of the verdict; `unfinished` without one."""
        return self.answer.kind if isinstance(self.answer, Verdict) else "unfinished"


@dataclass(slots=True)
class Evidence:
    """Readings by decision and placement, and rows by key."""

    slower_than: dict[str, float] = field(default_factory=dict)
    by_key: dict[Key, dict[int, PairReading]] = field(default_factory=lambda: defaultdict(dict))

    @classmethod
    def of(cls, records: Iterable[Record]) -> Evidence:
        """Everything that was read; of what was read twice on one placement the later."""
        found = cls()
        for record in records:
            found.take(record)
        return found

    def take(self, record: Record) -> None:
        """Add a record."""
        if record["type"] == "row":
            self.slower_than[record["row"]] = record["slower_than"]
        elif record["type"] == "reading":
            for pair, reading in readings_of(record).items():
                key = Key(record["run"], record["row"], record["sequence"], pair)
                self.by_key[key][record["placement"]] = reading


def decide(evidence: Evidence, policy: Policy) -> list[Decision]:
    """A decision for every pair whose screening is complete.

    Rows of one virtual run and the same pair are judged together, as `ab` judges a suite: τ is pooled
    over them. A planted row is judged among the rows of equal code of its virtual run. Nothing is said to
    have the same code: the times alone decide.
    """
    suites: dict[tuple[str, int, str], list[Key]] = defaultdict(list)
    for key in evidence.by_key:
        suites[key.run, key.sequence, key.pair].append(key)
    found: list[Decision] = []
    for (run, sequence, pair), keys in sorted(suites.items()):
        beside: Sequence[Key] = ()
        if is_planted(pair):
            beside = suites.get((run, sequence, pair_of(BASE, "twin1")), ())
        found += _suite(evidence, keys, beside, policy)
    return found


def _suite(
    evidence: Evidence, keys: Sequence[Key], beside: Sequence[Key], policy: Policy
) -> list[Decision]:
    """Stage after stage, with as much of what was measured as each stage asks for."""
    everyone = [*keys, *beside]
    pairs = [_empty(key, evidence) for key in everyone]
    answers: tuple[Next, ...] = ()
    for _ in range(NO_MORE):
        answers = judge(pairs, policy)
        grown = [
            _with_more(pair, answer, evidence.by_key[key])
            for key, pair, answer in zip(everyone, pairs, answers, strict=True)
        ]
        if grown == pairs:
            break
        pairs = grown
    return [
        Decision(key=key, evidence=pair, answer=answer)
        for key, pair, answer in zip(everyone[: len(keys)], pairs, answers, strict=False)
        if pair.screening
    ]


def _empty(key: Key, evidence: Evidence) -> PairEvidence:
    workload, case, implementation = key.row.split("/")
    row = Row(workload=workload, case=case, implementation=implementation, role="kernel")
    return PairEvidence(row=row, slower_than=evidence.slower_than.get(key.row, 0.01))


def _with_more(pair: PairEvidence, answer: Next, known: Mapping[int, PairReading]) -> PairEvidence:
    """The evidence with the workers that are asked for, if all of them were measured."""
    if not isinstance(answer, MeasureMore):
        return pair
    wanted = range(answer.placement, answer.placement + answer.workers)
    if any(placement not in known for placement in wanted):
        return pair
    fresh = tuple(known[placement] for placement in wanted)
    if answer.stage == "screen":
        return replace(pair, screening=(*pair.screening, *fresh))
    return replace(pair, confirming=(*pair.confirming, *fresh))
