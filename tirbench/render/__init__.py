"""Case → Harness: the Python program that launches a workload's cases.

Same input, same bytes: no date, host or absolute path enters. Values enter as literals; what is code was
written by the expression compiler. Python computes here, the templates only choose where text stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench.errors import UsageError
from tirbench.launch.emit import Source, literal
from tirbench.model import Case, Harness, Workload
from tirbench.render.layout import placed, wrapper
from tirbench.render.writer import Writer

if TYPE_CHECKING:
    import jinja2

__all__ = ["environment", "render"]

FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def render(workload: Workload, cases: Sequence[Case]) -> Harness:
    """Write the program of these cases.

    Args:
        workload: the workload they come from.
        cases: in the order in which they will stand; skipped cases are left out.

    Raises:
        UsageError: the file's name cannot stand in a program's comments.
    """
    if not FILE_NAME.fullmatch(workload.name):
        raise UsageError(
            f"{workload.source.path}: a workload's file name holds letters, digits, _ . and - only"
        )
    writer = Writer(workload)
    cases = [case for case in cases if case.skipped is None]
    views = [writer.case(case) for case in cases]
    text = (
        environment()
        .get_template("harness.py.jinja")
        .render(program=writer.program(cases), cases=views, wrap=wrapper, placed=placed)
    )
    return Harness(
        name=f"{workload.name}.py",
        text=text,
        cases=tuple(case.id for case in cases),
        source_map=tuple(_source_map(text, f"{workload.name}.toml")),
    )


@cache
def environment() -> jinja2.Environment:
    """The Jinja environment of every template: undefined names are errors, values become literals."""
    import jinja2

    def finalize(value: object) -> str:
        return value if isinstance(value, Source) else literal(value)

    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.FileSystemLoader(_templates()), jinja2.FunctionLoader(_of_package)]
        ),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - Python is written here, where `finalize` makes every value a literal
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=finalize,
    )
    made.filters["written"] = Source  # for the output of a macro, which is source already
    return made


def _templates() -> Path:
    """The folder of the templates: inside the package in a wheel, beside it in a checkout or sdist."""
    package = Path(__file__).parents[1]
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def _of_package(name: str) -> str | None:
    """The template `package:path` of a plug-in, as it lies in its package; `None` for other names."""
    package, colon, path = name.partition(":")
    return files(package).joinpath(path).read_text(encoding="utf-8") if colon else None


def _source_map(text: str, toml: str) -> Iterable[tuple[int, int]]:
    marker = re.compile(rf"  # {re.escape(toml)}:(\d+)$")
    for number, line in enumerate(text.splitlines(), start=1):
        if found := marker.search(line):
            yield number, int(found[1])
