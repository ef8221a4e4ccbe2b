"""Launch kinds: how one launch of a workload is written in the harness, and what it needs at run time.

A kind is a `Kind` (static: which template partial writes it, how its options become source) and,
for the harness, a function of the same module that prepares the launch on the device. Kinds of
third parties come through the entry-point group `tirbench.launch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from tirbench.errors import UsageError
from tirbench.launch import build, call, cuda, tirx, triton
from tirbench.launch.kind import Kind, Step

BUILTIN: Mapping[str, Kind] = {
    kind.name: kind for kind in (call.KIND, build.KIND, triton.KIND, cuda.KIND, tirx.KIND)
}


@cache
def kinds() -> Mapping[str, Kind]:
    """Every kind by name: the built-in ones, then those of installed packages."""
    found = dict(BUILTIN)
    for entry in entry_points(group="tirbench.launch"):
        if entry.name in found:
            raise UsageError(f"the launch kind {entry.name!r} of {entry.value} exists already")
        found[entry.name] = entry.load()
    return found


def kind_of(name: str) -> Kind:
    """The kind called `name`.

    Raises:
        UsageError: no such kind is built in or installed.
    """
    if name not in kinds():
        raise UsageError(f"no launch kind {name!r}; one of {', '.join(kinds())}")
    return kinds()[name]


__all__ = ["Kind", "Step", "kind_of", "kinds"]
