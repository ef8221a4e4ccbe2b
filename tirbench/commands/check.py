"""`tirbench check`: everything that is wrong with workloads, in whatever form it is wanted."""

from __future__ import annotations

from typing import Any

import click

from tirbench.commands import shared


@click.command("check")
@shared.files
@click.option(
    "--format",
    "form",
    type=click.Choice((*shared.FORMATS, "sarif")),
    default="text",
    help="How the problems are written.",
)
def command(**given: Any) -> int:
    """Everything that can be known of workloads without running them, of every case unless one is named."""
    from tirbench import reading
    from tirbench.report import problems

    given["select"] = given["select"] or "all"
    checked = reading.check(shared.selection(given))
    text = problems.render(
        checked.found, given["form"], workloads=checked.workloads, cases=checked.cases
    )
    click.echo(text, nl=False)
    return 0 if checked.right else 2
