"""What pinning a run does to a baseline: decided here, measured and written elsewhere.

Numbers are sticky. A row keeps its number as long as new times lie within its band, and the rest of the row
(digests, environment, resources) follows the run. A time outside the band is first measured again by fresh
workers (`PinPlan.confirm`) and rewritten only if it is outside on the same side again: without that, a
suite of 180 rows at three standard deviations has a 38 % chance of one spurious rewrite.

`anchor_us`, the best accepted time, falls with better numbers and rises only by explicit acceptance with a
reason, so that many small losses cannot add up unseen.

Source: MEASURING, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tirbench import digest
from tirbench.bands import OTHER_UNIT, Taught, band
from tirbench.errors import UsageError
from tirbench.model import (
    Baseline,
    Machine,
    Outcome,
    PinnedRow,
    Timed,
    Verified,
)
from tirbench.store.baseline import is_sealed, rounded, row_key, sealed
from tirbench.store.sessions import digest_of_timed, row_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNCOMMITTED: Final = "measured on an uncommitted tree"

RowKey: TypeAlias = "tuple[str, str]"
"""Case and implementation."""

ChangeKind: TypeAlias = Literal["added", "kept", "rewritten", "replaced", "accepted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What pinning does to one row.

    `added`: new. `kept`: within its band. `rewritten`: outside of it, and again when confirmed.
    `replaced`: the old number means something else or its seal is broken. `accepted`: told to.
    """

    kind: ChangeKind
    row: PinnedRow
    old: PinnedRow | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinPlan:
    """What a run asks of a baseline, before anything is measured again or written.

    Attributes:
        baseline: as it is, empty where there is none yet.
        changes: what is decided.
        confirm: rows outside their band, to be measured again by fresh workers.
        refused: rows of the run that cannot be pinned, by reason.
        orphans: rows of the baseline that no case and implementation of the workload has any more.
        pinning: how the run is pinned.
        measured: the first times of the rows to confirm.
    """

    baseline: Baseline
    changes: tuple[Change, ...]
    confirm: tuple[RowKey, ...]
    refused: tuple[tuple[RowKey, str], ...]
    orphans: tuple[RowKey, ...]
    pinning: Pinning
    measured: tuple[tuple[RowKey, _Candidate], ...]

    @property
    def to_measure(self) -> tuple[RowKey, ...]:
        """What fresh workers run: rows to confirm, and the references that their ratios are to."""
        reference = self.pinning.reference
        beside = {(case, reference) for case, _ in self.confirm} if reference else set()
        return tuple(sorted({*self.confirm, *beside}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A baseline after pinning, what became of each row of the run, and the orphans still in it."""

    baseline: Baseline
    changes: tuple[Change, ...]
    refused: tuple[tuple[RowKey, str], ...] = ()
    orphans: tuple[RowKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinning:
    """How a run is pinned.

    Attributes:
        machine: where the run was made.
        known: every row that the workload has, to tell orphans; `None` looks for none.
        reference: `gate.reference`: kernels get their ratio to it.
        uncommitted: the tree was not committed and the person allowed it; the rows say so.
        accept: rows whose number and anchor are taken as measured, with the reason.
        discard: rows that must not be pinned (thermal slowdown, a foreign process), with the reason.
        taught: what the sessions beside the baseline show; a number that is written gets its band by it.
    """

    machine: Machine
    known: frozenset[RowKey] | None = None
    reference: str | None = None
    uncommitted: bool = False
    accept: tuple[tuple[RowKey, str], ...] = ()
    discard: tuple[tuple[RowKey, str], ...] = ()
    taught: Taught = field(default_factory=Taught)


def plan_pin(
    workload: str, baseline: Baseline | None, outcomes: Sequence[Outcome], pinning: Pinning
) -> PinPlan:
    """Decide what pinning a run does to the baseline of one workload.

    Args:
        workload: its name; outcomes of other workloads are left out.
        baseline: what is pinned now; `None` where nothing is.
        outcomes: of a run, all or some of the workload's rows.
        pinning: how it is to be pinned.

    Raises:
        UsageError: a row to accept was not timed by the run, or its reason is empty.
        ValueError: the baseline is of other hardware or of another workload.
    """
    hardware = pinning.machine.hardware
    baseline = baseline or Baseline(workload=workload, hardware=hardware, rows=())
    if (baseline.workload, baseline.hardware) != (workload, hardware):
        raise ValueError(f"the baseline of {baseline.workload} on {baseline.hardware} is another's")
    ours = [outcome for outcome in outcomes if outcome.row.workload == workload]
    candidates, refused = _candidates(ours, pinning)
    _check_accepted(candidates, pinning)
    rows = {row_key(row): row for row in baseline.rows}
    changes: list[Change] = []
    confirm: list[RowKey] = []
    for key, candidate in sorted(candidates.items()):
        change = _decide(rows.get(key), candidate, pinning)
        if change is None:
            confirm.append(key)
        else:
            changes.append(change)
    known = pinning.known
    return PinPlan(
        baseline=baseline,
        changes=tuple(changes),
        confirm=tuple(confirm),
        refused=tuple(sorted(refused.items())),
        orphans=() if known is None else tuple(sorted(set(rows) - known)),
        pinning=pinning,
        measured=tuple((key, candidates[key]) for key in confirm),
    )


def apply(plan: PinPlan, confirmed: Sequence[Outcome] = (), *, prune: bool = False) -> Pinned:
    """Carry out a plan with what fresh workers measured of the rows it asked to confirm.

    A row that was confirmed gets the number of the fresh workers, which no selection has touched; one
    that is back within its band, or that could not be measured again, keeps its number.

    Args:
        plan: of `plan_pin`.
        confirmed: outcomes of the second measurement, with the gate's reference where there is one.
        prune: drop orphans, which otherwise stay.
    """
    again, _ = _candidates(confirmed, plan.pinning)
    rows = {row_key(row): row for row in plan.baseline.rows}
    changes = list(plan.changes)
    for key, first in plan.measured:
        changes.append(_confirm(rows[key], first, again.get(key), plan.pinning))
    for change in changes:
        rows[row_key(change.row)] = change.row
    for key in plan.orphans if prune else ():
        del rows[key]
    baseline = replace(plan.baseline, rows=tuple(rows[key] for key in sorted(rows)))
    return Pinned(
        baseline=baseline,
        changes=tuple(sorted(changes, key=lambda change: row_key(change.row))),
        refused=plan.refused,
        orphans=() if prune else plan.orphans,
    )


# --- What a run offers ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A timed row that may be pinned, with its ratio to the gate's reference of the same run."""

    timed: Timed
    ratio: float | None = None
    ratio_band: float | None = None


def _candidates(
    outcomes: Sequence[Outcome], pinning: Pinning
) -> tuple[dict[RowKey, _Candidate], dict[RowKey, str]]:
    discard = dict(pinning.discard)
    timed: dict[RowKey, Timed] = {}
    refused: dict[RowKey, str] = {}
    for outcome in outcomes:
        key = (outcome.row.case, outcome.row.implementation)
        if not isinstance(outcome, Timed):
            refused[key] = _why_not(outcome)
        elif key in discard:
            refused[key] = discard[key]
        else:
            timed[key] = outcome
    return {key: _candidate(key, timed, pinning) for key in timed}, refused


def _why_not(outcome: Outcome) -> str:
    reason = outcome.untimed if isinstance(outcome, Verified) else getattr(outcome, "reason", "")
    return f"{type(outcome).__name__.lower()}: {reason}"


def _candidate(key: RowKey, timed: Mapping[RowKey, Timed], pinning: Pinning) -> _Candidate:
    own = timed[key]
    other = timed.get((key[0], pinning.reference or ""))
    if own.row.role != "kernel" or other is None or other.row.role != "reference":
        return _Candidate(timed=own)
    sds = (own.estimate.within_sd, other.estimate.within_sd)
    session_sd = max(_session_sd(own, pinning), _session_sd(other, pinning))
    return _Candidate(
        timed=own,
        ratio=own.estimate.midmean_us / other.estimate.midmean_us,
        ratio_band=band(sds, len(own.estimate.placements_us), session_sd),
    )


def _check_accepted(candidates: Mapping[RowKey, _Candidate], pinning: Pinning) -> None:
    for key, reason in pinning.accept:
        name = "/".join(key)
        if key not in candidates:
            raise UsageError(f"{name} cannot be accepted: the run has no time of it")
        if not reason.strip():
            raise UsageError(f"{name}: accepting a number needs a reason (--reason)")


# --- What becomes of a row ------------------------------------------------------------------------


def _decide(old: PinnedRow | None, new: _Candidate, pinning: Pinning) -> Change | None:
    """The change of one row; `None` where it must be confirmed first."""
    fresh = _fresh(new, pinning)
    key = (new.timed.row.case, new.timed.row.implementation)
    accepted = dict(pinning.accept).get(key)
    if accepted is not None:
        row = sealed(replace(fresh, reason=_told(accepted, pinning)))
        return Change(kind="accepted", row=row, old=old, why=accepted)
    if old is None:
        return Change(kind="added", row=sealed(fresh))
    why = _why_incomparable(old, fresh)
    if why:
        # A broken seal frees no one of the anchor: an edited row must not be a way to raise it.
        same = old.problem == fresh.problem and old.protocol == fresh.protocol
        anchor = min(old.anchor_us, fresh.midmean_us) if same else fresh.anchor_us
        return Change(
            kind="replaced", row=sealed(replace(fresh, anchor_us=anchor)), old=old, why=why
        )
    if _outside(old, new, pinning) == (0, 0):
        return _kept(old, new, pinning)
    return None


def _why_incomparable(old: PinnedRow, fresh: PinnedRow) -> str:
    if not is_sealed(old):
        return "the seal was broken: edited by hand, or merged from two measurements"
    changed = [
        name for name in ("problem", "protocol") if getattr(old, name) != getattr(fresh, name)
    ]
    return f"another {' and '.join(changed)}" if changed else ""


def _confirm(
    old: PinnedRow, first: _Candidate, second: _Candidate | None, pinning: Pinning
) -> Change:
    if second is None:
        return _kept(old, first, pinning, why="outside its band, but not measured again")
    before, now = _outside(old, first, pinning), _outside(old, second, pinning)
    time_moved, ratio_moved = (
        side != 0 and side == again for side, again in zip(before, now, strict=True)
    )
    if not time_moved and not ratio_moved:
        return _kept(old, second, pinning, why="outside its band once, not again")
    fresh = _fresh(second, pinning)
    row = _follow(old, second, pinning)
    if time_moved:
        row = replace(
            row,
            midmean_us=fresh.midmean_us,
            band=fresh.band,
            session_sd=fresh.session_sd,
            unit=fresh.unit,
            anchor_us=min(old.anchor_us, fresh.midmean_us),
            reason=fresh.reason,
        )
    if ratio_moved:
        row = replace(row, ratio=fresh.ratio, ratio_band=fresh.ratio_band)
    moved = " and ".join(
        name for name, one in (("time", time_moved), ("ratio", ratio_moved)) if one
    )
    return Change(
        kind="rewritten", row=sealed(row), old=old, why=f"{moved} outside the band, and again"
    )


def _kept(old: PinnedRow, new: _Candidate, pinning: Pinning, why: str = "") -> Change:
    return Change(kind="kept", row=sealed(_follow(old, new, pinning)), old=old, why=why)


def _outside(old: PinnedRow, new: _Candidate, pinning: Pinning) -> tuple[int, int]:
    """On which side of their bands time and ratio lie: -1 faster, 0 within, 1 slower."""
    extra = 0.0 if old.unit == _unit(new.timed, pinning.machine) else OTHER_UNIT
    time = _side(new.timed.estimate.midmean_us, old.midmean_us, old.band + extra)
    ratio = 0
    if old.ratio is not None and old.ratio_band is not None and new.ratio is not None:
        ratio = _side(new.ratio, old.ratio, old.ratio_band + extra)
    return time, ratio


def _side(new: float, old: float, width: float) -> int:
    relative = rounded(new) / old - 1
    return 0 if abs(relative) <= width else int(math.copysign(1, relative))


def _follow(old: PinnedRow, new: _Candidate, pinning: Pinning) -> PinnedRow:
    """The old numbers with everything else as the run has it; a ratio that was missing is added."""
    fresh = _fresh(new, pinning)
    added = old.ratio is None and fresh.ratio is not None
    return replace(
        fresh,
        midmean_us=old.midmean_us,
        band=old.band,
        session_sd=old.session_sd,
        anchor_us=old.anchor_us,
        ratio=fresh.ratio if added else old.ratio,
        ratio_band=fresh.ratio_band if added else old.ratio_band,
        unit=old.unit,  # where the number came from, and the number is the old one
        reason=_told(old.reason or "", pinning),
    )


def _fresh(new: _Candidate, pinning: Pinning) -> PinnedRow:
    """The row as if nothing were pinned yet."""
    timed, estimate = new.timed, new.timed.estimate
    code = timed.ran
    unchecked = timed.verification.method == "unchecked"
    reason = f"not checked: {timed.verification.detail or 'no oracle'}" if unchecked else ""
    midmean_us = rounded(estimate.midmean_us)
    session_sd = _session_sd(timed, pinning)
    return PinnedRow(
        case=timed.row.case,
        implementation=timed.row.implementation,
        midmean_us=midmean_us,
        band=band((estimate.within_sd,), len(estimate.placements_us), session_sd),
        session_sd=session_sd if pinning.taught.draws else None,
        anchor_us=midmean_us,
        problem=timed.problem,
        protocol=timed.protocol,
        code=code.digest,
        source=timed.source,
        env=digest.environment(pinning.machine),
        unit=_unit(timed, pinning.machine),
        ratio=new.ratio,
        ratio_band=new.ratio_band,
        resources=code.resources,
        configuration=code.configuration,
        reason=_told(reason, pinning),
    )


def _session_sd(timed: Timed, pinning: Pinning) -> float:
    """s_session of a row, as the sessions beside the baseline show it."""
    return pinning.taught.of(row_name(timed.row.key, digest_of_timed(timed)))


def _unit(timed: Timed, machine: Machine) -> str:
    """The unit that a row was measured on: the run's, unless the run used several."""
    return timed.unit or machine.unit or "none"


def _told(reason: str, pinning: Pinning) -> str | None:
    """The reason of a row, with what `pin` was told to overlook; said once, and no longer than true."""
    own = [part for part in reason.split("; ") if part and part != UNCOMMITTED]
    return "; ".join([*own, *([UNCOMMITTED] if pinning.uncommitted else [])]) or None
