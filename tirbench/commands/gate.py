"""`tirbench gate`: a run against the accepted numbers, or without a GPU two revisions of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tirbench.commands import facts, shared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tirbench.gating import Suspect
    from tirbench.model import CompiledSides, GateReport, Outcome, Row, Verdict
    from tirbench.reading import Reading
    from tirbench.sides import Sides
    from tirbench.store import KeptRun


@click.command("gate")
@click.argument("named", nargs=-1, metavar="[RUN] | --static BASE [FILES...]")
@click.option(
    "--confirm/--no-confirm",
    default=True,
    help="Measure rows that trip again, and compare them with the code of their pin.",
)
@click.option(
    "--static", "base", metavar="BASE", help="Measure nothing: what HEAD's pins say beside BASE's."
)
@facts.options
@shared.form
def command(
    named: tuple[str, ...],
    base: str | None,
    facts: Path | None,
    form: str,
    *,
    compile_here: bool,
    confirm: bool,
) -> int:
    """Judge a kept run against the baselines: RUN is an id below .tirbench/runs, or latest.

    Exits 0 where every row passes, 1 where one fails, 3 where one could not be decided here.
    """
    from tirbench import gating
    from tirbench.report import gates

    if base is not None:
        report = _static(base, named, facts, compile_here=compile_here)
    elif facts or compile_here:
        raise click.UsageError("--facts and --compile go with --static BASE")
    elif len(named) > 1:
        raise click.UsageError("gate takes one RUN; FILES go with --static BASE")
    else:
        report = _run(named[0] if named else "latest", confirm=confirm)
    code = gating.code_of(report)
    shown = shared.look()
    text = gates.render(report, form, code=code, **shown)
    click.echo(text, nl=False, color=shown["color"])
    return code


def _run(run_id: str, *, confirm: bool) -> GateReport:
    from tirbench import again, gating, selftest, store

    root = shared.root()
    kept = store.read_run(root, run_id)
    machine = kept.run.machine
    reading = again.reading_of(root, kept)
    why_not = _why_not(reading, kept, confirm=confirm)
    measuring = None if why_not else _Measuring(root, reading, kept)
    report = gating.gate_run(
        reading,
        kept,
        measure=measuring.measure if measuring else None,
        confirm=measuring.confirm if measuring else None,
        resolve=selftest.resolver(root, machine.hardware),
        why_not=why_not,
    )
    said = selftest.notes(root, machine.hardware, hint=machine.kind == "cuda")
    return replace(report, notes=(*report.notes, *said))


def _why_not(reading: Reading, kept: KeptRun, *, confirm: bool) -> str:
    """Why rows that trip are not measured here; empty where they are."""
    from tirbench import pipeline

    if not confirm:
        return "--no-confirm"
    if kept.inputs and pipeline.inputs(pipeline.only(reading, kept.rows)) != kept.inputs:
        return f"the workloads or kernels have changed since run {kept.run.id}"
    return shared.can_measure(kept.run.machine)


class _Measuring:
    """Measures rows that trip, on the machine of the run and with its plan."""

    def __init__(self, root: Path, reading: Reading, kept: KeptRun) -> None:
        from tirbench import gating, store

        self.root = root
        self.reading = reading
        self.options = gating.plan_of(kept)
        self.tree = store.read_tree(root)

    def measure(self, rows: Sequence[Row], placements: int) -> Sequence[Outcome]:
        """Fresh workers for these rows; 0 placements are those of the run."""
        from tirbench import store

        shared.say(f"{len(rows)} row(s) tripped: measured again in fresh workers")
        options = replace(self.options, placements=placements or self.options.placements)
        with store.keeping_latest(self.root):  # else the next gate would judge these rows alone
            return shared.run_rows(self.reading, rows, options, self.tree)

    def confirm(self, suspects: Sequence[Suspect]) -> Mapping[str, Verdict]:
        """`ab` of the rows, once for each commit that holds code of their pins."""
        from tirbench import comparing
        from tirbench.errors import UsageError
        from tirbench.store import revisions

        found: dict[str, Verdict] = {}
        for commit in sorted({suspect.commit for suspect in suspects}):
            rows = [suspect.row for suspect in suspects if suspect.commit == commit]
            shared.say(f"{len(rows)} row(s) tripped: compared with {revisions.short(commit)}")
            asked = comparing.Asked(
                base=commit,
                head=None,
                files=tuple(sorted(self._files(rows))),
                device=self.options.device,
                timer=self.options.timer,
                select="all",
                rows=frozenset(row.key for row in rows),
            )
            try:
                with shared.progress() as watch:
                    report = comparing.compare(self.root, asked, watch, shared.say)
            except UsageError as error:  # that code has no such row, or nothing here can run it
                shared.say(str(error))
                continue
            found.update({verdict.row.key: verdict for verdict in report.verdicts})
        return found

    def _files(self, rows: Sequence[Row]) -> set[str]:
        names = {row.workload for row in rows}
        return {
            chosen.workload.source.path
            for chosen in self.reading.chosen
            if chosen.workload.name in names
        }


def _static(
    base: str, files: tuple[str, ...], facts: Path | None, *, compile_here: bool
) -> GateReport:
    from tirbench import gating_static
    from tirbench.commands.facts import of

    def compiled(found: Sides) -> CompiledSides | None:
        return of(found, facts, compile_here=compile_here)

    return gating_static.gate_revisions(shared.root(), base, files, compile_=compiled)
