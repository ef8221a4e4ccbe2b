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
    CodeFacts,
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

NEVER_STARTED: Final = ("load", "allocate")
"""Stages whose failure is the machine's: no package, no memory."""

ENDED: Final = ("crashed:", "hung:")
"""How the reasons begin of implementations that took their worker along."""


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
        unit_allowance: relative; what another unit of the same product adds, 0 on the pin's own.
        environment: what the unchanged-code rows of the run say.
        confirmable: whether the code at the row's last pin can be loaded and `--confirm` is on.
        again: the time by fresh workers, where the code is the same.
        confirmation: the verdict of `ab` against the code at the row's last pin.
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
    trip = _trip(facts, pinned, timed.estimate)
    if not trip:
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
    code = timed.code or CodeFacts(digest=f"src:{timed.source}")
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

    A reference is someone else's, and before it is built what fails is the machine: a package or
    memory that it lacks.
    """
    if failed.reason.startswith(ENDED):
        return True
    lacking = failed.reason.startswith(("ImportError", "ModuleNotFoundError"))
    return (
        failed.row.role == "kernel"
        and failed.stage not in NEVER_STARTED
        and failed.stage != "time"
        and not lacking
    )


# --- Rows with a time -----------------------------------------------------------------------------


def _trip(facts: GateFacts, pinned: PinnedRow, estimate: Estimate) -> str:
    """Which limit a time exceeds, with the figures; empty where it exceeds none."""
    allowed = max(pinned.band + facts.unit_allowance, facts.slower_than)
    ratio = estimate.midmean_us / pinned.midmean_us
    if ratio > 1 + allowed:
        return f"{_change(ratio)} to its pin, beyond {share(allowed)}"
    over_anchor = estimate.midmean_us / pinned.anchor_us
    allowed = 2 * facts.slower_than + facts.unit_allowance
    if over_anchor > 1 + allowed:
        return f"{_change(over_anchor)} to its anchor, beyond {share(allowed)}"
    return ""


def _within(facts: GateFacts, pinned: PinnedRow, ratio: float) -> GateDecision:
    band = pinned.band + facts.unit_allowance
    if ratio > 1 + band:
        return _decide(facts, 0, "within-gate", f"{_change(ratio)}: slower, within gate", ratio)
    if ratio < 1 - band:
        return _decide(facts, 0, "faster", f"{_change(ratio)}: faster, pin to keep it", ratio)
    return _decide(facts, 0, "same", f"{_change(ratio)}, within its band of {share(band)}", ratio)


def _tripped(facts: GateFacts, pinned: PinnedRow, trip: str, ratio: float) -> GateNext:
    shift = facts.environment.shift
    if (
        shift is not None
        and facts.environment.rows >= ENVIRONMENT_ROWS
        and abs(shift) > ENVIRONMENT_SHIFT
    ):
        why = f"{trip}; but {facts.environment.rows} rows of unchanged code moved by {100 * shift:+.1f} %"
        return _decide(facts, 3, "environment", why, ratio)
    if facts.same_code:
        if facts.again is None:
            return _step(facts, "again", f"{trip}, with the code that was pinned")
        again = _trip(facts, pinned, facts.again)
        if again:
            return _decide(
                facts, 3, "environment", f"{again}, twice, with the code that was pinned", ratio
            )
        return _decide(facts, 0, "recovered", f"{trip}, but not again by fresh workers", ratio)
    if facts.confirmable and (
        facts.confirmation is None or facts.confirmation.kind not in {"incomparable", "missing"}
    ):
        return _confirmed(facts, trip, ratio)
    if facts.unpaired is None:
        return _step(facts, "unpaired", f"{trip}, and the code of the pin cannot be run beside it")
    still = _trip(facts, pinned, facts.unpaired)
    if still:
        return _decide(facts, 1, "unpaired", f"{still}, over ten placements, unpaired", ratio)
    return _decide(facts, 0, "recovered", f"{trip}, but not over ten placements", ratio)


def _confirmed(facts: GateFacts, trip: str, ratio: float) -> GateNext:
    verdict = facts.confirmation
    if verdict is None:
        return _step(facts, "confirm", trip)
    if verdict.kind == "slower":
        return _decide(facts, 1, "confirmed", f"{trip}; ab: slower, {verdict.reason}", ratio)
    if verdict.kind == "undecided":
        return _decide(facts, 3, "undecided", f"{trip}; ab: undecided, {verdict.reason}", ratio)
    why = f"{trip}: environment, not code; ab: {verdict.kind}, {verdict.reason}"
    return _decide(facts, 0, "not-code", why, ratio)


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


def _step(facts: GateFacts, step: Literal["again", "confirm", "unpaired"], reason: str) -> GateStep:
    return GateStep(case=facts.case, implementation=facts.implementation, step=step, reason=reason)


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"
