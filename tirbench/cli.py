"""The command line: what the user writes, what is printed, and the exit code. Nothing else prints.

Results go to stdout, progress and messages to stderr. Exit codes: 0 fine, 1 wrong result, 2 invalid input or
usage, 3 something could not be measured, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from tirbench import __version__
from tirbench.commands.shared import FORMATS, TIMERS
from tirbench.errors import TirbenchError
from tirbench.signals import ending_in_order

if TYPE_CHECKING:
    from tirbench.model import Outcome, Row
    from tirbench.pipeline import Options
    from tirbench.reading import Reading
    from tirbench.selection import Selection
    from tirbench.store import KeptRun, Tree

F = TypeVar("F", bound=Callable[..., Any])

MODULES = (
    "ab",
    "aot",
    "diff",
    "gate",
    "history",
    "migrate",
    "placement",
    "report",
    "summary",
    "why",
)
"""Commands with a module of their own in `tirbench.commands`."""


def main() -> None:
    """Run the command line; every error that a user can cause ends in one message and its exit code."""
    gc.set_threshold(200_000)  # a command keeps what it makes: looking for garbage costs it a tenth
    try:
        with ending_in_order():
            code = commands.main(standalone_mode=False, prog_name="tirbench")
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; what was finished is kept", err=True)
        code = 130
    except TirbenchError as error:
        from tirbench.report.text import plain

        click.echo(f"error: {plain(str(error), lines=True)}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` is no error
        code = 0
    sys.exit(code or 0)


class Commands(click.Group):
    """The commands of this module, and those of `tirbench.commands`, imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, sorted."""
        return sorted({*super().list_commands(ctx), *MODULES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name in MODULES:
            found: click.Command = import_module(f"tirbench.commands.{cmd_name}").command
            return found
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="tirbench")
def commands() -> None:
    """Checked, trustworthy, pinned times of GPU kernels from reviewed TOML files.

    FILES are paths, globs, folders, or file::case-glob, as in workloads/rmsnorm.toml::hs4096_*.
    """


# --- Options that several commands share ----------------------------------------------------------


def files(command: F, *, required: bool = True) -> F:
    """FILES, -k and --select."""
    for decorate in (
        click.argument("files", nargs=-1, required=required, metavar="FILES..."),
        click.option(
            "-k", "keyword", metavar="TEXT", help="Only cases whose workload/case contains TEXT."
        ),
        click.option(
            "--select", metavar="LIST", help="A list of [select]: default, smoke, cpu, all, …"
        ),
    ):
        command = decorate(command)
    return command


def form(command: F) -> F:
    """--format."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="text",
        help="How the result is written.",
    )(command)


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


# --- Commands -------------------------------------------------------------------------------------


@commands.command("exec")
@partial(files, required=False)
@running
@form
@click.option("--timer", type=click.Choice(TIMERS), help="Instead of the workload's timer.")
@click.option(
    "--placements", type=click.IntRange(1, 64), default=5, help="Placement seeds to measure on."
)
@click.option("--rounds", type=click.IntRange(1, 64), default=2, help="Rounds on each placement.")
@click.option("--retune", is_flag=True, help="Let autotuners choose anew, not as they were pinned.")
@click.option("--pin", is_flag=True, help="Accept the run into the baselines.")
@click.option("--allow-dirty", is_flag=True, help="Pin an uncommitted tree; the rows say so.")
@click.option(
    "--resume", metavar="RUN", help="Go on with a run that was cut short; it has FILES and options."
)
@click.pass_context
def exec_(context: click.Context, /, **given: Any) -> int:
    """Verify, time and report cases; --pin accepts the times into the baselines."""
    from tirbench import pipeline, store

    if given["resume"] is not None:
        return _resume(context, given)
    reading, options = _prepare(given, time=True)
    if not reading.chosen and given["last_failed"]:
        return 0
    tree = store.read_tree(reading.root)
    if given["pin"]:
        store.require_committed(tree, allow_dirty=given["allow_dirty"])
    kept = _run(reading, options, tree)
    _print_run(kept, given["form"], debug=given["debug"])
    if given["pin"]:
        asked = pipeline.PinOptions(allow_dirty=given["allow_dirty"])
        _pin(reading, kept, asked, options, tree)
    return pipeline.exit_code(kept.run.outcomes, invalid=bool(reading.problems))


@commands.command()
@partial(files, required=False)
@running
@form
def verify(**given: Any) -> int:
    """Check that every kernel is right; time nothing."""
    from tirbench import pipeline, store

    reading, options = _prepare(given, time=False)
    if not reading.chosen and given["last_failed"]:
        return 0
    kept = _run(reading, options, store.read_tree(reading.root))
    _print_run(kept, given["form"], debug=given["debug"])
    return pipeline.exit_code(kept.run.outcomes, invalid=bool(reading.problems))


@commands.command()
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Default: cuda where there is one."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(device: Literal["cuda", "cpu"] | None, *, as_json: bool) -> int:
    """What this machine can measure and, for each thing it cannot, why and what to do."""
    from tirbench import doctor
    from tirbench.execute import has_cuda
    from tirbench.report import findings

    found = doctor.examine(device or ("cuda" if has_cuda() else "cpu"), _root(), _say)
    text = findings.findings_json(found) if as_json else findings.findings_text(found)
    click.echo(text, nl=False)
    return doctor.exit_code(found)


@commands.command()
@click.argument("run_id", metavar="RUN")
@click.argument("case", metavar="CASE")
@form
def replay(run_id: str, case: str, form: str) -> int:
    """Run one case of a kept run again exactly: its program, plan and tuned choices, as a new run."""
    from tirbench import again, pipeline, store

    root = _root()
    before = store.read_run(root, run_id)
    with _progress(total=0) as watch:
        after = again.replay(root, before, case, store.read_tree(root), watch, _say)
    _print_run(after, form)
    for line in again.changes(before, after):
        _say(line)
    return pipeline.exit_code(after.run.outcomes, invalid=False)


@commands.command()
@files
@click.option(
    "--format",
    "form",
    type=click.Choice((*FORMATS, "sarif")),
    default="text",
    help="How the problems are written.",
)
def check(**given: Any) -> int:
    """Everything that can be known of workloads without running them, of every case unless one is named."""
    from tirbench import reading
    from tirbench.report import problems

    given["select"] = given["select"] or "all"
    checked = reading.check(_selection(given))
    text = problems.render(
        checked.found, given["form"], workloads=checked.workloads, cases=checked.cases
    )
    click.echo(text, nl=False)
    return 0 if checked.right else 2


@commands.command()
@click.argument("code", metavar="CODE")
def explain(code: str) -> None:
    """What an error code means, with an example and its mending: tirbench explain TB021."""
    from tirbench.diagnostics import CODES, did_you_mean, explanations
    from tirbench.errors import UsageError

    known = code.upper()
    if known not in CODES:
        near = did_you_mean(known, CODES, "the codes are")
        raise UsageError(f"there is no error code {code}; {near}")
    click.echo(explanations.explain(known), nl=False)


@commands.command()
@click.argument("name", metavar="NAME")
def new(name: str) -> None:
    """Write workloads/NAME.toml and its kernel: a small one that is right, to be made into your own."""
    from tirbench import scaffold
    from tirbench.load import find_root

    root = find_root(Path.cwd() / "pyproject.toml")
    workload, kernel, *schema_file = (os.path.relpath(path) for path in scaffold.new(name, root))
    click.echo(f"{workload}\n{kernel}")
    steps = [f"tirbench schema > {path}" for path in schema_file]
    steps += [f"tirbench check {workload}", f"tirbench verify {workload} --select smoke"]
    click.echo("next:" + "".join(f"\n  {step}" for step in steps), err=True)


@commands.command("list")
@files
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_(**given: Any) -> int:
    """The ids of the selected cases."""
    from tirbench.report import listing

    reading = _read(given)
    invalid = _print_problems(reading)
    cases = [case for chosen in reading.chosen for case in chosen.cases]
    click.echo(listing.list_json(cases) if given["as_json"] else listing.list_text(cases), nl=False)
    return 2 if invalid else 0


@commands.command()
@files
def show(**given: Any) -> int:
    """The expanded workload, as a reviewer reads it."""
    from tirbench.report import listing

    reading = _read(given)
    invalid = _print_problems(reading)
    for chosen in reading.chosen:
        for case in chosen.cases:
            click.echo(listing.show(case))
    return 2 if invalid else 0


@commands.command("compile")
@files
@click.option(
    "-o", "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build")
)
def compile_(out: Path, **given: Any) -> int:
    """Write the harness of each workload: Python that runs by itself."""
    from tirbench import pipeline

    reading = _read(given)
    invalid = _print_problems(reading)
    for path in pipeline.compile_(reading, out):
        click.echo(path)
    return 2 if invalid else 0


@commands.command()
@click.argument("run_id", default="latest", metavar="[RUN]")
@click.option(
    "--accept", multiple=True, metavar="ROW", help="Take workload/case/implementation as measured."
)
@click.option("--reason", default="", help="Why the accepted rows are as they are.")
@click.option("--allow-dirty", is_flag=True, help="Pin an uncommitted tree; the rows say so.")
@click.option("--prune", is_flag=True, help="Drop rows that no workload has any more.")
def pin(
    run_id: str, accept: tuple[str, ...], reason: str, *, allow_dirty: bool, prune: bool
) -> int:
    """Accept a kept run into the baselines: RUN is an id below .tirbench/runs, or latest."""
    from tirbench import pipeline, store
    from tirbench.reading import read
    from tirbench.selection import Selection

    kept = store.read_run(_root(), run_id)
    tree = store.Tree(commit=kept.run.commit, dirty=kept.run.dirty)
    store.require_committed(tree, allow_dirty=allow_dirty)
    reading = read(Selection(files=tuple(kept.workload_paths), select="all"))
    options = pipeline.Options(device=kept.run.machine.kind)
    asked = pipeline.PinOptions(allow_dirty=allow_dirty, accept=accept, reason=reason, prune=prune)
    _pin(reading, kept, asked, options, tree)
    return 0


@commands.command()
def schema() -> None:
    """Print the JSON Schema of workload files."""
    from importlib.resources import files as resources

    click.echo(
        (resources("tirbench") / "schema" / "workload.schema.json").read_text(encoding="utf-8"),
        nl=False,
    )


# --- What commands share --------------------------------------------------------------------------


def _read(given: dict[str, Any], beside: frozenset[str] = frozenset()) -> Reading:
    from tirbench.reading import read

    return read(_selection(given, beside))


def _selection(given: dict[str, Any], beside: frozenset[str] = frozenset()) -> Selection:
    from tirbench.selection import Selection

    return Selection(
        files=given["files"], keyword=given["keyword"], select=given["select"], beside=beside
    )


def _root() -> Path:
    """The project that the working directory is in."""
    from tirbench.load import find_root

    return find_root(Path.cwd() / "pyproject.toml")


def _say(line: str) -> None:
    click.echo(line, err=True)


def _failed(given: dict[str, Any]) -> Reading:
    """What FILES have, or the latest run had, of rows that were not right in the latest run."""
    from tirbench import again, store

    root = _root()
    kept = store.read_run(root)
    if given["files"]:
        reading = _read({**given, "select": given["select"] or "all"})
    else:
        reading = again.reading_of(root, kept)
    reading = again.failed(reading, kept)
    if not reading.chosen:
        _say(f"run {kept.run.id} has no row here that was wrong, failed or unanswered")
    return reading


def _resume(context: click.Context, given: dict[str, Any]) -> int:
    """`exec --resume`: everything but how the result is shown is settled by the run."""
    from tirbench import again, pipeline, store

    command_line = click.core.ParameterSource.COMMANDLINE
    free = {"resume", "form", "gpus", "pin", "allow_dirty"}
    settled = sorted(
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in free
        and context.get_parameter_source(str(parameter.name)) is command_line
        and given[str(parameter.name)]
    )
    if settled:
        raise click.UsageError(f"--resume goes on as the run was started: leave out {settled[0]}")
    root = _root()
    kept = store.read_run(root, given["resume"])
    tree = store.Tree(commit=kept.run.commit, dirty=kept.run.dirty)
    if given["pin"]:
        store.require_committed(tree, allow_dirty=given["allow_dirty"])
    with _progress(total=len(kept.unanswered)) as watch:
        kept = again.resume(root, kept, watch, _say, given["gpus"])
    _print_run(kept, given["form"])
    if given["pin"]:
        options = pipeline.Options(device=kept.run.machine.kind)
        asked = pipeline.PinOptions(allow_dirty=given["allow_dirty"])
        _pin(again.reading_of(root, kept), kept, asked, options, tree)
    return pipeline.exit_code(kept.run.outcomes, invalid=False)


def _prepare(given: dict[str, Any], *, time: bool) -> tuple[Reading, Options]:
    """Read the files and settle the device; problems of files are printed, the others still run."""
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
        reading = _read(given, frozenset({"smoke", "cpu"}) if device == "cpu" else frozenset())
    _print_problems(reading)
    options = Options(
        device=device,
        timer=given.get("timer"),
        placements=given.get("placements", 1),
        rounds=given.get("rounds", 1),
        time=time,
        retune=given.get("retune", False),
        deadlines=given["deadlines"],
        gpus=given["gpus"],
    )
    return reading, options


def _run(reading: Reading, options: Options, tree: Tree) -> KeptRun:
    from tirbench import pipeline

    total = sum(len(case.implementations) for chosen in reading.chosen for case in chosen.cases)
    with _progress(total=total) as watch:
        return pipeline.run(reading, options, tree, watch, _say)


def _progress(*, total: int) -> AbstractContextManager[Callable[[Any], None]]:
    from tirbench.report.progress import progress

    return progress(sys.stderr, total=total)


def _pin(reading: Reading, kept: KeptRun, asked: Any, options: Options, tree: Tree) -> None:
    from tirbench import pipeline
    from tirbench.report.pins import pinned_text

    def measure_again(rows: tuple[Row, ...]) -> Sequence[Outcome]:
        click.echo(f"{len(rows)} row(s) left their band: measured again in fresh workers", err=True)
        return _run(pipeline.only(reading, rows), options, tree).run.outcomes

    for done in pipeline.pin(reading, kept.run, tree, asked, measure_again):
        click.echo(pinned_text(done), err=True)


def _print_problems(reading: Reading) -> bool:
    """Print what is wrong with the files to stderr; answers whether anything is."""
    from tirbench.report import problems

    if reading.problems:
        cases = sum(len(chosen.cases) for chosen in reading.chosen)
        workloads = len(reading.chosen)
        text = problems.render(reading.problems, "text", workloads=workloads, cases=cases)
        click.echo(text, err=True, nl=False)
    return bool(reading.problems)


def _print_run(kept: KeptRun, form: str, *, debug: bool = False) -> None:
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
