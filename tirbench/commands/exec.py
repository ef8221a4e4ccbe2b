"""`tirbench exec`: verify, time, report, and pin."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tirbench.commands import facts, measuring, shared

if TYPE_CHECKING:
    from tirbench.pipeline import Options
    from tirbench.reading import Reading


@click.command("exec")
@partial(shared.files, required=False)
@measuring.running
@shared.form
@click.option("--timer", type=click.Choice(shared.TIMERS), help="Instead of the workload's timer.")
@click.option(
    "--placements", type=click.IntRange(1, 64), default=5, help="Placement seeds to measure on."
)
@click.option("--rounds", type=click.IntRange(1, 64), default=2, help="Rounds on each placement.")
@click.option("--retune", is_flag=True, help="Let autotuners choose anew, not as they were pinned.")
@click.option("--pin", is_flag=True, help="Accept the run into the baselines.")
@click.option("--allow-dirty", is_flag=True, help="Pin an uncommitted tree; the rows say so.")
@click.option(
    "--changed",
    metavar="BASE",
    help="Only rows whose problem, protocol or code is not that of BASE, and not pinned since.",
)
@facts.handed_over
@click.option(
    "--resume", metavar="RUN", help="Go on with a run that was cut short; it has FILES and options."
)
@click.pass_context
def command(context: click.Context, /, **given: Any) -> int:
    """Verify, time and report cases; --pin accepts the times into the baselines."""
    from tirbench import pipeline, store

    if given["resume"] is not None:
        return _resume(context, given)
    if given["changed"] is not None:
        _settle(given)
    reading, options = measuring.prepare(given, time=True)
    if given["changed"] is not None:
        reading = _changed(reading, options, given)
    if not reading.chosen and (given["last_failed"] or given["changed"]):
        return 2 if reading.problems else 0
    tree = store.read_tree(reading.root)
    if given["pin"]:
        store.require_committed(tree, allow_dirty=given["allow_dirty"])
    kept = measuring.run(reading, options, tree)
    measuring.print_run(kept, given["form"], debug=given["debug"])
    if given["pin"]:
        asked = pipeline.PinOptions(allow_dirty=given["allow_dirty"])
        measuring.pin(reading, kept, asked, options, tree)
    return pipeline.exit_code(kept.run.outcomes, invalid=bool(reading.problems))


def _settle(given: dict[str, Any]) -> None:
    """What `--changed` looks at where nothing is named: all cases of all workloads.

    Raises:
        UsageError: rows are chosen in another way already.
    """
    if given["last_failed"]:
        raise click.UsageError("--changed and --last-failed choose rows in two ways: give one")
    given["files"] = given["files"] or (str(shared.root() / "workloads"),)
    given["select"] = given["select"] or "all"


def _changed(reading: Reading, options: Options, given: dict[str, Any]) -> Reading:
    """The rows that must be measured; says on stderr how many and about how long."""
    from tirbench import reviewing
    from tirbench.execute import describe
    from tirbench.report import diffs

    handed_over = given["facts"] and facts.read(given["facts"])
    hardware = describe(options.device).hardware
    found = reviewing.changed(reading, given["changed"], handed_over or None, hardware)
    shared.say(diffs.selected(found.diff))
    if not given["pin"] or not found.references:
        return found.reading
    shared.say(f"{len(found.references)} more: the references that the ratios of these are to")
    return found.with_references


def _resume(context: click.Context, given: dict[str, Any]) -> int:
    """`exec --resume`: everything but how the result is shown is settled by the run."""
    from tirbench import again, pipeline, store

    command_line = click.core.ParameterSource.COMMANDLINE
    free = {"resume", "form", "gpus", "wait", "pin", "allow_dirty"}
    settled = sorted(
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in free
        and context.get_parameter_source(str(parameter.name)) is command_line
        and given[str(parameter.name)]
    )
    if settled:
        raise click.UsageError(f"--resume goes on as the run was started: leave out {settled[0]}")
    root = shared.root()
    kept = store.read_run(root, given["resume"])
    tree = store.Tree(commit=kept.run.commit, dirty=kept.run.dirty)
    if given["pin"]:
        store.require_committed(tree, allow_dirty=given["allow_dirty"])
    with shared.progress(len(kept.unanswered)) as watch:
        kept = again.resume(root, kept, watch, shared.say, given["gpus"], given["wait"])
    measuring.print_run(kept, given["form"])
    if given["pin"]:
        options = pipeline.Options(device=kept.run.machine.kind)
        asked = pipeline.PinOptions(allow_dirty=given["allow_dirty"])
        measuring.pin(again.reading_of(root, kept), kept, asked, options, tree)
    return pipeline.exit_code(kept.run.outcomes, invalid=False)
