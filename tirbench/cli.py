"""The command line: what the user writes, what is printed, and the exit code. Nothing else prints.

Results go to stdout, progress and messages to stderr. Exit codes: 0 fine, 1 wrong result, 2 invalid input or
usage, 3 something could not be measured, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from tirbench import __version__
from tirbench.errors import TirbenchError

if TYPE_CHECKING:
    from tirbench.model import Outcome, Row
    from tirbench.pipeline import Options
    from tirbench.reading import Reading
    from tirbench.store import KeptRun, Tree

F = TypeVar("F", bound=Callable[..., Any])

TIMERS = ("event", "proton", "cudagraph_proton", "kineto", "wall")
FORMATS = ("text", "markdown", "json", "github")


def main() -> None:
    """Run the command line; every error that a user can cause ends in one message and its exit code."""
    try:
        code = commands.main(standalone_mode=False, prog_name="tirbench")
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; what was finished is kept", err=True)
        code = 130
    except TirbenchError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` is no error
        code = 0
    sys.exit(code or 0)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tirbench")
def commands() -> None:
    """Checked, trustworthy, pinned times of GPU kernels from reviewed TOML files.

    FILES are paths, globs, folders, or file::case-glob, as in workloads/rmsnorm.toml::hs4096_*.
    """


# --- Options that several commands share ----------------------------------------------------------


def files(command: F) -> F:
    """FILES, -k and --select."""
    for decorate in (
        click.argument("files", nargs=-1, required=True, metavar="FILES..."),
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
        click.option(
            "--device", type=click.Choice(["cuda", "cpu"]), help="Default: cuda where there is one."
        ),
        click.option(
            "--require", type=click.Choice(["cuda"]), help="Exit 3 where this device is not there."
        ),
    ):
        command = decorate(command)
    return command


# --- Commands -------------------------------------------------------------------------------------


@commands.command("exec")
@files
@running
@form
@click.option("--timer", type=click.Choice(TIMERS), help="Instead of the workload's timer.")
@click.option(
    "--placements", type=click.IntRange(1, 64), default=5, help="Placement seeds to measure on."
)
@click.option("--rounds", type=click.IntRange(1, 64), default=2, help="Rounds on each placement.")
@click.option("--pin", is_flag=True, help="Accept the run into the baselines.")
@click.option("--allow-dirty", is_flag=True, help="Pin an uncommitted tree; the rows say so.")
def exec_(**given: Any) -> int:
    """Verify, time and report cases; --pin accepts the times into the baselines."""
    from tirbench import pipeline, store

    reading, options = _prepare(given, time=True)
    tree = store.read_tree(reading.root)
    if given["pin"]:
        store.require_committed(tree, allow_dirty=given["allow_dirty"])
    kept = _run(reading, options, tree)
    _print_run(kept, given["form"])
    if given["pin"]:
        asked = pipeline.PinOptions(allow_dirty=given["allow_dirty"])
        _pin(reading, kept, asked, options, tree)
    return pipeline.exit_code(kept.run.outcomes, invalid=bool(reading.problems))


@commands.command()
@files
@running
@form
def verify(**given: Any) -> int:
    """Check that every kernel is right; time nothing."""
    from tirbench import pipeline, store

    reading, options = _prepare(given, time=False)
    kept = _run(reading, options, store.read_tree(reading.root))
    _print_run(kept, given["form"])
    return pipeline.exit_code(kept.run.outcomes, invalid=bool(reading.problems))


@commands.command()
@files
@form
def check(**given: Any) -> int:
    """Everything that can be known of workloads without running them, of every case unless one is named."""
    given["select"] = given["select"] or "all"
    reading = _read(given)
    return 2 if _print_problems(reading, given["form"], quiet=False) else 0


@commands.command("list")
@files
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_(**given: Any) -> int:
    """The ids of the selected cases."""
    from tirbench.report import listing

    reading = _read(given)
    invalid = _print_problems(reading, "text", quiet=True)
    cases = [case for chosen in reading.chosen for case in chosen.cases]
    click.echo(listing.list_json(cases) if given["as_json"] else listing.list_text(cases), nl=False)
    return 2 if invalid else 0


@commands.command()
@files
def show(**given: Any) -> int:
    """The expanded workload, as a reviewer reads it."""
    from tirbench.report import listing

    reading = _read(given)
    invalid = _print_problems(reading, "text", quiet=True)
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
    invalid = _print_problems(reading, "text", quiet=True)
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
    from tirbench.load import find_root
    from tirbench.reading import read
    from tirbench.selection import Selection

    root = find_root(Path.cwd() / "pyproject.toml")
    kept = store.read_run(root, run_id)
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
    from tirbench.selection import Selection

    return read(
        Selection(
            files=given["files"], keyword=given["keyword"], select=given["select"], beside=beside
        )
    )


def _prepare(given: dict[str, Any], *, time: bool) -> tuple[Reading, Options]:
    """Read the files and settle the device; problems of files are printed, the others still run."""
    from tirbench.errors import MeasurementError
    from tirbench.execute import has_cuda
    from tirbench.pipeline import Options

    there = has_cuda()
    wanted = given["require"] or given["device"]
    if wanted == "cuda" and not there:
        raise MeasurementError(
            "no CUDA device here: --device cpu verifies and times what a CPU can"
        )
    default: Literal["cuda", "cpu"] = "cuda" if there else "cpu"
    device: Literal["cuda", "cpu"] = given["device"] or default
    reading = _read(given, frozenset({"smoke", "cpu"}) if device == "cpu" else frozenset())
    _print_problems(reading, "text", quiet=True)
    options = Options(
        device=device,
        timer=given.get("timer"),
        placements=given.get("placements", 1),
        rounds=given.get("rounds", 1),
        time=time,
    )
    return reading, options


def _run(reading: Reading, options: Options, tree: Tree) -> KeptRun:
    from tirbench import pipeline
    from tirbench.report.progress import progress

    total = sum(len(case.implementations) for chosen in reading.chosen for case in chosen.cases)
    with progress(sys.stderr, total=total) as watch:
        return pipeline.run(reading, options, tree, watch, lambda line: click.echo(line, err=True))


def _pin(reading: Reading, kept: KeptRun, asked: Any, options: Options, tree: Tree) -> None:
    from tirbench import pipeline
    from tirbench.report.pins import pinned_text

    def measure_again(rows: tuple[Row, ...]) -> Sequence[Outcome]:
        click.echo(f"{len(rows)} row(s) left their band: measured again in fresh workers", err=True)
        return _run(pipeline.only(reading, rows), options, tree).run.outcomes

    for done in pipeline.pin(reading, kept.run, tree, asked, measure_again):
        click.echo(pinned_text(done), err=True)


def _print_problems(reading: Reading, form: str, *, quiet: bool) -> bool:
    """Print what is wrong with the files; answers whether anything is."""
    from tirbench.report import problems

    if reading.problems or not quiet:
        cases = sum(len(chosen.cases) for chosen in reading.chosen)
        text = problems.render(reading.problems, form, workloads=len(reading.chosen), cases=cases)
        click.echo(text, err=quiet, nl=False)
    return bool(reading.problems)


def _print_run(kept: KeptRun, form: str) -> None:
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
    )
    click.echo(text, nl=False, color=look.color)
