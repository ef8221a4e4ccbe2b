"""The gate of one row with a GPU: a pinned number, a new time, and what is known about both.

First match wins, and a row that trips is never failed by its pin alone: the pin says that something moved,
`ab` against the code at the row's last pin says whether it was the code.

Source: MEASURING, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tirbench.judge.words import share
from tirbench.model import (
    Environment,
    Estimate,
    Failed,
    GateDecision,
    GateStep,
    Outcome,
    PinnedRow,
    Skipped,
    Timed,
    Verdict,
    Verified,
    Wrong,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tirbench.model import GateRule

ENVIRONMENT_SHIFT: Final = 0.005
"""The median of the unchanged-code rows that speaks against the environment."""

ENVIRONMENT_ROWS: Final = 5
"""Fewer of them say nothing."""

ENDED: Final = frozenset({"crashed", "hung"})
"""Causes that are an implementation's in whatever stage: it took its worker along."""

OF_THE_AUTHOR: Final = frozenset({"build", "verify", "reverify"})
"""Stages in which an exception is the code's. Before them the machine lacks something; in between its timer
fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """Everything the gate knows about one row; what is not measured yet is `None`.

    Attributes:
        case: the case's id, without the workload's name.
        implementation: of the case.
        known: whether the workload still has the row.
        pinned: the row's pin, `None` where it has none on any hardware.
        pinned_on: hardware of the baseline that the pin is from.
        sealed: whether the pin's seal holds.
        problem: digest of the problem, as of now.
        protocol: digest of the protocol, as of now.
        hardware: what the run was made on.
        outcome: what the run says; `None` where it says nothing of the row.
        slower_than: T, relative.
        same_code: machine code and launch are those of the pin (`same_code_as_pinned`).
        same_code_as_anchor: they are those with which the anchor was measured, where the pin's are others.
        unresolved: why this machine cannot resolve T for the row, with what could; empty where it can.
        unit_allowance: relative; what another unit of the same product adds, 0 on the pin's own.
        environment: what the unchanged-code rows of the run say.
        confirmable: whether the code at the row's last pin, or its anchor, can be loaded and measured.
        again: the time by fresh workers, where the code is the same.
        confirmation: the verdict of `ab` against the code at the row's last pin, or its anchor.
        unpaired: the time over ten placements, where the old code cannot be loaded.
    """

    case: str
    implementation: str
    known: bool = True
    pinned: PinnedRow | None
    pinned_on: str
    sealed: bool = True
    problem: str
    protocol: str
    hardware: str
    outcome: Outcome | None
    slower_than: float = 0.01
    same_code: bool = False
    same_code_as_anchor: bool = False
    unresolved: str = ""
    unit_allowance: float = 0.0
    environment: Environment
    confirmable: bool = True
    again: Estimate | None = None
    confirmation: Verdict | None = None
    unpaired: Estimate | None = None


GateNext: TypeAlias = "GateDecision | GateStep"


def gate(facts: GateFacts) -> GateNext:
    """Decide about a row, or say what must be measured first."""
    pinned = facts.pinned
    if pinned is None:
        return _decide(facts, 1, "missing", "not pinned; `tirbench pin` accepts the run")
    broken = broken_pin(facts.known, facts.sealed, pinned, facts.problem, facts.protocol)
    if broken is not None:
        return _decide(facts, 1, *broken)
    timed = facts.outcome
    if not isinstance(timed, Timed):
        return _without_time(facts, timed)
    if facts.hardware != facts.pinned_on:
        return _decide(
            facts, 3, "hardware", f"pinned on {facts.pinned_on}, measured on {facts.hardware}"
        )
    ratio = timed.estimate.midmean_us / pinned.midmean_us
    if facts.unresolved:
        why = f"{share(facts.slower_than)} cannot be resolved here: {facts.unresolved}"
        return _decide(facts, 3, "unresolved", why, ratio)
    trip = _trip(facts, pinned, timed.estimate)
    if trip is None:
        return _within(facts, pinned, ratio)
    return _tripped(facts, pinned, trip, ratio)


def broken_pin(
    known: bool, sealed: bool, pinned: PinnedRow, problem: str, protocol: str
) -> tuple[GateRule, str] | None:
    """What is wrong with a pin whatever is measured: the rule and the sentence, the first that fires."""
    if not known:
        return "orphan", "pinned, but no workload has the row; `tirbench pin --prune` drops it"
    if not sealed:
        return "seal", "the seal is broken: edited by hand, or merged from two measurements; re-pin"
    stale = [
        name
        for name, now in (("problem", problem), ("protocol", protocol))
        if getattr(pinned, name) != now
    ]
    if stale:
        return "stale", f"pinned for another {' and '.join(stale)}; re-pin"
    return None


def same_code_as_pinned(pinned: PinnedRow, timed: Timed) -> bool:
    """Whether a run's row is the code that was pinned.

    The digest of what runs says nothing of grid and arguments, which are part of the source; equal
    source under another compiler may be other machine code. Both must be equal. A row without facts
    of its code is pinned by its source.
    """
    code = timed.ran
    return (code.digest, code.configuration, timed.source) == (
        pinned.code,
        pinned.configuration,
        pinned.source,
    )


def exit_code(decisions: Iterable[GateDecision], *, invalid: bool = False) -> int:
    """The exit code of a gate: 2 > 1 > 3 > 0.

    Args:
        decisions: of every row.
        invalid: an input could not be read or the command line asked for what cannot be.
    """
    codes = {decision.exit_code for decision in decisions}
    return 2 if invalid else 1 if 1 in codes else 3 if 3 in codes else 0


# --- Rows without a time --------------------------------------------------------------------------


def _without_time(
    facts: GateFacts, outcome: Wrong | Failed | Verified | Skipped | None
) -> GateDecision:
    match outcome:
        case Wrong(row=row, reason=reason) if row.role == "reference":
            return _decide(facts, 3, "unmeasured", f"a reference, and wrong: {reason}")
        case Wrong(reason=reason):
            return _decide(facts, 1, "wrong", f"wrong: {reason}")
        case Failed(stage=stage, reason=reason) if is_at_fault(outcome):
            return _decide(facts, 1, "wrong", f"failed to {stage}: {reason}")
        case Failed(stage=stage, reason=reason):
            return _decide(facts, 3, "unmeasured", f"could not {stage}: {reason}")
        case Skipped(reason=reason):
            return _decide(facts, 3, "unmeasured", f"skipped: {reason}")
        case Verified(untimed=reason):
            return _decide(facts, 3, "unmeasured", f"not timed: {reason}")
        case None:
            return _decide(facts, 3, "unmeasured", "the run says nothing of the row")


def is_at_fault(failed: Failed) -> bool:
    """Whether a failure is one that the author of the code can fix: it crashed, hung or raised.

    A reference is someone else's, and what the machine lacks or does (memory, a free device, its clocks)
    is no code's.
    """
    if failed.row.role == "reference":
        return False
    return failed.cause in ENDED or (failed.cause == "raised" and failed.stage in OF_THE_AUTHOR)


# --- Rows with a time -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Trip:
    """Which limit a time exceeds, with the figures; `against`: whose code says whether it is the code."""

    text: str
    against: Literal["pin", "anchor"]


def _trip(facts: GateFacts, pinned: PinnedRow, estimate: Estimate) -> _Trip | None:
    """The first limit that a time exceeds; `None` where it exceeds none.

    What adds up from pin to pin can be seen in the code of the anchor alone: each step of it is as small as
    a pin allows.
    """
    allowed = max(pinned.band + facts.unit_allowance, facts.slower_than)
    ratio = estimate.midmean_us / pinned.midmean_us
    if ratio > 1 + allowed:
        return _Trip(f"{_change(ratio)} to its pin, beyond {share(allowed)}", "pin")
    over_anchor = estimate.midmean_us / pinned.anchor_us
    allowed = 2 * facts.slower_than + facts.unit_allowance
    if over_anchor > 1 + allowed:
        crept = pinned.midmean_us > pinned.anchor_us
        text = f"{_change(over_anchor)} to its anchor, beyond {share(allowed)}"
        return _Trip(text, "anchor" if crept else "pin")
    return None


def _within(facts: GateFacts, pinned: PinnedRow, ratio: float) -> GateDecision:
    band = pinned.band + facts.unit_allowance
    if ratio > 1 + band:
        return _decide(facts, 0, "within-gate", f"{_change(ratio)}: slower, within gate", ratio)
    if ratio < 1 - band:
        return _decide(facts, 0, "faster", f"{_change(ratio)}: faster, pin to keep it", ratio)
    return _decide(facts, 0, "same", f"{_change(ratio)}, within its band of {share(band)}", ratio)


def _tripped(facts: GateFacts, pinned: PinnedRow, trip: _Trip, ratio: float) -> GateNext:
    environment = facts.environment
    if (
        environment.shift is not None
        and environment.rows >= ENVIRONMENT_ROWS
        and abs(environment.shift) > ENVIRONMENT_SHIFT
    ):
        moved = (
            f"{environment.rows} rows of unchanged code moved by {100 * environment.shift:+.1f} %"
        )
        return _decide(facts, 3, "environment", f"{trip.text}; but {moved}", ratio)
    if facts.same_code if trip.against == "pin" else facts.same_code_as_anchor:
        return _of_same_code(facts, pinned, trip, ratio)
    if facts.confirmable and (
        facts.confirmation is None or facts.confirmation.kind not in {"incomparable", "missing"}
    ):
        return _confirmed(facts, trip, ratio)
    if facts.unpaired is None:
        why = f"{trip.text}, and the code of the {trip.against} cannot be run beside it"
        return _step(facts, "unpaired", trip, why)
    still = _trip(facts, pinned, facts.unpaired)
    if still is not None:
        return _decide(facts, 1, "unpaired", f"{still.text}, over ten placements, unpaired", ratio)
    return _decide(facts, 0, "recovered", f"{trip.text}, but not over ten placements", ratio)


def _of_same_code(facts: GateFacts, pinned: PinnedRow, trip: _Trip, ratio: float) -> GateNext:
    with_it = "with the code that was pinned"
    if facts.again is None:
        return _step(facts, "again", trip, f"{trip.text}, {with_it}")
    again = _trip(facts, pinned, facts.again)
    if again is not None:
        return _decide(facts, 3, "environment", f"{again.text}, twice, {with_it}", ratio)
    return _decide(facts, 0, "recovered", f"{trip.text}, but not again by fresh workers", ratio)


def _confirmed(facts: GateFacts, trip: _Trip, ratio: float) -> GateNext:
    verdict = facts.confirmation
    if verdict is None:
        return _step(facts, "confirm", trip, trip.text)
    said = f"ab: {verdict.kind}, {verdict.reason}"
    if verdict.kind == "slower":
        accept = "; `tirbench pin --accept` with a reason takes it as it is"
        why = f"{trip.text}; {said}{accept if trip.against == 'anchor' else ''}"
        return _decide(facts, 1, "confirmed", why, ratio)
    if verdict.kind == "undecided":
        return _decide(facts, 3, "undecided", f"{trip.text}; {said}", ratio)
    return _decide(facts, 0, "not-code", f"{trip.text}: environment, not code; {said}", ratio)


def _decide(
    facts: GateFacts,
    code: Literal[0, 1, 3],
    rule: GateRule,
    reason: str,
    ratio: float | None = None,
) -> GateDecision:
    return GateDecision(
        case=facts.case,
        implementation=facts.implementation,
        exit_code=code,
        rule=rule,
        reason=reason,
        ratio=ratio,
    )


def _step(
    facts: GateFacts, step: Literal["again", "confirm", "unpaired"], trip: _Trip, reason: str
) -> GateStep:
    return GateStep(
        case=facts.case,
        implementation=facts.implementation,
        step=step,
        reason=reason,
        against=trip.against,
    )


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"
