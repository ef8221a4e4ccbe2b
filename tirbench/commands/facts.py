"""What the compilers say of two revisions, for the commands that compare them: handed over, or made here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tirbench.commands import shared

if TYPE_CHECKING:
    from tirbench.model import Compilation, CompiledSides
    from tirbench.sides import Sides

F = TypeVar("F", bound=Callable[..., Any])


def handed_over(command: F) -> F:
    """--facts."""
    return click.option(
        "--facts",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="What `aot --base BASE --format json` wrote: which code is the same. Imports nothing.",
    )(command)


def options(command: F) -> F:
    """--facts and --compile."""
    made = click.option(
        "--compile",
        "compile_here",
        is_flag=True,
        help="Compile here what is written otherwise, both sides: imports their kernel files.",
    )
    return handed_over(made(command))


def read(file: Path) -> CompiledSides:
    """The facts of a file.

    Raises:
        UsageError: it is no such file.
    """
    from tirbench import codec
    from tirbench.errors import UsageError
    from tirbench.model import CompiledSides, CompiledSuite
    from tirbench.report.compilations import FORMAT

    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != FORMAT:
            raise UsageError(f"{file}: facts of form {data['schema']}, this is {FORMAT}")
        return CompiledSides(
            base=codec.load(CompiledSuite, data["base"]),
            head=codec.load(CompiledSuite, data["facts"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, codec.CodecError) as error:
        raise UsageError(
            f"{file}: no facts of two revisions, as `tirbench aot --base BASE --format json` writes "
            f"them: {type(error).__name__}: {error}"
        ) from error


def of(found: Sides, facts: Path | None, *, compile_here: bool) -> CompiledSides | None:
    """What a command was given of both sides, or is asked to make.

    Args:
        found: both sides.
        facts: the file that was handed over.
        compile_here: as the option.

    Raises:
        UsageError: both are asked for.
    """
    if facts is not None and compile_here:
        raise click.UsageError("--facts hands over what --compile would make: give one of them")
    if facts is not None:
        return read(facts)
    return made(found) if compile_here else None


def made(found: Sides, archs: tuple[str, ...] = ()) -> CompiledSides:
    """Compile what is written otherwise, with a line on stderr for what does not compile."""
    from tirbench import compiling

    return compiling.compiled_sides(found, archs, _watch)


def _watch(one: Compilation) -> None:
    if one.code is None:
        from tirbench.report.text import plain

        shared.say(plain(f"{one.row.key} on {one.arch}: not compiled: {one.failure}"))
