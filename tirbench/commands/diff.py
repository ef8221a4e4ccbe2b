"""`tirbench diff`: what a branch changes in workloads and baselines, for who reviews it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tirbench.commands import shared

if TYPE_CHECKING:
    from pathlib import Path

    from tirbench.model import CompiledSuite


@click.command("diff")
@click.argument("base")
@click.argument("head", required=False)
@click.option(
    "--in", "files", multiple=True, metavar="PATH", help="Only this file or folder. Repeatable."
)
@click.option(
    "--facts",
    nargs=2,
    type=click.Path(exists=True, dir_okay=False),
    metavar="BASE.json HEAD.json",
    help="What `aot --format json` says of both: registers, spills, which code is the same.",
)
@click.option("--needs-measuring", is_flag=True, help="Print only the rows to measure again.")
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
    facts: tuple[str, str] | None,
    form: str,
    *,
    needs_measuring: bool,
) -> int:
    """Compare revisions BASE and HEAD (absent: the working tree), or two folders; weakening first.

    Exits 1 on weakening without a reason and on rows that are stale, missing or broken, 2 where a
    workload cannot be read.
    """
    from tirbench import diff as comparison
    from tirbench import reviewing
    from tirbench.report import diffs

    read = None if facts is None else (_facts(facts[0]), _facts(facts[1]))
    found = reviewing.diff(shared.root(), base, head, files=files, facts=read)
    code = comparison.exit_code(found)
    if needs_measuring:
        for row in found.measure:
            click.echo(row.key)
        return 2 if found.invalid else 0
    look = shared.look()
    click.echo(diffs.render(found, form, code=code, color=look["color"]), nl=False)
    return code


def _facts(file: str | Path) -> CompiledSuite:
    from pathlib import Path

    from tirbench import codec
    from tirbench.errors import UsageError
    from tirbench.model import CompiledSuite

    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
        return codec.load(CompiledSuite, data["facts"])
    except (ValueError, KeyError, TypeError, codec.CodecError) as error:
        raise UsageError(f"{file}: no facts of `tirbench aot --format json`: {error}") from error
