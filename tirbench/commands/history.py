"""`tirbench history`: the pinned numbers of a case through git."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from tirbench.commands import shared


@click.command("history")
@click.argument("name", metavar="CASE")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(name: str, *, as_json: bool) -> int:
    """Every commit that changed a pinned number of CASE: workload/case, or one row of it."""
    from tirbench import causes
    from tirbench.report import rows

    found = causes.history(shared.root(), name)
    shown = shared.look()
    if as_json:
        data = {"schema": 1, "pinnings": [asdict(one) for one in found]}
        click.echo(json.dumps(data, indent=2))
    else:
        click.echo(rows.history_text(found, **shown), nl=False, color=shown["color"])
    return 0
