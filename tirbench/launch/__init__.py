"""Launch kinds: how one launch of a workload is written in the harness, and what it needs at run time.

A kind is a `Kind` (static: which template partial writes it, how its options become source) and,
for the harness, a function of the same module that prepares the launch on the device. Kinds of
third parties come through the entry-point group `tirbench.launch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from tirbench.errors import UsageError
from tirbench.launch import build, call, cuda, tirx, triton
from tirbench.launch.emit import Source, emit, emit_arguments, emit_tuple, literal
from tirbench.launch.kind import Kind, Option, Step, Syntax
from tirbench.model import BoundLaunch

GROUP: Final = "tirbench.launch"
"""The entry-point group through which packages add kinds."""

BUILTIN: Mapping[str, Kind] = {
    kind.name: kind for kind in (call.KIND, build.KIND, triton.KIND, cuda.KIND, tirx.KIND)
}


@cache
def plug_ins() -> Mapping[str, Kind]:
    """The kinds of installed packages, by name.

    Raises:
        UsageError: one cannot be loaded, is no `Kind`, or has a name that is taken.
    """
    from importlib.metadata import entry_points  # 20 ms, so only for a kind that is not built in

    found: dict[str, Kind] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in found or entry.name in BUILTIN:
            raise UsageError(f"the launch kind {entry.name!r} of {entry.value} exists already")
        try:
            kind = entry.load()
        except Exception as error:  # the package may raise anything when it is imported
            raise UsageError(
                f"the launch kind {entry.name!r} of {entry.value} cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(kind, Kind) or kind.name != entry.name:
            raise UsageError(f"{entry.value} is not the tirbench.launch.Kind named {entry.name!r}")
        found[entry.name] = kind
    return found


def kinds() -> Mapping[str, Kind]:
    """Every kind by name: the built-in ones, then those of installed packages."""
    return {**BUILTIN, **plug_ins()}


def kind_of(name: str) -> Kind:
    """The kind called `name`; packages are looked at only where it is not built in.

    Raises:
        UsageError: no such kind is built in or installed.
    """
    if name in BUILTIN:
        return BUILTIN[name]
    if name not in kinds():
        raise UsageError(f"no launch kind {name!r}; one of {', '.join(kinds())}")
    return kinds()[name]


def imports_of(launches: Iterable[BoundLaunch]) -> tuple[str, ...]:
    """What launches import that takes long, each module once."""
    found = {module for one in launches for module in kind_of(one.kind).imports(one)}
    return tuple(sorted(found))


__all__ = [
    "Kind",
    "Option",
    "Source",
    "Step",
    "Syntax",
    "emit",
    "emit_arguments",
    "emit_tuple",
    "imports_of",
    "kind_of",
    "kinds",
    "literal",
    "plug_ins",
]
