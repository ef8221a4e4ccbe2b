"""`tirbench why`: what differs between the pin of a row and a run of it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from tirbench.commands import shared


@click.command("why")
@click.argument("name", metavar="ROW")
@click.option("--run", "run_id", default="latest", metavar="RUN", help="An id, or latest.")
@shared.text_or_json
def command(name: str, run_id: str, form: str) -> int:
    """Why the time of ROW (workload/case/implementation) may differ from its pin, and what decides it."""
    from tirbench import causes, store
    from tirbench.report import rows

    root = shared.root()
    found = causes.why(root, store.read_run(root, run_id), name)
    shown = shared.look()
    if form == "json":
        click.echo(json.dumps({"schema": 1, **asdict(found)}, indent=2))
    else:
        click.echo(rows.why_text(found, **shown), nl=False, color=shown["color"])
    return 0
