"""Files of older versions of the language, rewritten for this one with their comments and their order.

Version 1 is the first, so nothing is migrated yet. The next version adds one entry to `MIGRATIONS`, and the
test of this module shows what such an entry looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from tirbench.diagnostics import Problems
from tirbench.errors import InputError, UsageError

Table: TypeAlias = MutableMapping[str, Any]
"""A table of a tomlkit document, or the document; what is changed in it keeps comments and order."""

Migration: TypeAlias = Callable[[Table], None]
"""Turns a document of one version into one of the next, in place; `schema` is set by the caller."""

MIGRATIONS: Final[Mapping[int, Migration]] = MappingProxyType({})
"""For each older version that is still read, what makes the next one of it."""


def version_of(text: str, problems: Problems) -> int | None:
    """The version that a file says it is of; `None` after noting why it cannot be told."""
    from tirbench.load.read import VERSION, parse

    document = parse(text, problems)
    if document is None:
        return None
    version = document.get("schema")
    if isinstance(version, int) and not isinstance(version, bool):
        return version
    hint = f"a file begins with its version: schema = {VERSION}"
    problems.add("TB005", (), "no version of the language", hint=hint)
    return None


def migrate(
    name: str, text: str, migrations: Mapping[int, Migration] = MIGRATIONS, to: int | None = None
) -> str:
    """A file rewritten for version `to` of the language, one version after the other.

    Args:
        name: of the file, for messages.
        text: of the file.
        migrations: what makes the next version of each.
        to: the version asked for; the one that is read by this tirbench if absent.

    Returns:
        The new text; the same where the file is of that version already.

    Raises:
        InputError: the file is no TOML, or of a version that nothing is known of.
        UsageError: tomlkit, which keeps comments and order, is not installed.
    """
    from tirbench.load.read import VERSION, version_is_read

    to = VERSION if to is None else to
    problems = Problems(name, text)
    version = version_of(text, problems)
    if version is not None and not (version == to or _way(version, to, migrations)):
        version_is_read({"schema": version}, problems)
    if version is None or problems:
        raise InputError(problems.diagnostics())
    for step in range(version, to):
        text = _next(text, migrations[step], step + 1)
    return text


def _way(version: int, to: int, migrations: Mapping[int, Migration]) -> bool:
    """Whether every version from `version` to the one before `to` can be migrated."""
    return version < to and all(step in migrations for step in range(version, to))


def _next(text: str, migration: Migration, version: int) -> str:
    """One migration."""
    try:
        import tomlkit
    except ImportError as error:
        raise UsageError(
            "rewriting a file with its comments needs tomlkit: pip install 'tirbench[migrate]'"
        ) from error
    document = tomlkit.parse(text)
    migration(document)
    document["schema"] = version
    return tomlkit.dumps(document)


# --- What migrations are made of ------------------------------------------------------------------


def rename(table: Table, old: str, new: str) -> None:
    """Give a key another name where it stands, with its comment; nothing where there is no such key.

    Raises:
        ValueError: the new name is taken.
    """
    if old not in table:
        return
    if new in table:
        raise ValueError(f"{new} stands beside {old}")
    # tomlkit has no public way that keeps the place; removing and adding moves a key to the end.
    holder: Any = table if hasattr(table, "_replace") else getattr(table, "value", table)
    holder._replace(old, new, holder.item(old))


def tables(document: Table, *path: str) -> Iterator[Table]:
    """The tables at a path, `*` standing for every key and every entry of a list: `kernels`, `*`."""
    found: list[Any] = [document]
    for step in path:
        found = [item for one in found for item in _inside(one, step)]
    yield from (item for item in found if isinstance(item, MutableMapping))


def _inside(value: Any, step: str) -> list[Any]:
    """What stands at one step of a path."""
    if isinstance(value, MutableMapping):
        return list(value.values()) if step == "*" else [value[step]] if step in value else []
    return list(value) if isinstance(value, list) and step == "*" else []
