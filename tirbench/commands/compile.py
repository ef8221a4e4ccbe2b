"""`tirbench compile`: the harness as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tirbench.commands import shared


@click.command("compile")
@shared.files
@click.option(
    "-o", "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build")
)
def command(out: Path, **given: Any) -> int:
    """Write the harness of each workload: Python that runs by itself."""
    from tirbench import pipeline

    reading = shared.read(given)
    invalid = shared.print_problems(reading)
    for path in pipeline.compile_(reading, out):
        click.echo(path)
    return 2 if invalid else 0
