"""`tirbench schema`: the schema of workloads, for editors."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of workload files."""
    from importlib.resources import files as resources

    text = (resources("tirbench") / "schema" / "workload.schema.json").read_text(encoding="utf-8")
    click.echo(text, nl=False)
