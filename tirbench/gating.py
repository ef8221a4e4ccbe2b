"""`gate`: a kept run against the baselines beside its workloads, with what must be measured once more.

The rules are `judge.gate`'s. Here every row is accounted for: what the run timed, and what is pinned. A
row that trips is measured again or compared with the code of its pin by who is given for that; where nobody
is, it answers 3 with the command that would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tirbench import digest, pipeline, store
from tirbench.errors import TirbenchError
from tirbench.expand import expand
from tirbench.judge import GateFacts, exit_code, gate, same_code_as_pinned, shift_since_pins
from tirbench.judge.gate import is_at_fault
from tirbench.load import load
from tirbench.model import (
    Case,
    Environment,
    Estimate,
    Failed,
    GateDecision,
    GateReport,
    GateRow,
    GateStep,
    Outcome,
    PinnedRow,
    Row,
    Timed,
    TimerName,
    Verdict,
    Workload,
    Wrong,
)
from tirbench.plan import rows_of
from tirbench.store import revisions
from tirbench.store.baseline import parse_baseline
from tirbench.store.pin import OTHER_UNIT

if TYPE_CHECKING:
    from tirbench.reading import Reading

UNPAIRED_PLACEMENTS: Final = 10
"""K where a row is measured without the code of its pin beside it."""

DEFAULTS: Final = pipeline.Options(device="cuda")
"""How a row is measured that no run says anything of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A row that tripped, and the commit that holds the code of its pin."""

    row: Row
    commit: str


Measure: TypeAlias = "Callable[[Sequence[Row], int], Sequence[Outcome]]"
"""Runs rows in fresh workers on so many placement seeds."""

Confirm: TypeAlias = "Callable[[Sequence[Suspect]], Mapping[str, Verdict]]"
"""`ab` of each row against its commit: verdicts by `Row.key`; a row without one cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The baselines of one workload by hardware, and what is wrong with those that cannot be read."""

    by_hardware: Mapping[str, Mapping[tuple[str, str], PinnedRow]]
    unreadable: tuple[str, ...] = ()

    @classmethod
    def read(cls, root: Path, workload: Workload) -> Pins:
        """Every baseline beside a workload."""
        found: dict[str, dict[tuple[str, str], PinnedRow]] = {}
        unreadable: list[str] = []
        folder = root / workload.source.folder / "baselines"
        for file in sorted(folder.glob(f"*/{workload.name}.toml")):
            path = store.baseline_path(workload, file.parent.name)
            try:
                baseline = store.read_baseline(root, path)
            except store.BaselineError as error:
                unreadable.append(str(error))
                continue
            rows = () if baseline is None else baseline.rows
            found[file.parent.name] = {(row.case, row.implementation): row for row in rows}
        return cls(by_hardware=found, unreadable=tuple(unreadable))

    def of(self, key: tuple[str, str], hardware: str) -> tuple[PinnedRow | None, str]:
        """The pin of a row and where it is from: this hardware, else another that has one."""
        for name in (hardware, *sorted(self.by_hardware)):
            row = self.by_hardware.get(name, {}).get(key)
            if row is not None:
                return row, name
        return None, hardware


@dataclass(slots=True, kw_only=True)
class _Open:
    """A row that is being judged: its facts so far, and where it belongs."""

    row: Row
    path: str
    facts: GateFacts
    commit: str | None = None


def gate_run(
    reading: Reading,
    kept: store.KeptRun,
    *,
    measure: Measure | None = None,
    confirm: Confirm | None = None,
    why_not: str = "",
) -> GateReport:
    """Judge a kept run against the baselines of its workloads.

    Args:
        reading: the run's workloads as they are now, with every case.
        kept: the run, whole or not.
        measure: runs rows again; `None` where this machine is not the run's or nobody may.
        confirm: compares with old code; `None` likewise.
        why_not: the sentence that says why nothing is measured.
    """
    rows: list[GateRow] = []
    waiting: list[_Open] = []
    unreadable: list[str] = []
    plan = plan_of(kept)
    for chosen in reading.chosen:
        pins = Pins.read(reading.root, chosen.workload)
        unreadable += pins.unreadable
        if not pins.unreadable:
            waiting += _open_rows(reading.root, chosen.workload, pins, kept, plan, rows)
    environment = _environment(waiting, kept)
    waiting = [_with(item, environment=environment) for item in waiting]
    rows += _judged(reading.root, waiting, measure, confirm, why_not)
    rows += of_no_workload(reading, kept.run.machine.hardware)
    return GateReport(
        judged=f"run {kept.run.id}",
        rows=tuple(sorted(rows, key=lambda row: (row.workload, _key(row.decision)))),
        environment=environment,
        unreadable=tuple(unreadable),
        notes=kept.notes,
    )


def code_of(report: GateReport) -> int:
    """The exit code of a gate: 2 > 1 > 3 > 0."""
    return exit_code((row.decision for row in report.rows), invalid=bool(report.unreadable))


# --- Rows and what is known of them ---------------------------------------------------------------


def plan_of(kept: store.KeptRun) -> pipeline.Options:
    """How the run was made; of a run that planned nothing, the defaults."""
    device = kept.run.machine.kind
    if not kept.jobs:
        return replace(DEFAULTS, device=device)
    plan = kept.jobs[0].plan
    return pipeline.Options(
        device=device, timer=plan.timer, placements=plan.placements, rounds=plan.rounds
    )


def _open_rows(
    root: Path,
    workload: Workload,
    pins: Pins,
    kept: store.KeptRun,
    plan: pipeline.Options,
    decided: list[GateRow],
) -> Iterator[_Open]:
    """Every row of a workload that was timed, or failed, or is pinned here; the others are no matter."""
    hardware = kept.run.machine.hardware
    outcomes = {
        (o.row.case, o.row.implementation): o
        for o in kept.run.outcomes
        if o.row.workload == workload.name
    }
    cases = {case.id: case for case in expand(workload)}
    known = {
        (row.case, row.implementation): row for case in cases.values() for row in rows_of(case)
    }
    read = digest.reader(root)
    pinned_here = set(pins.by_hardware.get(hardware, {}))
    judged = {key for key, outcome in outcomes.items() if isinstance(outcome, Timed)}
    for key in sorted({*outcomes, *pinned_here}):
        outcome = outcomes.get(key)
        pinned, pinned_on = pins.of(key, hardware)
        row = known.get(key) or (outcome.row if outcome else _orphan(workload, key))
        if pinned is None and key not in judged:
            if isinstance(outcome, Wrong | Failed) and _fault(outcome):
                decided.append(_failed(workload, row, outcome))
            continue
        if pinned is not None and key not in pinned_here and key not in judged:
            continue  # pinned elsewhere, not timed here: no business of this machine
        problem, protocol = _digests(cases.get(key[0]), outcome, pinned_on, hardware, plan, read)
        yield _Open(
            row=row,
            path=workload.source.path,
            facts=GateFacts(
                case=key[0],
                implementation=key[1],
                known=key in known,
                pinned=pinned,
                pinned_on=pinned_on,
                sealed=pinned is None or store.is_sealed(pinned),
                problem=problem,
                protocol=protocol,
                hardware=hardware,
                outcome=outcome,
                slower_than=cases[key[0]].slower_than if key[0] in cases else 0.01,
                same_code=_same_code(pinned, outcome),
                unit_allowance=_allowance(pinned, outcome, kept),
                environment=Environment(rows=0, flagged=0, shift=None),
            ),
        )


def _orphan(workload: Workload, key: tuple[str, str]) -> Row:
    return Row(workload=workload.name, case=key[0], implementation=key[1], role="kernel")


def _fault(outcome: Wrong | Failed) -> bool:
    if outcome.row.role == "reference":
        return False
    return isinstance(outcome, Wrong) or is_at_fault(outcome)


def _failed(workload: Workload, row: Row, outcome: Wrong | Failed) -> GateRow:
    """A row without a pin that is wrong or failed: a pin would not mend it."""
    what = "wrong" if isinstance(outcome, Wrong) else f"failed to {outcome.stage}"
    decision = GateDecision(
        case=row.case,
        implementation=row.implementation,
        exit_code=1,
        rule="wrong",
        reason=f"{what}: {outcome.reason}",
    )
    return GateRow(workload=workload.name, path=workload.source.path, decision=decision)


def _digests(
    case: Case | None,
    outcome: Outcome | None,
    pinned_on: str,
    hardware: str,
    plan: pipeline.Options,
    read: digest.Read,
) -> tuple[str, str]:
    """Problem and protocol as of now: of the run where it measured, else of the workload as it is.

    A pin of another kind of device was taken by another timer: its protocol is that of a run there.
    """
    if case is None:
        return "", ""
    if isinstance(outcome, Timed) and pinned_on == hardware:
        return outcome.problem, outcome.protocol
    timer = timer_on(case, pinned_on, plan.timer if pinned_on == hardware else None)
    protocol = digest.protocol(case, timer, plan.placements, plan.rounds)
    if isinstance(outcome, Timed):
        return outcome.problem, protocol
    return digest.problem(case, read), protocol


def timer_on(case: Case, hardware: str, asked: TimerName | None = None) -> TimerName:
    """The timer that a case has on a class of hardware: `harness.timed.choose`, without its refusals."""
    on_cpu = hardware.startswith("cpu-")
    named = asked or case.workload.timer.name
    if named is not None and (named == "wall") == on_cpu:
        return named
    return "wall" if on_cpu else "proton"


def _same_code(pinned: PinnedRow | None, outcome: Outcome | None) -> bool:
    return (
        pinned is not None and isinstance(outcome, Timed) and same_code_as_pinned(pinned, outcome)
    )


def _allowance(pinned: PinnedRow | None, outcome: Outcome | None, kept: store.KeptRun) -> float:
    unit = outcome.unit if isinstance(outcome, Timed) else None
    here = unit or kept.run.machine.unit or "none"
    return 0.0 if pinned is None or pinned.unit == here else OTHER_UNIT


def _environment(waiting: Sequence[_Open], kept: store.KeptRun) -> Environment:
    """What the rows say whose code is the pin's: a change of theirs is everything but code."""
    unchanged: list[tuple[PinnedRow, Estimate]] = []
    for item in waiting:
        facts, pinned = item.facts, item.facts.pinned
        comparable = (
            pinned is not None
            and facts.known
            and facts.sealed
            and facts.same_code
            and facts.pinned_on == kept.run.machine.hardware
            and (facts.problem, facts.protocol) == (pinned.problem, pinned.protocol)
        )
        if comparable and pinned is not None and isinstance(facts.outcome, Timed):
            unchanged.append((pinned, facts.outcome.estimate))
    return shift_since_pins(unchanged)


def _with(item: _Open, **facts: object) -> _Open:
    item.facts = replace(item.facts, **facts)  # type: ignore[arg-type]
    return item


# --- Rows that trip -------------------------------------------------------------------------------


def _judged(
    root: Path,
    waiting: list[_Open],
    measure: Measure | None,
    confirm: Confirm | None,
    why_not: str,
) -> Iterator[GateRow]:
    """Decide; measure what must be measured, all rows of a step together; decide again."""
    while waiting:
        steps: dict[str, list[_Open]] = {}
        for item in waiting:
            answer = gate(item.facts)
            if isinstance(answer, GateDecision):
                yield _row(item, answer)
                continue
            pinned = item.facts.pinned
            if answer.step == "confirm" and item.commit is None and pinned is not None:
                item.commit = commit_of_pin(root, item.path, pinned, item.facts.pinned_on)
                if item.commit is None:
                    answer = gate(_with(item, confirmable=False).facts)
            if isinstance(answer, GateDecision):
                yield _row(item, answer)
            elif measure is None or (answer.step == "confirm" and confirm is None):
                yield _row(item, _to_measure(item, answer, why_not))
            else:
                steps.setdefault(answer.step, []).append(item)
        waiting = []
        for step, items in steps.items():
            if measure is not None:
                yield from _measured(step, items, measure, confirm, waiting)


def _measured(
    step: str,
    items: list[_Open],
    measure: Measure,
    confirm: Confirm | None,
    waiting: list[_Open],
) -> Iterator[GateRow]:
    """Carry out one step; rows with an answer go on waiting for their decision."""
    if step == "confirm" and confirm is not None:
        verdicts = confirm(
            [Suspect(row=item.row, commit=item.commit) for item in items if item.commit is not None]
        )
        for item in items:
            verdict = verdicts.get(item.row.key)
            change = {"confirmation": verdict} if verdict else {"confirmable": False}
            waiting.append(_with(item, **change))
        return
    placements = UNPAIRED_PLACEMENTS if step == "unpaired" else 0
    outcomes = {o.row.key: o for o in measure([item.row for item in items], placements)}
    for item in items:
        outcome = outcomes.get(item.row.key)
        if isinstance(outcome, Timed):
            waiting.append(_with(item, **{step: outcome.estimate}))
            continue
        why = getattr(outcome, "reason", "") or getattr(outcome, "untimed", "") or "no answer"
        yield _row(item, _unmeasured(item, f"tripped, and could not be measured again: {why}"))


def _to_measure(item: _Open, step: GateStep, why_not: str) -> GateDecision:
    """The row answers 3, with the command that would decide it."""
    case = f"{item.path}::{item.facts.case}"
    command = {
        "again": f"tirbench exec {case} && tirbench gate",
        "confirm": f"tirbench ab {revisions.short(item.commit or 'BASE')} {case}",
        "unpaired": f"tirbench exec {case} --placements {UNPAIRED_PLACEMENTS}",
    }[step.step]
    because = f"{why_not}; " if why_not else ""
    return _unmeasured(item, f"{step.reason}; {because}this decides it: {command}")


def _unmeasured(item: _Open, reason: str) -> GateDecision:
    facts = item.facts
    timed = facts.outcome if isinstance(facts.outcome, Timed) else None
    ratio = timed.estimate.midmean_us / facts.pinned.midmean_us if timed and facts.pinned else None
    return GateDecision(
        case=facts.case,
        implementation=facts.implementation,
        exit_code=3,
        rule="remeasure",
        reason=reason,
        ratio=ratio,
    )


def _row(item: _Open, decision: GateDecision) -> GateRow:
    facts = item.facts
    return GateRow(
        workload=item.row.workload,
        path=item.path,
        decision=decision,
        pinned_us=None if facts.pinned is None else facts.pinned.midmean_us,
        midmean_us=facts.outcome.estimate.midmean_us if isinstance(facts.outcome, Timed) else None,
    )


def _key(decision: GateDecision) -> tuple[str, str]:
    return decision.case, decision.implementation


# --- The code of a pin ----------------------------------------------------------------------------


def commit_of_pin(root: Path, workload_path: str, pinned: PinnedRow, hardware: str) -> str | None:
    """The commit that holds the code which a row was pinned with; `None` where git has none.

    The commit that brought the row as it stands, or one of its parents: a baseline is committed with its
    code or after it. The source digest of the row decides, so that no other code is taken for it.
    """
    folder, _, name = workload_path.rpartition("/")
    path = f"{folder}/baselines/{hardware}/{name}".lstrip("/")
    for commit in revisions.log(root, path):
        if _row_at(root, commit.id, path, pinned) != pinned:
            continue
        before = revisions.parents(root, commit.id)
        if before and all(_row_at(root, one, path, pinned) == pinned for one in before):
            continue  # another row changed here; this one is older
        for candidate in (commit.id, *before):
            if source_at(root, candidate, workload_path, pinned) == pinned.source:
                return candidate
    return None


def _row_at(root: Path, commit: str, path: str, pinned: PinnedRow) -> PinnedRow | None:
    text = revisions.show(root, commit, path)
    try:
        rows = () if text is None else parse_baseline(text, path).rows
    except store.BaselineError:  # a commit may hold conflict markers
        return None
    wanted = (pinned.case, pinned.implementation)
    return next((row for row in rows if (row.case, row.implementation) == wanted), None)


def source_at(root: Path, commit: str, workload_path: str, pinned: PinnedRow) -> str | None:
    """The source digest of a row at a commit, read from git alone; `None` where it has no such row."""
    with revisions.archived(root, commit) as folder:
        try:
            cases = expand(load(folder / workload_path, folder))
        except TirbenchError:
            return None
        case = next((case for case in cases if case.id == pinned.case), None)
        names = () if case is None else [one.name for one in case.implementations]
        if case is None or pinned.implementation not in names:
            return None
        return digest.source(case, pinned.implementation, digest.reader(folder))


# --- Baselines that no workload has ---------------------------------------------------------------


def of_no_workload(reading: Reading, hardware: str = "*") -> Iterator[GateRow]:
    """Baselines whose workload is gone: all of their rows are orphans, said once a file."""
    for folder in sorted({chosen.workload.source.folder for chosen in reading.chosen}):
        base = reading.root / folder
        for file in sorted(base.glob(f"baselines/{hardware}/*.toml")):
            if file.name == "device.toml" or (base / file.name).is_file():
                continue
            path = file.relative_to(reading.root).as_posix()
            decision = GateDecision(
                case="*",
                implementation="*",
                exit_code=1,
                rule="orphan",
                reason=f"{file.name} is no workload any more; delete {path}",
            )
            yield GateRow(workload=file.stem, path=path, decision=decision)
