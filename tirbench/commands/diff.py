"""`tirbench diff`: what a branch changes in workloads and baselines, for who reviews it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tirbench.commands import facts as compiled
from tirbench.commands import shared

if TYPE_CHECKING:
    from pathlib import Path


@click.command("diff")
@click.argument("base")
@click.argument("head", required=False)
@click.option(
    "--in", "files", multiple=True, metavar="PATH", help="Only this file or folder. Repeatable."
)
@compiled.options
@click.option(
    "--needs-measuring",
    is_flag=True,
    help="Print only the rows to measure again; how many and how long, to stderr.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "summary", "json", "github")),
    default="text",
    help="markdown fits a comment (64 KiB), summary a job summary (1 MiB).",
)
def command(
    base: str,
    head: str | None,
    files: tuple[str, ...],
    facts: Path | None,
    form: str,
    *,
    compile_here: bool,
    needs_measuring: bool,
) -> int:
    """Compare revisions BASE and HEAD (absent: the working tree), or two folders; weakening first.

    Exits 1 on weakening without a reason and on rows that are stale, missing or broken, 2 where a
    workload cannot be read. With --needs-measuring: 0 whether or not there is anything to measure.
    """
    from tirbench import diff as comparison
    from tirbench import sides
    from tirbench.report import diffs

    with sides.opened(shared.root(), base, head, files) as both:
        found = both.compare(compiled.of(both, facts, compile_here=compile_here))
    if needs_measuring:
        shared.say(diffs.selected(found))
        click.echo(diffs.needed(found, form), nl=False)
        return 2 if found.invalid else 0
    code = comparison.exit_code(found)
    look = shared.look()
    click.echo(diffs.render(found, form, code=code, color=look["color"]), nl=False)
    return code
