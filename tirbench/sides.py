"""Two sides of a comparison, read: load → expand, with the pins that lie beside; nothing is imported.

What `diff`, `gate --static` and `exec --changed` start from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tirbench import diff as comparison
from tirbench import digest, store
from tirbench.diagnostics import locate
from tirbench.diff import Pins, Side, Task
from tirbench.diff.hardware import capability_of
from tirbench.errors import InputError, TirbenchError, UsageError
from tirbench.expand import expand
from tirbench.load import load_all
from tirbench.model import CompiledSides, Diff, Timed, Workload
from tirbench.store import BaselineError, is_sealed, revisions

WORKING_TREE: Final = "the working tree"

FOLDER: Final = "workloads"
"""Where workloads are where nobody says so."""

REASON: Final = re.compile(
    r"^Tirbench-Reason:[ \t]*(\S+?):[ \t]+(\S.*)$", re.MULTILINE | re.IGNORECASE
)
"""A trailer of a commit that says why a weakening is right: `Tirbench-Reason: rmsnorm/h4096_*: …`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both sides, with the folders that they were read from and what commits say of weakenings."""

    base: Side
    head: Side
    base_root: Path
    head_root: Path
    reasons: tuple[tuple[str, str], ...] = ()

    def compare(self, facts: CompiledSides | None = None) -> Diff:
        """What HEAD has otherwise than BASE.

        Args:
            facts: what `aot` says of both.
        """
        return comparison.compare(
            self.base,
            self.head,
            place=place,
            reasons=self.reasons,
            facts=facts,
            measured=_latest_times(self.head_root),
        )


@contextmanager
def opened(
    root: Path, base: str, head: str | None = None, files: Sequence[str] = ()
) -> Iterator[Sides]:
    """Two revisions, a revision and the working tree, or two folders, while the context is open.

    Revisions are compared from where they parted: what others did since is not the author's.

    Args:
        root: the project's folder.
        base: a revision, or a folder where `head` is one.
        head: a revision; absent: the working tree.
        files: workload files and folders; absent: `workloads/` where there is one, else everywhere.

    Raises:
        UsageError: a revision is unknown, or the two have nothing in common.
    """
    if head is not None and Path(base).is_dir() and Path(head).is_dir():
        folders = Path(base), Path(head)
        sides = (_side(folders[0], base, files), _side(folders[1], head, files))
        yield Sides(base=sides[0], head=sides[1], base_root=folders[0], head_root=folders[1])
        return
    parted = revisions.merge_base(root, base, head or "HEAD")
    if parted is None:
        raise UsageError(f"{base} and {head or 'HEAD'} have no commit in common")
    name = f"{base} ({revisions.short(parted)})"
    reasons = tuple(REASON.findall(revisions.messages(root, parted, head or "HEAD")))
    with ExitStack() as stack:
        before = stack.enter_context(tree(root, parted))
        after = root
        if head is not None:
            after = stack.enter_context(tree(root, revisions.resolve(root, head)))
        yield Sides(
            base=_side(before, name, files),
            head=_side(after, head or WORKING_TREE, files),
            base_root=before,
            head_root=after,
            reasons=reasons,
        )


@contextmanager
def tree(root: Path, commit: str) -> Iterator[Path]:
    """The project at a commit, marked as a project of its own."""
    with revisions.archived(root, commit) as folder:
        (folder / ".tirbench").mkdir(exist_ok=True)
        yield folder


def _side(root: Path, name: str, files: Sequence[str]) -> Side:
    """Everything that one side's files say."""
    paths = _workload_files(root, files)
    workloads, found = load_all(paths, root)
    unreadable = _by_file(found)
    read = digest.reader(root)
    beside = {one.source.folder: _contents(root / one.source.folder) for one in workloads}
    tasks = {}
    for workload in workloads:
        try:
            cases = {case.id: case for case in expand(workload)}
        except InputError as error:
            unreadable.update(_by_file(error.diagnostics))
            continue
        files_digest = _digest(workload.source.text, beside[workload.source.folder])
        tasks[workload.name] = Task(workload=workload, cases=cases, read=read, files=files_digest)
    folders = {path.parent for path in paths}
    whole = not files or any((root / name).is_dir() for name in files)
    named = None if whole else {path.stem for path in paths}
    pins, broken = _pins(root, folders, named)
    return Side(
        name=name,
        tasks=tasks,
        pins=pins,
        unreadable=unreadable,
        broken=broken,
        capabilities=_capabilities(root, folders),
    )


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _contents(folder: Path) -> str:
    """Digest of every file below a workload's folder that is no TOML: what targets can name."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "__pycache__")) for part in parts)
        if path.suffix != ".toml" and not hidden and path.is_file():
            found.update("/".join(parts).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _by_file(found: Sequence[Any]) -> dict[str, str]:
    """The first fault of every file, and how many there are."""
    grouped: dict[str, list[Any]] = {}
    for one in found:
        grouped.setdefault(one.file, []).append(one)
    return {
        file: f"{ones[0].line}: {ones[0].message}"
        + (f" (and {len(ones) - 1} more: tirbench check)" if len(ones) > 1 else "")
        for file, ones in grouped.items()
    }


def _workload_files(root: Path, files: Sequence[str]) -> list[Path]:
    """The files that are workloads: those named, or all TOML files that say they are."""
    named = [root / name for name in files]
    if not named:
        named = [root / FOLDER] if (root / FOLDER).is_dir() else [root]
    found: set[Path] = set()
    for path in named:
        if path.is_dir():
            found |= {one for one in path.rglob("*.toml") if _is_workload(one, root)}
        elif path.is_file():
            found.add(path)
    return sorted(found)


def _is_workload(path: Path, root: Path) -> bool:
    """Whether a file is one of a workload: not a baseline, not another tool's."""
    parts = path.relative_to(root).parts
    if any(part.startswith(".") or part == "baselines" for part in parts):
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.search(r"^schema\s*=\s*\d", text, re.MULTILINE) is not None


def _pins(
    root: Path, folders: set[Path], named: set[str] | None
) -> tuple[dict[str, Pins], dict[str, str]]:
    """The baselines beside these folders, and why some cannot be read."""
    pins: dict[str, Pins] = {}
    broken: dict[str, str] = {}
    for file in sorted(path for folder in folders for path in folder.glob("baselines/*/*.toml")):
        if file.name == "device.toml" or (named is not None and file.stem not in named):
            continue
        path = file.relative_to(root).as_posix()
        try:
            baseline = store.read_baseline(root, path)
        except BaselineError as error:
            broken[path] = str(error)
            continue
        if baseline is not None:
            seals = {(row.case, row.implementation) for row in baseline.rows if not is_sealed(row)}
            pins[path] = Pins(path=path, baseline=baseline, broken=frozenset(seals))
    return pins, broken


def _capabilities(root: Path, folders: set[Path]) -> dict[str, float]:
    """Compute capability of the devices that baselines are of, by the folder of these."""
    found = {}
    for file in sorted(
        path for folder in folders for path in folder.glob("baselines/*/device.toml")
    ):
        capability = capability_of(file.read_text(encoding="utf-8", errors="replace"))
        if capability is not None:
            found[file.parent.relative_to(root).as_posix()] = capability
    return found


def _latest_times(root: Path) -> dict[tuple[str, str], float]:
    """µs of the rows of the latest run, by hardware and key; empty where none can be read."""
    try:
        run = store.read_run(root).run
    except TirbenchError:
        return {}
    return {
        (run.machine.hardware, one.row.key): one.estimate.midmean_us
        for one in run.outcomes
        if isinstance(one, Timed)
    }


def place(workload: Workload, path: tuple[str | int, ...]) -> str:
    """The line of a path of a workload: `workloads/x.toml:12`."""
    return f"{workload.source.path}:{locate(workload.source.text, path).line}"
