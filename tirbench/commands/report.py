"""`tirbench report`: a kept run as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from tirbench.commands import shared


@click.command("report")
@click.argument("run_id", default="latest", metavar="[RUN]")
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Default: report.html in the folder of the run; - is stdout.",
)
def command(run_id: str, out: Path | None) -> int:
    """Write a kept run as one HTML file that needs no network: RUN is an id or latest."""
    from tirbench import reporting, store
    from tirbench.report import page
    from tirbench.store.files import write

    root = shared.root()
    kept = store.read_run(root, run_id)
    text = page.render(reporting.page_of(root, kept))
    if out == Path("-"):
        click.echo(text, nl=False)
        return 0
    path = out or kept.folder / "report.html"
    write(path, text)
    click.echo(path)
    return 0
