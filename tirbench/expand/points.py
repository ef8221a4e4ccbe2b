"""The points of a workload's matrix, their ids, and which selections they belong to."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tirbench.model import Path, Workload
    from tirbench.values import Value

MAX_CASES: Final = 100_000
MAX_ID: Final = 200
"""Ids become file names: with the workload's name they stay below the 255 bytes of a file system."""

FIELD: Final = re.compile(r"\{([^{}]*)\}")
_SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=+@%-]*")

Point: TypeAlias = "tuple[tuple[str, Value], ...]"


def count(workload: Workload) -> int:
    """How many cases the workload has, skipped ones included, without building any."""
    crossed = prod(len(axis) for _, axis in workload.matrix)
    if not workload.matrix and workload.cases:
        crossed = 0
    return crossed + len(workload.cases)


def bound_names(workload: Workload) -> tuple[str, ...]:
    """The names that every case binds: of the axes, or of the first `[[case]]` where there are none."""
    if workload.matrix:
        return tuple(name for _, axis in workload.matrix for name, _ in axis[0])
    return tuple(name for name, _ in workload.cases[0]) if workload.cases else ()


def points(workload: Workload) -> Iterator[tuple[Point, Path]]:
    """The values of every case and where they are written: the cross product, then the extra cases.

    The last axis varies fastest. Extra cases list their names in the order of the axes.
    """
    if workload.matrix or not workload.cases:
        for rows in product(*(axis for _, axis in workload.matrix)):
            yield tuple(chain.from_iterable(rows)), ("matrix",) if workload.matrix else ()
    names = bound_names(workload)
    for index, case in enumerate(workload.cases):
        values = dict(case)
        yield tuple((name, values[name]) for name in names), ("case", index)


def default_template(names: tuple[str, ...]) -> str:
    """The id of cases that state none: names and values joined by `_`."""
    return "_".join(f"{name}_{{{name}}}" for name in names) or "base"


def case_id(template: str, values: Mapping[str, Value]) -> str:
    """The id of a case.

    Raises:
        KeyError: the template names what the case does not bind.
        ValueError: the id could not be written in a shell or as a file's name.
    """
    identity = FIELD.sub(lambda match: id_text(values[match[1]]), template)
    if not _SAFE.fullmatch(identity):
        raise ValueError(f"the id {identity!r} is not safe in a shell")
    if len(identity) > MAX_ID:
        raise ValueError(
            f"the id has {len(identity)} characters; at most {MAX_ID} make a file name"
        )
    return identity


def id_text(value: Value) -> str:
    """A value as it stands in an id: `true` and `false` in lower case, lists joined by `x`."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return "x".join(id_text(item) for item in value)
        case str():
            return str(value)
        case _:
            return repr(value)


class Globs:
    """The globs of one selection, as one look at an id."""

    def __init__(self, globs: tuple[str, ...]) -> None:
        self.all = "*" in globs
        self.ids = frozenset(glob for glob in globs if not _is_pattern(glob))
        patterns = [translate(glob) for glob in globs if _is_pattern(glob) and not self.all]
        self.pattern = re.compile("|".join(patterns)) if patterns else None

    def match(self, identity: str) -> bool:
        """Whether a case id matches one of them, case by case."""
        if self.all or identity in self.ids:
            return True
        return self.pattern is not None and self.pattern.match(identity) is not None


def selections(workload: Workload) -> dict[str, Globs]:
    """All named selections with `default`, `smoke` and `cpu` filled in."""
    chosen = dict(workload.select)
    chosen.setdefault("default", ("*",))
    chosen.setdefault("smoke", ())
    chosen.setdefault("cpu", chosen["smoke"])
    return {name: Globs(globs) for name, globs in chosen.items()}


def matches(identity: str, glob: str) -> bool:
    """Whether a case id matches a glob, case by case."""
    if not _is_pattern(glob):
        return identity == glob
    return _pattern(glob).match(identity) is not None


def _is_pattern(glob: str) -> bool:
    return any(sign in glob for sign in "*?[")


@lru_cache(maxsize=1 << 12)
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))
