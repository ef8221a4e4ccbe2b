"""`tirbench list`: which cases there are."""

from __future__ import annotations

from typing import Any

import click

from tirbench.commands import shared


@click.command("list")
@shared.files
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(**given: Any) -> int:
    """The ids of the selected cases."""
    from tirbench.report import listing

    reading = shared.read(given)
    invalid = shared.print_problems(reading)
    cases = [case for chosen in reading.chosen for case in chosen.cases]
    click.echo(listing.list_json(cases) if given["as_json"] else listing.list_text(cases), nl=False)
    return 2 if invalid else 0
