"""One side of a comparison: what its files say, and the digests of what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tirbench import digest
from tirbench.digest import closure
from tirbench.model import (
    Baseline,
    BoundFunction,
    BoundImplementation,
    BoundLaunch,
    Case,
    PinnedRow,
    Workload,
)

if TYPE_CHECKING:
    from tirbench.digest import Read

Key: TypeAlias = "tuple[str, str]"
"""Case and implementation."""


@dataclass(slots=True, kw_only=True)
class Task:
    """One workload on one side, with its cases by id."""

    workload: Workload
    cases: Mapping[str, Case]
    read: Read
    files: str = ""
    """Digest of the workload's own text and of all files beside it; empty where it is not known."""
    _problems: dict[str, str] = field(default_factory=dict)
    _sources: dict[Key, str] = field(default_factory=dict)
    _texts: dict[str, dict[str, str]] = field(default_factory=dict)

    def is_untouched(self, other: Task | None) -> bool:
        """Whether nothing that a digest could depend on differs from the other side."""
        return other is not None and bool(self.files) and self.files == other.files

    def problem(self, case: str) -> str:
        """Digest of what a case computes."""
        if case not in self._problems:
            self._problems[case] = digest.problem(self.cases[case], self.read)
        return self._problems[case]

    def source(self, key: Key) -> str:
        """Digest of what a row is written as."""
        if key not in self._sources:
            self._sources[key] = digest.source(self.cases[key[0]], key[1], self.read)
        return self._sources[key]

    def implementation(self, key: Key) -> BoundImplementation | None:
        """The implementation of a case, `None` where the side has no such row."""
        case = self.cases.get(key[0])
        return next(
            (one for one in (case.implementations if case else ()) if one.name == key[1]), None
        )

    def text_of(self, function: BoundFunction | BoundLaunch | None) -> dict[str, str]:
        """The definitions that a function of a file reaches, by path."""
        if function is None or ":" not in function.target:
            return {}
        if function.target not in self._texts:
            file, _, name = function.target.rpartition(":")
            folder = self.workload.source.folder
            path = f"{folder}/{file}" if folder else file
            self._texts[function.target] = closure.function(path, name, self.read)
        return self._texts[function.target]

    @property
    def keys(self) -> tuple[Key, ...]:
        """All rows."""
        return tuple(
            (case.id, one.name) for case in self.cases.values() for one in case.implementations
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """One baseline file."""

    path: str
    baseline: Baseline
    broken: frozenset[Key] = frozenset()
    """Rows whose seal does not hold."""

    @property
    def rows(self) -> dict[Key, PinnedRow]:
        """The rows by case and implementation."""
        return {(row.case, row.implementation): row for row in self.baseline.rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Everything of one side.

    Attributes:
        name: how a reader calls it: a revision, `the working tree`, a folder.
        tasks: workloads by name.
        pins: baselines by path.
        unreadable: files that are there and cannot be read, with the reason; workloads by path.
        broken: baselines that cannot be read, with the reason, by path.
        capabilities: compute capability of the devices that are pinned on, by the folder of their baselines.
    """

    name: str
    tasks: Mapping[str, Task]
    pins: Mapping[str, Pins]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    capabilities: Mapping[str, float] = field(default_factory=dict)
