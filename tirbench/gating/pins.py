"""What is pinned beside a workload, and which commit holds the code of a pin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tirbench import digest, store
from tirbench.errors import TirbenchError
from tirbench.expand import expand
from tirbench.load import load
from tirbench.model import GateDecision, GateRow, PinnedRow, Workload
from tirbench.store import revisions
from tirbench.store.baseline import parse_baseline

if TYPE_CHECKING:
    from tirbench.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The baselines of one workload by hardware, and what is wrong with those that cannot be read."""

    by_hardware: Mapping[str, Mapping[tuple[str, str], PinnedRow]]
    unreadable: tuple[str, ...] = ()

    @classmethod
    def read(cls, root: Path, workload: Workload) -> Pins:
        """Every baseline beside a workload."""
        found: dict[str, dict[tuple[str, str], PinnedRow]] = {}
        unreadable: list[str] = []
        folder = root / workload.source.folder / "baselines"
        for file in sorted(folder.glob(f"*/{workload.name}.toml")):
            path = store.baseline_path(workload, file.parent.name)
            try:
                baseline = store.read_baseline(root, path)
            except store.BaselineError as error:
                unreadable.append(str(error))
                continue
            rows = () if baseline is None else baseline.rows
            found[file.parent.name] = {(row.case, row.implementation): row for row in rows}
        return cls(by_hardware=found, unreadable=tuple(unreadable))

    def of(self, key: tuple[str, str], hardware: str) -> tuple[PinnedRow | None, str]:
        """The pin of a row and where it is from: this hardware, else another that has one."""
        for name in (hardware, *sorted(self.by_hardware)):
            row = self.by_hardware.get(name, {}).get(key)
            if row is not None:
                return row, name
        return None, hardware


# --- The code of a pin ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a number is from: the commit that holds its code, and the row as it was pinned with it."""

    commit: str
    row: PinnedRow


def commit_of_pin(root: Path, workload_path: str, pinned: PinnedRow, hardware: str) -> str | None:
    """The commit that holds the code which a row was pinned with; `None` where git has none.

    The commit that brought the row as it stands, or one of its parents: a baseline is committed with its
    code or after it. Of a pin that is not committed yet, HEAD. The source digest of the row decides, so that
    no other code is taken for it.
    """
    path = _baseline_of(workload_path, hardware)
    for commit in revisions.log(root, path):
        if _row_at(root, commit.id, path, pinned) != pinned:
            continue
        before = revisions.parents(root, commit.id)
        if before and all(_row_at(root, one, path, pinned) == pinned for one in before):
            continue  # another row changed here; this one is older
        found = _holder(root, (commit.id, *before), workload_path, pinned)
        if found is not None:
            return found
    head = store.read_tree(root).commit
    return None if head is None else _holder(root, (head,), workload_path, pinned)


def origin_of_anchor(
    root: Path, workload_path: str, pinned: PinnedRow, hardware: str
) -> Origin | None:
    """Where the anchor of a row was measured; `None` where git does not know.

    The latest commit whose row has the anchor for its number and means the same: digests follow every run
    while a number stays, so a later row may tell of code that the number is not of.
    """
    path = _baseline_of(workload_path, hardware)
    seen: PinnedRow | None = None
    for commit in revisions.log(root, path):
        row = _row_at(root, commit.id, path, pinned)
        if row is None or row == seen or not _is_anchor(row, pinned):
            continue
        seen = row
        candidates = (commit.id, *revisions.parents(root, commit.id))
        found = _holder(root, candidates, workload_path, row)
        if found is not None:
            return Origin(commit=found, row=row)
    return None


def _is_anchor(row: PinnedRow, pinned: PinnedRow) -> bool:
    return (row.midmean_us, row.problem, row.protocol) == (
        pinned.anchor_us,
        pinned.problem,
        pinned.protocol,
    )


def _baseline_of(workload_path: str, hardware: str) -> str:
    folder, _, name = workload_path.rpartition("/")
    return f"{folder}/baselines/{hardware}/{name}".lstrip("/")


def _holder(
    root: Path, commits: tuple[str, ...], workload_path: str, pinned: PinnedRow
) -> str | None:
    """The first of some commits that holds the source of a row."""
    return next(
        (
            commit
            for commit in commits
            if source_at(root, commit, workload_path, pinned) == pinned.source
        ),
        None,
    )


def _row_at(root: Path, commit: str, path: str, pinned: PinnedRow) -> PinnedRow | None:
    text = revisions.show(root, commit, path)
    try:
        rows = () if text is None else parse_baseline(text, path).rows
    except store.BaselineError:  # a commit may hold conflict markers
        return None
    wanted = (pinned.case, pinned.implementation)
    return next((row for row in rows if (row.case, row.implementation) == wanted), None)


def source_at(root: Path, commit: str, workload_path: str, pinned: PinnedRow) -> str | None:
    """The source digest of a row at a commit, read from git alone; `None` where it has no such row."""
    with revisions.archived(root, commit) as folder:
        try:
            cases = expand(load(folder / workload_path, folder))
        except TirbenchError:
            return None
        case = next((case for case in cases if case.id == pinned.case), None)
        names = () if case is None else [one.name for one in case.implementations]
        if case is None or pinned.implementation not in names:
            return None
        return digest.source(case, pinned.implementation, digest.reader(folder))


# --- Baselines that no workload has ---------------------------------------------------------------


def of_no_workload(reading: Reading, hardware: str = "*") -> Iterator[GateRow]:
    """Baselines whose workload is gone: all of their rows are orphans, said once a file."""
    for folder in sorted({chosen.workload.source.folder for chosen in reading.chosen}):
        base = reading.root / folder
        for file in sorted(base.glob(f"baselines/{hardware}/*.toml")):
            if file.name == "device.toml" or (base / file.name).is_file():
                continue
            path = file.relative_to(reading.root).as_posix()
            decision = GateDecision(
                case="*",
                implementation="*",
                exit_code=1,
                rule="orphan",
                reason=f"{file.name} is no workload any more; delete {path}",
            )
            yield GateRow(workload=file.stem, path=path, decision=decision)
