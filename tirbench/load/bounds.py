"""How large a document may be: far more than a person writes, and little enough for every check of it.

What is judged pair by pair (names against names, points against points) takes the square of these numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from tirbench.diagnostics import Problems
    from tirbench.model import Path as TomlPath

MAX_SOURCE: Final = 1 << 20
"""Bytes of a source file; reading one of Python takes two hundred times as much memory."""

MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 64
MAX_ENTRIES: Final = 1_000
"""Keys of a table, and entries of a list of texts or tables; cases and the points of axes may be more."""

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_KEY: Final = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{MAX_DEPTH}}}")


def read_source(path: Path) -> tuple[bytes, str]:
    """The bytes of a source file that a workload names, and why there are none."""
    try:
        if path.stat().st_size > MAX_SOURCE:
            return b"", f"larger than {MAX_SOURCE >> 20} MiB"
        return path.read_bytes(), ""
    except OSError as error:
        return b"", error.strerror or str(error)


def key_too_deep(text: str) -> int | None:
    """The offset of a dotted key of more parts than a document may be deep.

    A parser builds a path for every part of a key, the square of its length in memory, so this is asked
    before it.
    """
    at = 0
    for line in text.split("\n"):
        if line.count(".") >= MAX_DEPTH and (match := _LONG_KEY.search(line)):
            return at + match.start()
        at += len(line) + 1
    return None


def within_bounds(document: dict[str, Any], problems: Problems) -> bool:
    """Whether a document is of a size that is read; noted if not."""
    waiting: list[tuple[TomlPath, Any]] = [((), document)]
    values = 0
    while waiting:
        path, value = waiting.pop()
        number = len(value)
        values += number
        if len(path) > MAX_DEPTH:
            message = f"nested deeper than {MAX_DEPTH} tables and lists"
            problems.add("TB015", path[:2], message)
            return False
        if number > MAX_ENTRIES and not _may_be_long(path, value):
            what = "table" if isinstance(value, dict) else "list"
            message = f"a {what} has at most {MAX_ENTRIES:,} entries here, got {number:,}"
            problems.add("TB015", path, message, at="key")
            return False
        if values > MAX_VALUES:
            message = f"a workload has at most {MAX_VALUES:,} values"
            problems.add("TB015", path[:2], message, hint="a file of contents: init kind 'file'")
            return False
        items = value.items() if isinstance(value, dict) else enumerate(value)
        waiting += [((*path, key), item) for key, item in items if item.__class__ in (dict, list)]
    return True


def _may_be_long(path: TomlPath, value: dict[str, Any] | list[Any]) -> bool:
    """Lists of numbers, of cases, and of the points of an axis."""
    if isinstance(value, dict):
        return False
    if path == ("case",) or path[:1] == ("matrix",):
        return True
    return all(isinstance(item, int | float) for item in value)
