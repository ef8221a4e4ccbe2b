"""What the commands of this package share: options, where the project is, how a result is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from tirbench.model import Machine, Outcome, Row
    from tirbench.pipeline import Options
    from tirbench.reading import Reading
    from tirbench.selection import Selection
    from tirbench.store import Tree

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("text", "markdown", "json", "github")
TIMERS = ("event", "proton", "cudagraph_proton", "kineto", "wall")
"""As `tirbench.model.TIMERS`, which `--help` does not pay for; a test holds them equal."""


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


def text_or_json(command: F) -> F:
    """--format of what is one row at length: there is nothing to annotate, and no table to paste."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(("text", "json")),
        default="text",
        help="How the result is written.",
    )(command)


def share_of_time(_: click.Context, __: click.Parameter, given: str | None) -> float | None:
    """`0.5%` or `0.005` as a share."""
    if given is None:
        return None
    number = given.replace(" ", "").removesuffix("%")
    try:
        share = float(number) / (100 if "%" in given else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise click.BadParameter(f"{given}: write a share of the time, as 0.5% or 0.005")
    return share


def root() -> Path:
    """The project that the working directory is in."""
    from tirbench.load import find_root

    return find_root(Path.cwd() / "pyproject.toml")


def say(line: str) -> None:
    """A sentence to stderr."""
    click.echo(line, err=True)


def look() -> dict[str, Any]:
    """Width and colours of stdout, as the renderers take them."""
    from tirbench.report.terminal import look_of

    found = look_of(sys.stdout, os.environ)
    return {"width": found.width, "color": found.color}


def device(asked: Literal["cuda", "cpu"] | None) -> Literal["cuda", "cpu"]:
    """The device that is asked for, or that there is.

    Raises:
        MeasurementError: it is not there.
    """
    from tirbench.errors import MeasurementError
    from tirbench.execute import has_cuda

    there = has_cuda()
    if asked == "cuda" and not there:
        raise MeasurementError("no CUDA device here: --device cpu compares what a CPU can run")
    return asked or ("cuda" if there else "cpu")


def can_measure(machine: Machine) -> str:
    """Why this machine cannot measure what another has; empty where it can."""
    from tirbench.execute import describe, has_cuda

    if machine.kind == "cuda" and not has_cuda():
        return "no CUDA device here"
    here = describe(machine.kind).hardware
    return "" if here == machine.hardware else f"this machine is {here}, not {machine.hardware}"


def selection(given: dict[str, Any], beside: frozenset[str] = frozenset()) -> Selection:
    """What `files` took from the command line."""
    from tirbench.selection import Selection

    return Selection(
        files=given["files"], keyword=given["keyword"], select=given["select"], beside=beside
    )


def read(given: dict[str, Any], beside: frozenset[str] = frozenset()) -> Reading:
    """The cases that `files` chose."""
    from tirbench import reading

    return reading.read(selection(given, beside))


def print_problems(reading: Reading) -> bool:
    """Print what is wrong with the files to stderr; answers whether anything is."""
    from tirbench.report import problems

    if reading.problems:
        cases = sum(len(chosen.cases) for chosen in reading.chosen)
        workloads = len(reading.chosen)
        text = problems.render(reading.problems, "text", workloads=workloads, cases=cases)
        click.echo(text, err=True, nl=False)
    return bool(reading.problems)


def progress(total: int = 0) -> AbstractContextManager[Callable[[Any], None]]:
    """Shows on stderr what is being measured."""
    from tirbench.report.progress import progress as shown

    return shown(sys.stderr, total=total)


def run_rows(
    reading: Reading, rows: Sequence[Row], options: Options, tree: Tree
) -> Sequence[Outcome]:
    """Run rows in fresh workers among all of their cases, as a run that is kept."""
    from tirbench import pipeline

    chosen = pipeline.cases_of(reading, rows)
    total = sum(len(case.implementations) for one in chosen.chosen for case in one.cases)
    with progress(total) as watch:
        return pipeline.run(chosen, options, tree, watch, say).run.outcomes
