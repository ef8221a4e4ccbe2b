"""The trees of a self-test: copies of the project, of which four hold kernels that can be delayed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tirbench import digest, pipeline
from tirbench.errors import InputError, UsageError
from tirbench.model import BoundImplementation, BoundLaunch, Case, Plan, Row, Workload
from tirbench.plan import Ask, plan
from tirbench.reading import Reading, read
from tirbench.selection import Chosen, Selection
from tirbench.selftest.ask import Asked
from tirbench.selftest.plant import launched, planted
from tirbench.selftest.readings import BASE, DELAYED
from tirbench.store import revisions, write

NOT_ASKED: Final = "not asked for"

LEFT: Final = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "build", "dist")
"""What no tree needs, where git does not say what belongs to the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A row that is tried: a kernel of a case that this machine times.

    Attributes:
        source: digest of what a person wrote of it.
        slower_than: T of the workload.
        unplanted: why no slowdown is planted in it; empty where one is.
        launches: what it launches.
    """

    row: Row
    source: str
    slower_than: float
    unplanted: str
    launches: tuple[BoundLaunch, ...] = ()

    @property
    def key(self) -> str:
        """`workload/case/implementation`."""
        return self.row.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """What is loaded, and what is tried of it.

    Attributes:
        harnesses: by side and workload.
    """

    project: Path
    folder: Path
    trees: Mapping[str, Path]
    harnesses: Mapping[str, Mapping[str, Path]]
    workloads: Mapping[str, Workload]
    rows: tuple[TrialRow, ...]

    def loads(self, count: int) -> tuple[str, ...]:
        """The first sides that load the files as they are."""
        return tuple(side for side in self.trees if side not in DELAYED)[:count]


@contextmanager
def opened(asked: Asked, *, written: bool = True) -> Iterator[Trees]:
    """Read the workloads, write the trees; they are gone afterwards.

    Args:
        asked: what is tried.
        written: whether to write them; without, all of it is only said.

    Raises:
        UsageError: a file, glob, list or keyword names nothing, or no row of it is timed here.
        InputError: a workload is not right.
    """
    beside = frozenset({"smoke", "cpu"}) if asked.device == "cpu" else frozenset[str]()
    reading = read(
        Selection(files=asked.files, keyword=asked.keyword, select=asked.select, beside=beside)
    )
    if reading.problems:
        raise InputError(reading.problems)
    rows = tuple(_rows(reading, asked))
    if not rows:
        raise UsageError("nothing to try: no kernel of these cases is timed on this machine")
    with tempfile.TemporaryDirectory(prefix="tirbench-selftest-") as scratch:
        folder = Path(scratch).resolve()  # as `resolve` names what is below it
        slower = DELAYED if asked.planted else ()
        names = (BASE, *(f"twin{number}" for number in range(1, asked.loads)), *slower)
        trees = {name: folder / name for name in names}
        if written:
            _write(reading.root, trees.values())
        if slower and asked.device == "cuda":
            planting = [trees[side] for side in slower] if written else []
            rows = tuple(_planted(reading, rows, planting))
        elif not slower:
            rows = tuple(replace(one, unplanted=NOT_ASKED) for one in rows)
        yield Trees(
            project=reading.root,
            folder=folder,
            trees=trees,
            harnesses=_harnesses(trees, reading) if written else {},
            workloads={chosen.workload.name: chosen.workload for chosen in reading.chosen},
            rows=rows,
        )


def _rows(reading: Reading, asked: Asked) -> Iterator[TrialRow]:
    """The kernels that `exec` would time here."""
    known = digest.reader(reading.root)
    for chosen in reading.chosen:
        cases = {case.id: case for case in chosen.cases}
        ask = Ask(plan=Plan(device=asked.device, timer=asked.timer), explicit=chosen.explicit)
        for job in plan([("", list(chosen.cases))], ask).jobs:
            for of_case in job.cases:
                case = cases[of_case.case]
                for row in of_case.rows if of_case.time else ():
                    if row.role == "kernel" and _is_timed(case, row, asked):
                        yield TrialRow(
                            row=row,
                            source=digest.source(case, row.implementation, known),
                            slower_than=case.slower_than,
                            unplanted="",
                            launches=_implementation(case, row).steps,
                        )


def _is_timed(case: Case, row: Row, asked: Asked) -> bool:
    """On a CPU Triton kernels run in the interpreter, which nobody times."""
    untimed = {*asked.without, *(() if asked.device == "cuda" else ("triton",))}
    return untimed.isdisjoint(step.kind for step in _implementation(case, row).steps)


def _implementation(case: Case, row: Row) -> BoundImplementation:
    return next(one for one in case.implementations if one.name == row.implementation)


def _write(root: Path, trees: Iterable[Path]) -> None:
    """The project's files as they are, and a mark of where it begins."""
    first, *others = trees
    try:
        revisions.export_working(root, first)
    except UsageError:
        shutil.copytree(root, first, ignore=LEFT, symlinks=True)
    (first / ".tirbench").mkdir(exist_ok=True)
    for tree in others:
        shutil.copytree(first, tree, symlinks=True)


def _harnesses(trees: Mapping[str, Path], reading: Reading) -> dict[str, dict[str, Path]]:
    found: dict[str, dict[str, Path]] = {side: {} for side in trees}
    for chosen in reading.chosen:
        made = pipeline.rendered(chosen)
        for side, tree in trees.items():
            path = found[side][chosen.workload.name] = tree / ".tirbench" / "harness" / made.name
            write(path, made.text)
    return found


def _planted(
    reading: Reading, rows: Iterable[TrialRow], trees: Sequence[Path]
) -> Iterator[TrialRow]:
    """Make the kernels of trees ones that can be delayed; rows say which could not."""
    tree = reading.root.resolve()
    by_name = {chosen.workload.name: chosen for chosen in reading.chosen}
    wanted: dict[Path, set[str]] = {}
    targets: dict[str, list[tuple[Path, str]]] = {}
    for one in rows:
        targets[one.key] = list(_targets(tree, by_name[one.row.workload], one.row))
        for path, name in targets[one.key]:
            wanted.setdefault(path, set()).add(name)
    refused: dict[Path, str] = {}
    for path, names in wanted.items():
        with _noting(refused, path):
            text = planted(path.read_text(encoding="utf-8"), names)
            for copied in trees:
                (copied / path.relative_to(tree)).write_text(text, encoding="utf-8")
    for one in rows:
        found = targets[one.key]
        reasons = [refused[path] for path, _ in found if path in refused]
        unplanted = "; ".join(reasons) if found else "not a Triton kernel"
        yield replace(one, unplanted=unplanted)


@contextmanager
def _noting(refused: dict[Path, str], path: Path) -> Iterator[None]:
    """Note why a file cannot be planted in."""
    try:
        yield
    except UsageError as error:
        refused[path] = str(error)


def _targets(tree: Path, chosen: Chosen, row: Row) -> Iterator[tuple[Path, str]]:
    """File and name of each Triton kernel that a row launches, itself or from a function of the workload."""
    case = next(case for case in chosen.cases if case.id == row.case)
    folder = tree / Path(chosen.workload.source.path).parent
    for step in _implementation(case, row).steps:
        file, colon, name = step.target.rpartition(":")
        path = (folder / file).resolve()
        if not colon or not path.is_file() or not path.is_relative_to(tree):
            continue
        if step.kind == "triton":
            yield path, name
        elif step.kind in {"build", "call"}:
            text = path.read_text(encoding="utf-8")
            yield from ((path, kernel) for kernel in launched(text, name))
