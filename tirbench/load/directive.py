"""The first line of a workload, by which editors know its schema: `#:schema PATH`."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tirbench.diagnostics import Problems
from tirbench.load.schema import SCHEMA_FILE

if TYPE_CHECKING:
    from tirbench.diagnostics import Diagnostic
    from tirbench.model import Source

SCHEMA_NAME: Final = "workload.schema.json"
IN_TREE: Final = f"tirbench/schema/{SCHEMA_NAME}"
"""Where the schema lies in a checkout of tirbench; elsewhere it is written beside the workloads."""

_LINE: Final = re.compile(r"#:schema[ \t]+(\S[^\n]*)")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+://")


def schema_path(root: str, folder: str) -> str:
    """The path of the schema as workloads of a folder write it: with forward slashes, relative to the folder.

    Args:
        root: the project's folder.
        folder: that of the workloads, relative to the root.
    """
    if os.path.isfile(os.path.join(root, IN_TREE)):  # noqa: PTH113, PTH118 - as relpath takes it
        return os.path.relpath(IN_TREE, folder or ".").replace(os.sep, "/")
    return f"./{SCHEMA_NAME}"


def check_directive(source: Source) -> tuple[Diagnostic, ...]:
    """A warning where the first line names a schema that is not that of this tirbench.

    A file may do without the line: a kind of a plug-in, for one, is in no schema that is shipped.
    """
    first = source.text.split("\n", 1)[0].rstrip("\r")
    match = _LINE.fullmatch(first.rstrip())
    right = schema_path(source.root, source.folder)
    hint = f"begin the file with '#:schema {right}'"
    file = "/".join(filter(None, (source.folder, right.removeprefix("./"))))
    write = f"write it with 'tirbench schema > {file}'"
    if match is None:
        return ()
    written = match[1].strip()
    if _URL.match(written):
        return ()
    state = _state(source.root, os.path.join(source.root, source.folder, written))  # noqa: PTH118 - a hostile text
    if state == "same":
        return ()
    message = {
        "outside": f"the schema '{written}' is outside the project",
        "missing": f"there is no schema '{written}'",
        "other": f"the schema '{written}' is not that of this tirbench",
    }[state]
    return _warning(source, message, write if written == right else hint, match.start(1) + 1)


def _warning(source: Source, message: str, hint: str, column: int) -> tuple[Diagnostic, ...]:
    problems = Problems(source.path, source.text)
    first = source.text.split("\n", 1)[0]
    length = max(1, len(first.rstrip()) - column + 1)
    problems.add_at(
        "TB007", message, line=1, column=column, length=length, hint=hint, severity="warning"
    )
    return problems.diagnostics()


@lru_cache(maxsize=256)
def _state(root: str, path: str) -> str:
    """What lies at a path: `same`, `other`, `missing`, or `outside`."""
    try:
        real, inside = os.path.realpath(path), os.path.realpath(root)
        if os.path.commonpath([real, inside]) != inside:
            return "outside"
        if not os.path.isfile(real):  # noqa: PTH113 - a hostile text may raise in Path
            return "missing"
        if os.path.getsize(real) != SCHEMA_FILE.stat().st_size:  # noqa: PTH202 - see above
            return "other"
        with open(real, "rb") as file:  # noqa: PTH123 - see above
            return "same" if file.read() == SCHEMA_FILE.read_bytes() else "other"
    except (OSError, ValueError):
        return "missing"
