"""`tirbench history`: the pinned numbers of a case through git, and what sessions show of them."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from tirbench.commands import shared


@click.command("history")
@click.argument("name", required=False, metavar="[CASE]")
@shared.text_or_json
def command(name: str | None, form: str) -> int:
    """Every commit that changed a pinned number of CASE, and how its rows vary between sessions.

    CASE is workload/case, or one row of it. Without CASE: what sessions show of all rows.
    """
    from tirbench import causes
    from tirbench.report import rows, sessions

    root = shared.root()
    found = () if name is None else causes.history(root, name)
    known = causes.sessions(root, name)
    shown = shared.look()
    if form == "json":
        data = {
            "schema": 1,
            "pinnings": [asdict(one) for one in found],
            "sessions": [asdict(one) for one in known],
        }
        click.echo(json.dumps(data, indent=2))
        return 0
    if found:
        click.echo(rows.history_text(found, **shown), color=shown["color"])
    if not known and not found:
        shared.say("nothing is pinned here")
    text = sessions.sessions_text(known, every=name is not None, **shown)
    click.echo(text, nl=False, color=shown["color"])
    return 0
