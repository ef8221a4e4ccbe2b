"""The trees of a comparison: written, read, and their cases looked up."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench import digest, pipeline
from tirbench.comparing.ask import Asked
from tirbench.errors import InputError, UsageError
from tirbench.expand import expand
from tirbench.model import Case, Workload
from tirbench.reading import read
from tirbench.selection import Chosen, Selection, paths
from tirbench.store import revisions, write

if TYPE_CHECKING:
    from tirbench.diagnostics import Diagnostic

WORKING: Final = "the working tree"
FOLDER: Final = "workloads"
"""Where workloads are where nobody says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side: its tree, its workloads as they are there, and which of their cases are asked for.

    `label` is how the side was asked for; `tree` the id of its files, where no file that counts differs
    from it; `notes` say which of its workloads this version cannot read.
    """

    name: str
    label: str
    folder: Path
    tree: str | None
    workloads: Mapping[str, Workload]
    cases: Mapping[str, Mapping[str, Case]]
    chosen: frozenset[tuple[str, str]]
    explicit: frozenset[str]
    read: digest.Read
    notes: tuple[str, ...] = ()

    def case(self, workload: str, case: str) -> Case | None:
        """A case by names; `None` where the side has none such."""
        return self.cases.get(workload, {}).get(case)

    def harness(self, workload: str) -> Path:
        """Write the program of every case of a workload, inside the tree, from where it finds the tree."""
        cases = tuple(self.cases[workload].values())
        made = pipeline.rendered(Chosen(workload=self.workloads[workload], cases=cases))
        path = self.folder / ".tirbench" / "harness" / made.name
        write(path, made.text)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both sides, and a second copy of base's tree, from which placebos are loaded."""

    id: str
    folder: Path
    project: Path
    base: Side
    head: Side
    twin: Side

    def all(self) -> dict[str, Side]:
        """Every side by name."""
        return {side.name: side for side in (self.base, self.head, self.twin)}

    @property
    def identical(self) -> bool:
        """Whether no file differs between the two."""
        return self.base.tree is not None and self.base.tree == self.head.tree


@contextmanager
def opened(root: Path, asked: Asked) -> Iterator[Sides]:
    """Write the trees and read them; the trees are gone afterwards, logs and results stay.

    Raises:
        UsageError: a revision or file that nothing has.
        InputError: a workload of head is not right.
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
    folder = root / ".tirbench" / "ab" / name
    names = _relative(root, asked.files)
    trees = {side: folder / side for side in ("base", "head", "twin")}
    folder.mkdir(parents=True)
    try:
        base_tree = _write(root, asked.base if asked.candidates is None else None, trees["base"])
        head_tree = _write(root, asked.head, trees["head"])
        shutil.copytree(trees["base"], trees["twin"], symlinks=True)
        for tree in trees.values():
            # Marks the root of the project, which a tree without its .git may have no other mark of.
            (tree / ".tirbench").mkdir(exist_ok=True)
        labels = _labels(asked)
        heads = _side("head", labels[1], trees["head"], head_tree, names, asked)
        bases = _side("base", labels[0], trees["base"], base_tree, names, asked)
        if isinstance(heads, UsageError):
            if isinstance(bases, UsageError):
                raise heads
            heads = _empty("head", labels[1], trees["head"])
        if isinstance(bases, UsageError):
            bases = _empty("base", labels[0], trees["base"])
        twin = _side("twin", labels[0], trees["twin"], base_tree, names, asked)
        yield Sides(
            id=name,
            folder=folder,
            project=root,
            base=bases,
            head=heads,
            twin=bases if isinstance(twin, UsageError) else twin,
        )
    finally:
        for tree in trees.values():
            shutil.rmtree(tree, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()  # where nothing was measured


def _labels(asked: Asked) -> tuple[str, str]:
    if asked.candidates is not None:
        return asked.candidates
    return asked.base, asked.head or WORKING


def _write(root: Path, revision: str | None, folder: Path) -> str | None:
    """Write a tree; answers the id of its files if they are a commit's."""
    if revision is not None:
        commit = revisions.resolve(root, revision)
        revisions.export(root, commit, folder)
        return revisions.tree_of(root, commit)
    from tirbench.store import read_tree

    state = read_tree(root)
    revisions.export_working(root, folder)
    clean = state.commit is not None and not state.uncommitted_inputs
    return revisions.tree_of(root, str(state.commit)) if clean else None


def _relative(root: Path, files: Sequence[str]) -> tuple[str, ...]:
    """FILES as names below the project's folder, the same in every tree."""
    if not files:
        if not (root / FOLDER).is_dir():
            raise UsageError(f"no folder {FOLDER} here: name the workloads to compare")
        return (FOLDER,)
    found = []
    for argument in files:
        name, mark, glob = argument.partition("::")
        absolute = root / name if not (Path.cwd() / name).exists() else Path.cwd() / name
        try:
            relative = absolute.absolute().relative_to(root.absolute()).as_posix()
        except ValueError as error:
            raise UsageError(f"{name} is not in this project") from error
        found.append(f"{relative}{mark}{glob}")
    return tuple(found)


def _side(
    name: str, label: str, folder: Path, tree: str | None, names: Sequence[str], asked: Asked
) -> Side | UsageError:
    """Read one tree; an error of its selection is returned, as the other side may have what is named."""
    there = []
    for one in names:
        try:
            paths(Selection(files=(str(folder / one),)))
        except UsageError:
            continue
        there.append(one)
    if not there:
        return UsageError(f"{', '.join(names)}: no such workload on either side")
    beside = frozenset({"smoke", "cpu"}) if asked.device == "cpu" else frozenset[str]()
    files = tuple(str(folder / one) for one in there)
    try:
        picked = read(
            Selection(files=files, keyword=asked.keyword, select=asked.select, beside=beside)
        )
    except UsageError as error:
        return UsageError(str(error).replace(f"{folder}/", ""))
    if picked.problems and name == "head":
        raise InputError(picked.problems)
    whole = read(Selection(files=tuple(one.partition("::")[0] for one in files), select="all"))
    workloads = {chosen.workload.name: chosen.workload for chosen in whole.chosen}
    return Side(
        name=name,
        label=label,
        folder=folder,
        tree=tree,
        workloads=workloads,
        cases={
            workload.name: {case.id: case for case in expand(workload)}
            for workload in workloads.values()
        },
        chosen=frozenset(
            (chosen.workload.name, case.id) for chosen in picked.chosen for case in chosen.cases
        ),
        explicit=frozenset(one.workload.name for one in picked.chosen if one.explicit),
        read=digest.reader(folder),
        notes=_unread(label, picked.problems),
    )


def _unread(label: str, problems: Sequence[Diagnostic]) -> tuple[str, ...]:
    """Files of a side that are not right, or of an older version of the language: their rows are missing."""
    files = sorted({one.file for one in problems})
    return tuple(f"{label}: {file} cannot be read: its rows are missing" for file in files)


def _empty(name: str, label: str, folder: Path) -> Side:
    """A side that has nothing of what is named."""
    return Side(
        name=name,
        label=label,
        folder=folder,
        tree=None,
        workloads={},
        cases={},
        chosen=frozenset(),
        explicit=frozenset(),
        read=digest.reader(folder),
    )
