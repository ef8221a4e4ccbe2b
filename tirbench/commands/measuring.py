"""What the commands share that run rows and keep the run: exec, verify, pin and replay."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from tirbench.commands import shared

if TYPE_CHECKING:
    from tirbench.model import Outcome, Row
    from tirbench.pipeline import Options, PinOptions
    from tirbench.reading import Reading
    from tirbench.store import KeptRun, Tree

F = TypeVar("F", bound=Callable[..., Any])


# --- Options --------------------------------------------------------------------------------------


def running(command: F) -> F:
    """What exec and verify share."""
    for decorate in (
        click.option("--debug", is_flag=True, help="Show whole tracebacks."),
        click.option(
            "--device", type=click.Choice(["cuda", "cpu"]), help="Default: cuda where there is one."
        ),
        click.option(
            "--require", type=click.Choice(["cuda"]), help="Exit 3 where this device is not there."
        ),
        click.option(
            "--deadline",
            "deadlines",
            multiple=True,
            metavar="STAGE=SECONDS",
            callback=_deadlines,
            help="Instead of the workload's [deadlines]: time=20. Repeatable.",
        ),
        click.option(
            "--last-failed",
            is_flag=True,
            help="Only rows that were wrong, failed or unanswered in the latest run.",
        ),
        click.option(
            "--wait",
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            help="For a device that another run holds; left out, as long as it takes.",
        ),
        click.option(
            "--gpus",
            metavar="N|all",
            callback=_gpus,
            help="Spread the cases over so many of the visible GPUs.",
        ),
    ):
        command = decorate(command)
    return command


def _deadlines(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Any:
    """`time=20` as a `DeadlineChoice`."""
    from dataclasses import fields

    from tirbench.model import DeadlineChoice

    stages = [stage.name for stage in fields(DeadlineChoice)]
    chosen: dict[str, float] = {}
    for text in given:
        stage, _sign, number = text.partition("=")
        try:
            seconds = float(number)
        except ValueError:
            seconds = 0.0
        if stage not in stages or not 0 < seconds < float("inf"):
            raise click.BadParameter(
                f"{text}: write STAGE=SECONDS, with a stage of {', '.join(stages)}"
            )
        chosen[stage] = seconds
    return DeadlineChoice(**chosen)


def _gpus(_: click.Context, __: click.Parameter, given: str | None) -> int | None:
    """`all` as 0."""
    if given is None or given == "all":
        return None if given is None else 0
    if not given.isdigit() or int(given) == 0:
        raise click.BadParameter(f"{given}: write how many GPUs, or all")
    return int(given)


# --- From options to a run ------------------------------------------------------------------------


def prepare(given: dict[str, Any], *, time: bool) -> tuple[Reading, Options]:
    """Read the files and settle the device; problems of files are printed, the others still run.

    Raises:
        MeasurementError: the device that is asked for is not there.
    """
    from tirbench.errors import MeasurementError
    from tirbench.execute import has_cuda
    from tirbench.pipeline import Options

    if not given["files"] and not given["last_failed"]:
        raise click.UsageError("Missing argument 'FILES...'.")
    there = has_cuda()
    wanted = given["require"] or given["device"]
    if wanted == "cuda" and not there:
        raise MeasurementError(
            "no CUDA device here: --device cpu verifies and times what a CPU can"
        )
    default: Literal["cuda", "cpu"] = "cuda" if there else "cpu"
    device: Literal["cuda", "cpu"] = given["device"] or default
    if given["last_failed"]:
        reading = _failed(given)
    else:
        reading = shared.read(
            given, frozenset({"smoke", "cpu"}) if device == "cpu" else frozenset()
        )
    shared.print_problems(reading)
    options = Options(
        device=device,
        timer=given.get("timer"),
        placements=given.get("placements", 1),
        rounds=given.get("rounds", 1),
        time=time,
        retune=given.get("retune", False),
        deadlines=given["deadlines"],
        gpus=given["gpus"],
        wait_s=given["wait"],
    )
    return reading, options


def _failed(given: dict[str, Any]) -> Reading:
    """What FILES have, or the latest run had, of rows that were not right in the latest run."""
    from tirbench import again, store

    root = shared.root()
    kept = store.read_run(root)
    if given["files"]:
        reading = shared.read({**given, "select": given["select"] or "all"})
    else:
        reading = again.reading_of(root, kept)
    reading = again.failed(reading, kept)
    if not reading.chosen:
        shared.say(f"run {kept.run.id} has no row here that was wrong, failed or unanswered")
    return reading


def run(reading: Reading, options: Options, tree: Tree) -> KeptRun:
    """Run what was chosen, with its progress on stderr."""
    from tirbench import pipeline

    total = sum(len(case.implementations) for chosen in reading.chosen for case in chosen.cases)
    with shared.progress(total) as watch:
        return pipeline.run(reading, options, tree, watch, shared.say)


def pin(reading: Reading, kept: KeptRun, asked: PinOptions, options: Options, tree: Tree) -> None:
    """Accept a run into the baselines; rows that left their band are measured again first."""
    from tirbench import pipeline, store
    from tirbench.report.pins import pinned_text

    def measure_again(rows: tuple[Row, ...]) -> Sequence[Outcome]:
        shared.say(f"{len(rows)} row(s) left their band: measured again in fresh workers")
        with store.keeping_latest(reading.root):
            return run(pipeline.cases_of(reading, rows), options, tree).run.outcomes

    for done in pipeline.pin(reading, kept.run, tree, asked, measure_again):
        shared.say(pinned_text(done))


def print_run(kept: KeptRun, form: str, *, debug: bool = False) -> None:
    """Print the result of a run."""
    from tirbench import report
    from tirbench.report.terminal import look_of

    look = look_of(sys.stdout, os.environ)
    text = report.render(
        kept.run,
        form,
        width=look.width,
        color=look.color,
        notes=kept.notes,
        folder=f".tirbench/runs/{kept.run.id}",
        debug=debug,
    )
    click.echo(text, nl=False, color=look.color)
