"""`tirbench aot`: what the compilers say of every kernel, on a machine without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tirbench.commands import shared

if TYPE_CHECKING:
    from tirbench.model import CompiledSuite
    from tirbench.reading import Reading


def _archs(_: click.Context, __: click.Parameter, given: str | None) -> tuple[str, ...]:
    parts = (given or "").split(",")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


@click.command("aot")
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("-k", "keyword", metavar="TEXT", help="Only cases whose workload/case contains TEXT.")
@click.option("--select", metavar="LIST", help="A list of [select]: default, smoke, cpu, all, …")
@click.option(
    "--arch",
    "archs",
    callback=_archs,
    metavar="sm_90[,sm_100]",
    help="Default: the devices that are pinned on, or sm_90.",
)
@click.option(
    "--base",
    metavar="BASE",
    help="Both sides of what is written otherwise than where BASE parted; `--facts` reads the JSON.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Add what a pinned row lacks of its resources, where it is of the code compiled here.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "json")),
    default="text",
    help="json is what `--facts` of diff, gate and exec reads.",
)
def command(
    archs: tuple[str, ...], base: str | None, form: str, *, write: bool, **given: Any
) -> int:
    """Compile kernels without a GPU: registers, spills, shared memory, occupancy, code digest.

    Imports the kernel files, in processes of their own: code of a stranger belongs in a job without
    privileges, which hands its --format json on. Exits 1 where a kernel of the project does not compile.
    """
    from tirbench.reading import read
    from tirbench.report import problems
    from tirbench.selection import Selection

    if base is not None and (write or given["keyword"] or given["select"]):
        raise click.UsageError("--base goes with FILES alone: it compiles what differs of them")
    reading = read(Selection(**given))
    if reading.problems:
        click.echo(
            problems.render(reading.problems, "text", workloads=0, cases=0), err=True, nl=False
        )
    both = base is not None
    suite = _both(reading, str(base), archs, form) if both else _one(reading, archs, form, write)
    broken = any(one.code is None and one.row.role == "kernel" for one in suite.compilations)
    return 2 if reading.problems else 1 if broken else 0


def _one(reading: Reading, archs: tuple[str, ...], form: str, write: bool) -> CompiledSuite:
    """Compile and print what was named; complete the rows of its pins where that is asked for."""
    from tirbench import compiling
    from tirbench.report import compilations
    from tirbench.report.text import count

    suite = compiling.compiled(reading, archs or compiling.pinned_archs(reading))
    render = {
        "text": compilations.compilations_text,
        "markdown": compilations.compilations_markdown,
        "json": compilations.compilations_json,
    }
    click.echo(render[form](suite), nl=False)
    for path, rows in compiling.completed(reading, suite) if write else ():
        shared.say(f"{path}: resources of {count(rows, 'row')} completed")
    return suite


def _both(reading: Reading, base: str, archs: tuple[str, ...], form: str) -> CompiledSuite:
    """Compile and print both sides of what differs."""
    from tirbench import compiling, sides
    from tirbench.report import compilations

    files = [chosen.workload.source.path for chosen in reading.chosen]
    with sides.opened(reading.root, base, files=files) as found:
        both = compiling.compiled_sides(found, archs)
        changes = found.compare(both).code
    render = {
        "text": compilations.sides_text,
        "markdown": compilations.sides_markdown,
        "json": compilations.sides_json,
    }
    click.echo(render[form](both, changes), nl=False)
    return both.head
