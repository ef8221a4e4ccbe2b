"""`tirbench migrate FILES`: workload files of older versions, rewritten with comments and order."""

from __future__ import annotations

import difflib
from pathlib import Path

import click


@click.command("migrate")
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("--diff", is_flag=True, help="Print what would change; write nothing.")
def command(files: tuple[str, ...], *, diff: bool) -> int:
    """Rewrite workloads of older versions of the language for this one, with their comments and order."""
    from tirbench.errors import InputError
    from tirbench.load import VERSION
    from tirbench.load.migrate import MIGRATIONS, migrate
    from tirbench.selection import Selection, paths
    from tirbench.store.files import write

    faults: list[object] = []
    for path in paths(Selection(files=files)):
        try:
            text = _text(path)
            migrated = migrate(str(path), text, MIGRATIONS)
        except InputError as error:
            faults += error.diagnostics
            continue
        if migrated == text:
            click.echo(f"{path}: of version {VERSION} already", err=True)
        elif diff:
            click.echo("".join(_difference(str(path), text, migrated)), nl=False)
        else:
            write(path, migrated)
            click.echo(f"{path}: rewritten for version {VERSION}", err=True)
    if faults:
        raise InputError(tuple(faults))
    return 0


def _text(path: Path) -> str:
    """The text of a file.

    Raises:
        InputError: it cannot be read.
    """
    from tirbench.diagnostics import Problems
    from tirbench.errors import InputError
    from tirbench.load import find_root
    from tirbench.load.places import leads_outside
    from tirbench.load.read import read_text

    problems = Problems(str(path))
    if leads_outside(path, find_root(path)):  # what a link leads to would be written
        problems.add("TB001", (), "cannot be read: a link that leads out of the project")
    text = None if problems else read_text(path, problems)
    if text is None:
        raise InputError(problems.diagnostics())
    return text


def _difference(name: str, before: str, after: str) -> list[str]:
    """The unified difference of two texts of one file."""
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return list(difflib.unified_diff(old, new, name, name))
