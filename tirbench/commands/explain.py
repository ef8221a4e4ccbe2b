"""`tirbench explain`: an error code for people."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("code", metavar="CODE")
def command(code: str) -> None:
    """What an error code means, with an example and its mending."""
    from tirbench.diagnostics import CODES, did_you_mean, explanations
    from tirbench.errors import UsageError

    known = code.upper()
    if known not in CODES:
        near = did_you_mean(known, CODES, "the codes are")
        raise UsageError(f"there is no error code {code}; {near}")
    click.echo(explanations.explain(known), nl=False)
