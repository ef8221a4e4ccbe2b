"""What to say of a pair, or what to measure next.

Screening flags a row; fresh workers, which no selection has touched, confirm it or not. Measuring goes on
for the sake of precision and never for the sake of an effect: whoever measures until a difference shows will
find one. The rule is symmetric: swapping the sides mirrors the verdict.

Source: MEASURING, section 3.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tirbench.judge.pairs import estimate, row_tau_squared, tau_squared
from tirbench.judge.rule import Limits, Policy
from tirbench.judge.words import percent, share
from tirbench.model import MeasureMore, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.model import (
        PairEstimate,
        PairEvidence,
        PairSide,
        Row,
        TimerName,
        VerdictKind,
        VerdictRule,
    )

Next: TypeAlias = "Verdict | MeasureMore"

GPU_TIMERS: Final[tuple[TimerName, ...]] = ("proton", "cudagraph_proton", "kineto")
"""Timers that see the device alone: host code between launches cannot move their times."""

CODE_KINDS: Final = ("sass", "src")
"""Kinds of a code digest that stand for what runs; names of kernels (`names:`) do not."""


def judge(pairs: Sequence[PairEvidence], policy: Policy | None = None) -> tuple[Next, ...]:
    """Judge the rows of one suite together: τ is pooled over all of them."""
    policy = policy or Policy()
    tau_sq = tau_squared(pairs, own_spread=policy.own_spread)
    return tuple(decide(pair, tau_sq, policy) for pair in pairs)


def decide(pair: PairEvidence, tau_sq: float, policy: Policy | None = None) -> Next:
    """The verdict of a row, or what must be measured first.

    Args:
        pair: what was measured so far.
        tau_sq: variance between workers, pooled over the suite (`tau_squared`).
        policy: how many workers a stage has.

    Returns:
        `MeasureMore` until the rule has what it asks for, then a `Verdict`.
    """
    policy = policy or Policy()
    workers = policy.workers
    short = _wanted(len(pair.screening), workers) - len(pair.screening)
    if short:
        return _more(pair, "screen", short, "the stage is not complete")
    limits = Limits.of(pair.slower_than, policy.equal_z)
    if policy.own_spread:
        tau_sq = row_tau_squared(pair, tau_sq)
    first = estimate(pair.screening, tau_sq)
    flagged = limits.flags(first)
    if not pair.confirming:
        if flagged:
            return _more(pair, "confirm", workers, f"{percent(first)} must show again")
        return _unflagged(pair, first, limits, workers)
    short = _wanted(len(pair.confirming), workers) - len(pair.confirming)
    if short:
        return _more(pair, "confirm", short, "the stage is not complete")
    return _after_confirming(pair, tau_sq, limits, workers)


def settle(pair: PairEvidence, tau_sq: float, why: str, policy: Policy | None = None) -> Verdict:
    """The verdict of a row of which no more can be measured.

    Args:
        pair: what was measured.
        tau_sq: as for `decide`.
        why: the sentence that says why no more can be measured.
        policy: as for `decide`.
    """
    decided = decide(pair, tau_sq, policy)
    if isinstance(decided, Verdict):
        return decided
    readings = (*pair.screening, *pair.confirming)
    measured = estimate(readings, tau_sq) if readings else None
    kind: VerdictKind = "same" if pair.same_code else "undecided"
    rule: VerdictRule = "same-code" if pair.same_code else "interrupted"
    return Verdict(
        row=pair.row,
        kind=kind,
        rule=rule,
        reason=f"{why}; {decided.workers} more workers were wanted: {decided.reason}",
        estimate=measured,
        same_code=pair.same_code,
        method=pair.method,
        price_workers=None if pair.same_code else decided.workers,
    )


def incomparable(row: Row, base: PairSide, head: PairSide) -> Verdict | None:
    """The verdict of sides that cannot be compared, with every difference; `None` where they can be."""
    differences = [
        f"{name} {getattr(base, name)} → {getattr(head, name)}"
        for name in ("timer", "l2", "regime", "hardware")
        if getattr(base, name) != getattr(head, name)
    ]
    if base.problem != head.problem:
        differences.insert(0, "another problem")
    old, new = dict(base.settings), dict(head.settings)
    differences += [
        f"{name} {old.get(name, 'unset')} → {new.get(name, 'unset')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if not differences:
        return None
    return Verdict(row=row, kind="incomparable", rule="incomparable", reason=", ".join(differences))


def missing(row: Row, side: str, why: str = "") -> Verdict:
    """The verdict of a row that one side does not have.

    Args:
        row: as the other side has it.
        side: the side without it, as it is called: `base`, `head`, a revision, a candidate.
        why: the reason, where one is known.
    """
    reason = f"{side} has no such row" + (f": {why}" if why else "")
    return Verdict(row=row, kind="missing", rule="missing", reason=reason)


def same_code(base: PairSide, head: PairSide) -> bool:
    """Whether nothing that the timer can see differs: machine code, launch, and a timer of the GPU."""
    return (
        base.timer in GPU_TIMERS
        and base.timer == head.timer
        and base.code == head.code
        and base.code.partition(":")[0] in CODE_KINDS
        and base.launch == head.launch
    )


# --- The rule -------------------------------------------------------------------------------------


def _wanted(have: int, workers: int) -> int:
    """The size at which a stage is complete: K, or 2·K once it was extended."""
    return workers if have <= workers else 2 * workers


def _unflagged(pair: PairEvidence, first: PairEstimate, limits: Limits, workers: int) -> Next:
    if pair.same_code:
        return _same_code(pair, first, limits)
    if limits.equal(first):
        return _same(pair, first, limits)
    if not limits.precise(first) and len(pair.screening) == workers:
        return _more(pair, "screen", workers, f"{percent(first)} is not precise enough")
    return _undecided(pair, first, limits, workers)


def _after_confirming(pair: PairEvidence, tau_sq: float, limits: Limits, workers: int) -> Next:
    first, second = estimate(pair.screening, tau_sq), estimate(pair.confirming, tau_sq)
    both = estimate((*pair.screening, *pair.confirming), tau_sq)
    if limits.flags(first) and limits.confirms(first, second, both):
        verdict = _confirmed(pair, both)
    elif pair.same_code:
        verdict = _same_code(pair, both, limits)
    elif limits.equal(both):
        verdict = _same(pair, both, limits)
    elif not limits.precise(both) and both.workers == 2 * workers:
        return _more(pair, "confirm", workers, f"{percent(both)} is not precise enough")
    else:
        verdict = _undecided(pair, both, limits, workers)
    return replace(verdict, screening=first, confirmation=second)


def _more(
    pair: PairEvidence, stage: Literal["screen", "confirm"], workers: int, reason: str
) -> MeasureMore:
    """Fresh workers take the placement seeds after those that were used."""
    used = (*pair.screening, *pair.confirming)
    return MeasureMore(
        row=pair.row,
        stage=stage,
        workers=workers,
        placement=max((reading.placement for reading in used), default=-1) + 1,
        reason=reason,
    )


# --- Verdicts and their sentences -----------------------------------------------------------------


def _confirmed(pair: PairEvidence, both: PairEstimate) -> Verdict:
    if pair.same_code:
        return replace(_environment(pair, both), flagged=True)
    slower = both.log_ratio > 0
    return Verdict(
        row=pair.row,
        kind="slower" if slower else "faster",
        rule="confirmed",
        reason=f"{percent(both)} over {both.workers} workers, the fresh ones alone agree",
        estimate=both,
        flagged=True,
        method=pair.method,
    )


def _same_code(pair: PairEvidence, measured: PairEstimate, limits: Limits) -> Verdict:
    """Equal by the code; the times only say how quiet it was."""
    if limits.equal(measured):
        return replace(_same(pair, measured, limits), rule="same-code", same_code=True)
    return _environment(pair, measured)


def _environment(pair: PairEvidence, measured: PairEstimate) -> Verdict:
    return Verdict(
        row=pair.row,
        kind="same",
        rule="same-code",
        reason=f"same machine code and launch; {percent(measured)} is environment",
        estimate=measured,
        same_code=True,
        method=pair.method,
    )


def _same(pair: PairEvidence, measured: PairEstimate, limits: Limits) -> Verdict:
    return Verdict(
        row=pair.row,
        kind="same",
        rule="within-band",
        reason=f"{percent(measured)}; a change of {share(math.expm1(limits.threshold))} is excluded",
        estimate=measured,
        method=pair.method,
    )


def _undecided(pair: PairEvidence, measured: PairEstimate, limits: Limits, workers: int) -> Verdict:
    """Precise and still undecided means that fresh workers did not see what the first ones saw."""
    if limits.precise(measured):
        rule: VerdictRule = "unconfirmed"
        price = workers
        why = "seen once and not again by fresh workers"
    else:
        rule = "imprecise"
        price = price_workers(measured, limits)
        why = f"the spread between workers is too wide for {share(math.expm1(limits.threshold))}"
    return Verdict(
        row=pair.row,
        kind="undecided",
        rule=rule,
        reason=f"{percent(measured)} over {measured.workers} workers: {why}; "
        f"{price} more would decide it",
        estimate=measured,
        method=pair.method,
        price_workers=price,
    )


def price_workers(measured: PairEstimate, limits: Limits) -> int:
    """How many more workers bring the standard error down to the precision that is asked for."""
    wanted = measured.workers * (measured.standard_error / limits.precision) ** 2
    return max(0, math.ceil(wanted - 1e-9) - measured.workers)
