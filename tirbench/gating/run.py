"""The gate of a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirbench import store
from tirbench.gating.pins import Pins, of_no_workload
from tirbench.gating.rows import Open, Resolve, environment_of, open_rows, plan_of, with_facts
from tirbench.gating.trips import Confirm, Measure, judged
from tirbench.judge import exit_code
from tirbench.model import GateDecision, GateReport, GateRow

if TYPE_CHECKING:
    from tirbench.reading import Reading


def gate_run(
    reading: Reading,
    kept: store.KeptRun,
    *,
    measure: Measure | None = None,
    confirm: Confirm | None = None,
    resolve: Resolve = lambda _, __: "",
    why_not: str = "",
) -> GateReport:
    """Judge a kept run against the baselines of its workloads.

    Args:
        reading: the run's workloads as they are now, with every case.
        kept: the run, whole or not.
        measure: runs rows again; `None` where this machine is not the run's or nobody may.
        confirm: compares with old code; `None` likewise.
        resolve: says by the self-test of the run's hardware why a threshold cannot be told there.
        why_not: the sentence that says why nothing is measured.
    """
    rows: list[GateRow] = []
    waiting: list[Open] = []
    unreadable = [str(problem) for problem in reading.problems]
    plan = plan_of(kept)
    for chosen in reading.chosen:
        pins = Pins.read(reading.root, chosen.workload)
        unreadable += pins.unreadable
        if not pins.unreadable:
            waiting += open_rows(reading.root, chosen.workload, pins, kept, plan, rows, resolve)
    environment = environment_of(waiting, kept)
    waiting = [with_facts(item, environment=environment) for item in waiting]
    rows += judged(reading.root, waiting, measure, confirm, why_not)
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


def _key(decision: GateDecision) -> tuple[str, str]:
    return decision.case, decision.implementation
