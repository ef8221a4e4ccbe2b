"""Proton sessions and the tree they leave.

Only this module imports `triton.profiler`, and only when a session is opened.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tirbench.errors import TimerUnavailable
from tirbench.timing import profilers

if TYPE_CHECKING:
    from collections.abc import Iterator

TIME: Final = "time (ns)"

# The frame between where a graph is launched and where its nodes were captured.
CAPTURED_AT: Final = "<captured_at>"


class ProtonSession(Protocol):
    """An open session that attributes kernels to scopes."""

    def scope(self, name: str) -> AbstractContextManager[object]:
        """A scope: what is launched inside is attributed to its name."""

    def finish(self) -> list[dict[str, Any]]:
        """End the session and return its tree; called exactly once."""


class TritonProton:
    """A session of Triton's Proton with a shadow context and tree data, as `do_bench_proton`.

    Raises:
        TimerUnavailable: Triton or its profiler is missing, disabled, or CUPTI is taken.
    """

    def __init__(self) -> None:
        """Start the session; its file, which Proton writes in any case, goes to a temporary folder."""
        try:
            import triton.profiler as proton
        except ImportError as error:
            raise TimerUnavailable(
                f"Proton cannot be imported ({error}); install triton, or use timer='event'"
            ) from error
        self._proton: Any = proton
        self._folder = tempfile.TemporaryDirectory(prefix="tirbench-proton-")
        self._path = Path(self._folder.name) / "session"
        try:
            session = proton.start(str(self._path), context="shadow", data="tree")
        except Exception as error:
            self._folder.cleanup()
            raise profilers.refused("proton", error) from error
        if session is None:
            self._folder.cleanup()
            raise TimerUnavailable(
                "Proton did not start: TRITON_PROTON_DISABLE is set, or this program runs under the "
                "`proton` command; unset it, run without the command, or use timer='event'"
            )
        self._session = session
        profilers.note("proton")

    def scope(self, name: str) -> AbstractContextManager[object]:
        """A scope of Proton."""
        scope: AbstractContextManager[object] = self._proton.scope(name)
        return scope

    def finish(self) -> list[dict[str, Any]]:
        """End the session; the tree comes from memory where Proton offers that, else from its file.

        Triton 3.7 added `proton.data.get` and `deactivate(flushing=)`; 3.6 only writes at `finalize`.
        """
        proton = self._proton
        tree: list[dict[str, Any]] | None = None
        try:
            try:
                if reads_from_memory(proton):
                    proton.deactivate(self._session, flushing=True)
                    tree = proton.data.get(self._session)
            finally:
                proton.finalize(self._session)
            if tree is None:
                with self._path.with_suffix(".hatchet").open(encoding="utf-8") as file:
                    tree = json.load(file)
        finally:
            self._folder.cleanup()
        return tree


def reads_from_memory(proton: Any) -> bool:
    """Whether this Proton hands out its data in memory."""
    flushing = "flushing" in inspect.signature(proton.deactivate).parameters
    return flushing and hasattr(getattr(proton, "data", None), "get")


@dataclass(slots=True)
class ScopeTotals:
    """What one scope ran: GPU time, kernels, how many of them from a graph, and their names in order."""

    total_ns: int = 0
    kernels: int = 0
    replayed: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Attribution:
    """A tree, read: totals per number of a launch, and the names of kernels outside of any of our scopes."""

    scopes: dict[int, ScopeTotals]
    elsewhere: list[str]


@dataclass(frozen=True, slots=True)
class ScopeNames:
    """How the scope of a launch is named: a prefix that no kernel bears, then the number of the launch."""

    prefix: str

    def launch(self, index: int) -> str:
        """Name of the scope of one launch."""
        return f"{self.prefix}.{index:08d}"

    def parse(self, name: str) -> int | None:
        """Number of the launch; None for a name that is not ours."""
        if not name.startswith(f"{self.prefix}."):
            return None
        return int(name[len(self.prefix) + 1 :])


def attribute(tree: list[dict[str, Any]], names: ScopeNames) -> Attribution:
    """Add up the kernels under each of our scopes.

    A kernel is a node with a time of its own. The kernels of a replayed graph hang below
    `<captured_at>` and the scopes that were open at their capture. The root has a time of zero, and
    the second element of the list describes devices and has no frame.
    """
    scopes: dict[int, ScopeTotals] = {}
    elsewhere: list[str] = []
    for path, metrics in _kernels(tree):
        launch = next((part for name in path if (part := names.parse(name)) is not None), None)
        if launch is None:
            elsewhere.append(path[-1])
            continue
        totals = scopes.setdefault(launch, ScopeTotals())
        kernels = int(metrics.get("count", 1))
        totals.total_ns += int(metrics[TIME])
        totals.kernels += kernels
        totals.replayed += kernels if CAPTURED_AT in path else 0
        totals.names.append(path[-1])
    return Attribution(scopes, elsewhere)


def _kernels(tree: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every node with a time, with the names from the root to it; without recursion, trees can be deep."""
    stack: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((), node) for node in reversed(tree) if "frame" in node
    ]
    while stack:
        above, node = stack.pop()
        path = (*above, str(node["frame"]["name"]))
        if node.get("metrics", {}).get(TIME, 0) > 0:
            yield path, node["metrics"]
        stack.extend((path, child) for child in reversed(node.get("children", [])))
