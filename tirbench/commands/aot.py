"""`tirbench aot`: what the compilers say of every kernel, on a machine without a GPU."""

from __future__ import annotations

from typing import Any

import click


def _archs(_: click.Context, __: click.Parameter, given: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in given.split(",") if part.strip()))


@click.command("aot")
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("-k", "keyword", metavar="TEXT", help="Only cases whose workload/case contains TEXT.")
@click.option("--select", metavar="LIST", help="A list of [select]: default, smoke, cpu, all, …")
@click.option(
    "--arch", "archs", default="sm_90", callback=_archs, metavar="sm_90[,sm_100]", show_default=True
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "json")),
    default="text",
    help="json is what `diff --facts` reads.",
)
def command(archs: tuple[str, ...], form: str, **given: Any) -> int:
    """Compile kernels without a GPU: registers, spills, shared memory, occupancy, code digest.

    Imports the kernel files, in processes of their own: code of a stranger belongs in a job without
    privileges, which hands its --format json on. Exits 1 where a kernel of the project does not compile.
    """
    from tirbench import reviewing
    from tirbench.reading import read
    from tirbench.report import compilations, problems
    from tirbench.selection import Selection

    reading = read(Selection(**given))
    if reading.problems:
        click.echo(
            problems.render(reading.problems, "text", workloads=0, cases=0), err=True, nl=False
        )
    suite = reviewing.compiled(reading, archs)
    render = {
        "text": compilations.compilations_text,
        "markdown": compilations.compilations_markdown,
        "json": compilations.compilations_json,
    }
    click.echo(render[form](suite), nl=False)
    broken = any(one.code is None and one.row.role == "kernel" for one in suite.compilations)
    return 2 if reading.problems else 1 if broken else 0
