"""Runs that begin with a kept one: continued, its failures run again, one of its cases replayed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tirbench import pipeline, running, store
from tirbench.errors import MeasurementError, UsageError
from tirbench.model import CaseJob, Failed, Job, Machine, Row, Timed, Wrong
from tirbench.reading import Reading, read
from tirbench.running import Finisher, Options
from tirbench.selection import Chosen, Selection

if TYPE_CHECKING:
    from tirbench.execute.events import Event


def reading_of(root: Path, kept: store.KeptRun) -> Reading:
    """The workloads of a run as they are now, with every case.

    Raises:
        UsageError: one of them is gone.
    """
    files = tuple(str(root / path) for path in kept.workload_paths)
    reading = read(Selection(files=files, select="all"))
    named = tuple(
        replace(chosen, explicit=chosen.workload.name in kept.explicit) for chosen in reading.chosen
    )
    return replace(reading, chosen=named)


def resume(
    root: Path,
    kept: store.KeptRun,
    watch: Callable[[Event], None],
    say: Callable[[str], None],
    gpus: int | None = None,
    wait_s: float | None = None,
) -> store.KeptRun:
    """Run what a run that was cut short has not answered, into its folder and by its plan.

    Args:
        root: the project's folder.
        kept: the run.
        watch: is shown every event as it happens.
        say: takes a sentence when another run holds the device.
        gpus: as in `Options`.
        wait_s: likewise.

    Raises:
        UsageError: there is nothing to continue, or what is left would not be of the same code.
        MeasurementError: this is another machine.
    """
    if kept.run.complete:
        raise UsageError(f"run {kept.run.id} is complete: there is nothing to resume")
    if not kept.inputs:
        raise UsageError(f"run {kept.run.id} was cut before anything ran: start it again")
    reading = pipeline.only(reading_of(root, kept), kept.rows)
    if pipeline.inputs(reading) != kept.inputs:
        raise UsageError(
            f"the workloads or kernels have changed since run {kept.run.id} was started, and a run is "
            "of one state of the code: start a new one"
        )
    machine = kept.run.machine
    _require_machine(machine)
    with store.resume_run(root, kept) as writer:
        jobs = tuple(_cut(kept.jobs, writer.unanswered))
        if not jobs:
            return store.read_run(root, kept.run.id)
        options = replace(_options(jobs, gpus), wait_s=wait_s)
        finish = Finisher(reading.chosen, options, root, machine)
        finish.roofs = kept.run.roofs
        for event in running.run_jobs(jobs, options, writer, finish, say):
            watch(event)
    return store.read_run(root, kept.run.id)


def failed_rows(kept: store.KeptRun) -> tuple[Row, ...]:
    """The rows of a run that were wrong, failed, or were never answered."""
    bad = {o.row.key for o in kept.run.outcomes if isinstance(o, Wrong | Failed)}
    bad |= {row.key for row in kept.unanswered}
    return tuple(row for row in kept.rows if row.key in bad)


def failed(reading: Reading, kept: store.KeptRun) -> Reading:
    """The reading cut down to `failed_rows`, and to the references that a check of theirs needs."""
    rows = failed_rows(kept)
    wanted = {(row.workload, row.case) for row in rows}
    needed = tuple(
        Row(
            workload=case.workload.name,
            case=case.id,
            implementation=rule.not_worse_than,
            role="reference",
        )
        for chosen in reading.chosen
        for case in chosen.cases
        if (case.workload.name, case.id) in wanted
        for rule in case.check.outputs
        if rule.not_worse_than is not None
    )
    return pipeline.only(reading, (*rows, *needed))


def replay(
    root: Path,
    kept: store.KeptRun,
    name: str,
    tree: store.Tree,
    watch: Callable[[Event], None],
    say: Callable[[str], None],
) -> store.KeptRun:
    """Run one case of a run again, as a run of its own: the same program, plan and tuned choices.

    Args:
        root: the project's folder.
        kept: the run.
        name: `workload/case`, or the case alone where only one workload has it.
        tree: what git said before anything was measured.
        watch: is shown every event as it happens.
        say: takes sentences: what has changed since, what is waited for.

    Raises:
        UsageError: the run has no such case, or did not run it.
        MeasurementError: the device of the run is not there.
    """
    from tirbench.execute import describe

    job = _job_of(kept, name)
    (case,) = job.cases
    _require_device(job.plan.device)
    machine = describe(job.plan.device)
    program = Path(job.harness).read_text(encoding="utf-8")
    options = _options((job,), None)
    chosen = _unchanged(root, kept, job, program)
    if not chosen:
        say(f"{job.workload} has changed since run {kept.run.id}: its kept program is run")
    with store.open_run(
        root,
        machine=machine,
        rows=case.rows,
        tree=tree,
        suite=kept.suite,
        workload_paths=[path for path in kept.workload_paths if Path(path).stem == job.workload],
    ) as writer:
        again = replace(job, harness=str(writer.harness(Path(job.harness).name, program)))
        writer.jobs([again], kept.explicit & {job.workload}, "")
        finish = Finisher(chosen, options, root, machine)
        if machine.unit == kept.run.machine.unit:
            finish.roofs = kept.run.roofs
        for event in running.run_jobs([again], options, writer, finish, say):
            watch(event)
    return store.read_run(root, writer.id)


def changes(before: store.KeptRun, after: store.KeptRun) -> Iterator[str]:
    """For each row that both runs have, what it was and what it is, in a line."""
    then = {outcome.row.key: outcome for outcome in before.run.outcomes}
    for now in after.run.outcomes:
        was = then.get(now.row.key)
        if isinstance(was, Timed) and isinstance(now, Timed):
            old_us, new_us = was.estimate.midmean_us, now.estimate.midmean_us
            code = "" if was.source == now.source or not now.source else "; its source has changed"
            yield (
                f"{now.row.key}: {old_us:.4g} µs then, {new_us:.4g} µs now "
                f"(new / old {new_us / old_us:.4f}){code}"
            )
        elif was is not None:
            old, new = (type(one).__name__.lower() for one in (was, now))
            yield f"{now.row.key}: {old} then, {new} now"


def _require_device(device: str) -> None:
    """Refuse to run on something else.

    Raises:
        MeasurementError: there is no such device.
    """
    from tirbench.execute import has_cuda

    if device == "cuda" and not has_cuda():
        raise MeasurementError("the run was made on a CUDA device, and there is none here")


def _require_machine(machine: Machine) -> None:
    """Refuse to go on where the numbers would be of something else.

    Raises:
        MeasurementError: this is another machine, or another environment.
    """
    from tirbench.execute import describe

    _require_device(machine.kind)
    here = describe(machine.kind)
    for what, then, now in (
        ("hardware", machine.hardware, here.hardware),
        ("unit", machine.unit, here.unit),
        ("versions", machine.versions, here.versions),
    ):
        if then != now:
            raise MeasurementError(
                f"the run was made with other {what} ({then}, here {now}): start a new one"
            )


def _cut(jobs: Iterable[Job], rows: Iterable[Row]) -> Iterator[Job]:
    """The jobs without what is not among these rows."""
    left = {row.key for row in rows}
    for job in jobs:
        cases = tuple(
            replace(case, rows=kept)
            for case in job.cases
            if (kept := tuple(row for row in case.rows if row.key in left))
        )
        if cases:
            yield replace(job, cases=cases)


def _options(jobs: tuple[Job, ...], gpus: int | None) -> Options:
    """The options that made these jobs."""
    plan = jobs[0].plan
    return Options(
        device=plan.device,
        timer=plan.timer,
        placements=plan.placements,
        rounds=plan.rounds,
        time=any(case.time for job in jobs for case in job.cases),
        gpus=gpus,
    )


def _job_of(kept: store.KeptRun, name: str) -> Job:
    """The job of one case, with the tuned choices that it made."""
    found = {f"{job.workload}/{case.case}": (job, case) for job in kept.jobs for case in job.cases}
    named = [key for key in found if name in (key, key.partition("/")[2])]
    if len(named) != 1:
        rows = [row for row in kept.rows if name in (f"{row.workload}/{row.case}", row.case)]
        if not named and rows:
            why = {o.row.key: getattr(o, "reason", "") for o in kept.run.outcomes}.get(rows[0].key)
            raise UsageError(f"run {kept.run.id} did not run {name}: {why or 'it was cut short'}")
        close = difflib.get_close_matches(name, found, n=3)
        hint = f"; did you mean {' or '.join(named or close)}?" if named or close else ""
        which = "is ambiguous" if named else "is no case"
        raise UsageError(f"{name} {which} of run {kept.run.id}{hint}")
    job, case = found[named[0]]
    return replace(job, cases=(_tuned(kept, job, case),))


def _tuned(kept: store.KeptRun, job: Job, case: CaseJob) -> CaseJob:
    """The case with the configurations that were chosen for it, so that nothing is tuned again."""
    chosen = dict(case.configurations)
    for outcome in kept.run.outcomes:
        mine = (outcome.row.workload, outcome.row.case) == (job.workload, case.case)
        if mine and isinstance(outcome, Timed) and outcome.code and outcome.code.configuration:
            chosen[outcome.row.implementation] = outcome.code.configuration
    return replace(case, configurations=tuple(sorted(chosen.items())))


def _unchanged(root: Path, kept: store.KeptRun, job: Job, program: str) -> tuple[Chosen, ...]:
    """The workload, if it still says what it said: it renders to the kept program."""
    try:
        reading = pipeline.only(reading_of(root, kept), kept.rows)
    except UsageError:
        return ()
    same = (chosen for chosen in reading.chosen if chosen.workload.name == job.workload)
    return tuple(chosen for chosen in same if pipeline.rendered(chosen).text == program)
