"""`tirbench show`: what a workload means."""

from __future__ import annotations

from typing import Any

import click

from tirbench.commands import shared


@click.command("show")
@shared.files
def command(**given: Any) -> int:
    """The expanded workload, as a reviewer reads it."""
    from tirbench.report import listing

    reading = shared.read(given)
    invalid = shared.print_problems(reading)
    for chosen in reading.chosen:
        for case in chosen.cases:
            click.echo(listing.show(case))
    return 2 if invalid else 0
