"""`tirbench new`: a first workload."""

from __future__ import annotations

import os

import click

from tirbench.commands import shared


@click.command("new")
@click.argument("name", metavar="NAME")
def command(name: str) -> None:
    """Write workloads/NAME.toml and its kernel: a small one that is right, to be made into your own."""
    from tirbench import scaffold

    written = scaffold.new(name, shared.root())
    workload, kernel, *schema_file = (os.path.relpath(path) for path in written)
    click.echo(f"{workload}\n{kernel}")
    steps = [f"tirbench schema > {path}" for path in schema_file]
    steps += [f"tirbench check {workload}", f"tirbench verify {workload} --select smoke"]
    click.echo("next:" + "".join(f"\n  {step}" for step in steps), err=True)
