"""From a path to a TOML document, or to the reason why not.

The dialect is TOML 1.0 whatever parser is installed, and the version of the language is answered before
anything else is judged.
"""

from __future__ import annotations

import re
import stat
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench import diagnostics
from tirbench.load.bounds import MAX_DEPTH, key_too_deep
from tirbench.load.migrate import MIGRATIONS
from tirbench.load.syntax import note_syntax

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]  # only there before 3.11

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems

VERSION: Final = 1
"""The version of the language that this tirbench reads."""

MAX_BYTES: Final = 1 << 20
"""A workload is written by a person; a larger file is something else under a wrong name."""

MAX_NOTED: Final = 1_000
"""Notes of newer syntax that are placed; twenty are shown."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_ROOT_MARKERS: Final = (".git", "pyproject.toml", ".tirbench")


def find_root(path: str | Path) -> Path:
    """The project's folder: the nearest one above `path` with `.git`, `pyproject.toml` or `.tirbench`.

    Where there is none it is the file's own folder.
    """
    folder = Path(path).absolute().parent
    for candidate in (folder, *folder.parents):
        if any((candidate / marker).exists() for marker in _ROOT_MARKERS):
            return candidate
    return folder


def read_text(path: Path, problems: Problems) -> str | None:
    """The text of a file, or `None` after noting why there is none."""
    try:
        facts = path.stat()
        if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):  # a pipe waits
            problems.add("TB001", (), "cannot be read: not a file")
            return None
        if facts.st_size > MAX_BYTES:
            problems.add("TB001", (), f"cannot be read: larger than {MAX_BYTES >> 20} MiB")
            return None
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.add("TB001", (), f"cannot be read: {reason}")
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = diagnostics.line_and_column(before, len(before))
        problems.add_at(
            "TB002",
            f"not UTF-8: byte 0x{data[error.start]:02x}",
            line=line,
            column=column,
            hint="save the file as UTF-8",
        )
        return None
    problems.text = text
    return text


def parse(text: str, problems: Problems) -> dict[str, Any] | None:
    """The document of a TOML 1.0 text, or `None` after noting why it is not one."""
    control = _CONTROL.search(text)
    if control is not None:
        line, column = diagnostics.line_and_column(text, control.start())
        problems.add_at(
            "TB002", f"control character U+{ord(control[0][0]):04X}", line=line, column=column
        )
        return None
    if text.startswith("\ufeff"):
        problems.add_at(
            "TB002",
            "a byte order mark",
            line=1,
            column=1,
            hint="save the file as UTF-8 without one",
        )
        return None
    deep = key_too_deep(text)
    if deep is not None:
        line, column = diagnostics.line_and_column(text, deep)
        message = f"not TOML that is read here: a key of more than {MAX_DEPTH} parts"
        problems.add_at("TB003", message, line=line, column=column)
        return None
    document, failure = _parsed(text)
    if (failure is not None or _lenient_parser()) and _note_newer_syntax(text, problems):
        return None
    if failure is not None:
        note_syntax(text, failure, problems, lambda changed: _parsed(changed)[1])
    return document


def _parsed(text: str) -> tuple[dict[str, Any] | None, Exception | None]:
    """What the parser makes of a text, or how it fails."""
    try:
        return tomllib.loads(text), None
    except (ValueError, RecursionError, MemoryError) as error:  # ValueError: also too many digits
        return None, error


def version_is_read(document: dict[str, Any], problems: Problems) -> bool:
    """Whether the document is of the version of the language that is read here; noted if not."""
    version = document.get("schema")
    if version is None:
        problems.add(
            "TB005",
            (),
            "no version of the language",
            hint=f"begin the file with 'schema = {VERSION}'",
        )
    elif isinstance(version, bool) or not isinstance(version, int):
        problems.add(
            "TB005", ("schema",), f"the version is an integer, got {version!r}", hint="schema = 1"
        )
    elif version > VERSION:
        problems.add(
            "TB005",
            ("schema",),
            f"version {version} of the language is newer than {VERSION}, the newest read here",
            hint="upgrade tirbench",
        )
    elif min(MIGRATIONS, default=VERSION) <= version < VERSION:
        problems.add(
            "TB005",
            ("schema",),
            f"version {version} of the language is older than {VERSION}, the one read here",
            hint=f"tirbench migrate {problems.file} rewrites the file; --diff shows how",
        )
    elif version < VERSION:
        problems.add(
            "TB005",
            ("schema",),
            f"version {version} of the language does not exist",
            hint=f"the first one is 'schema = {VERSION}'",
        )
    return not problems


@lru_cache(maxsize=1)
def _lenient_parser() -> bool:
    """Whether the installed parser accepts TOML 1.1, so that a valid text must be scanned as well."""
    try:
        tomllib.loads("a = {b = 1,}")
    except ValueError:
        return False
    return True


def _note_newer_syntax(text: str, problems: Problems) -> bool:
    """Note what only TOML 1.1 accepts; whether there is any."""
    found = diagnostics.newer_syntax(text)
    for newer in found[:MAX_NOTED]:
        line, column = diagnostics.line_and_column(text, newer.offset)
        problems.add_at(
            "TB004",
            f"{newer.message} is TOML 1.1; workloads are TOML 1.0",
            line=line,
            column=column,
            length=newer.length,
            hint=newer.hint,
        )
    return bool(found)
