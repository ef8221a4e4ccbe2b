"""What the commands of this package share: where the project is, how a result is shown."""

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
    from tirbench.store import Tree

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("text", "markdown", "json", "github")
TIMERS = ("event", "proton", "cudagraph_proton", "kineto", "wall")
"""As `tirbench.model.TIMERS`, which `--help` does not pay for; a test holds them equal."""


def form(command: F) -> F:
    """--format."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="text",
        help="How the result is written.",
    )(command)


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


def progress(total: int = 0) -> AbstractContextManager[Callable[[Any], None]]:
    """Shows on stderr what is being measured."""
    from tirbench.report.progress import progress as shown

    return shown(sys.stderr, total=total)


def run_rows(
    reading: Reading, rows: Sequence[Row], options: Options, tree: Tree
) -> Sequence[Outcome]:
    """Run rows in fresh workers, as a run that is kept."""
    from tirbench import pipeline

    chosen = pipeline.only(reading, rows)
    with progress(len(rows)) as watch:
        return pipeline.run(chosen, options, tree, watch, say).run.outcomes
