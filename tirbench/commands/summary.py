"""`tirbench summary`: a kept run in the terminal, with what it is against its pins."""

from __future__ import annotations

import click

from tirbench.commands import shared


@click.command("summary")
@click.argument("run_id", default="latest", metavar="[RUN]")
def command(run_id: str) -> int:
    """Show a kept run against its pins: RUN is an id below .tirbench/runs, or latest."""
    from tirbench import reporting, store
    from tirbench.report import brief

    root = shared.root()
    page = reporting.page_of(root, store.read_run(root, run_id))
    look = shared.look()
    click.echo(brief.render(page, **look), nl=False, color=look["color"])
    return 0
