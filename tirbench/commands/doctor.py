"""`tirbench doctor`: what this machine can measure."""

from __future__ import annotations

from typing import Literal

import click

from tirbench.commands import shared


@click.command("doctor")
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Default: cuda where there is one."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(device: Literal["cuda", "cpu"] | None, *, as_json: bool) -> int:
    """What this machine can measure and, for each thing it cannot, why and what to do."""
    from tirbench import doctor
    from tirbench.execute import has_cuda
    from tirbench.report import findings

    found = doctor.examine(device or ("cuda" if has_cuda() else "cpu"), shared.root(), shared.say)
    text = findings.findings_json(found) if as_json else findings.findings_text(found)
    click.echo(text, nl=False)
    return doctor.exit_code(found)
