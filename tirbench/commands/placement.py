"""`tirbench placement`: how a case varies with where its tensors lie."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from tirbench.commands import shared


@click.command("placement")
@click.argument("name", metavar="CASE")
@click.option("--run", "run_id", default="latest", metavar="RUN", help="An id, or latest.")
@shared.text_or_json
def command(name: str, run_id: str, form: str) -> int:
    """How much the time of CASE depends on addresses, from the samples of a kept run.

    CASE is workload/case, or one row of it. `exec --placements 16` measures more addresses.
    """
    from tirbench import causes, store
    from tirbench.report import rows

    found = causes.placements(store.read_run(shared.root(), run_id), name)
    shown = shared.look()
    if form == "json":
        data = {"schema": 1, "rows": [asdict(one) for one in found]}
        click.echo(json.dumps(data, indent=2))
    else:
        click.echo(rows.placement_text(found, **shown), nl=False, color=shown["color"])
    return 0
