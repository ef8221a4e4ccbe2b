"""Other revisions of the project, read from git: their files in a folder, and how a file came about.

Nothing here writes to the repository, its index or the working tree.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tirbench.errors import UsageError

SEPARATOR: Final = "\x1f"
"""Between the fields of a log line: no hash, date or subject holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit that touched a file; `date` is its author's, as `2025-01-31`."""

    id: str
    date: str
    subject: str


def resolve(root: Path, revision: str) -> str:
    """The commit that a revision names.

    Raises:
        UsageError: git is not there, or knows no such revision.
    """
    # --end-of-options: a revision that begins with a dash is none of git's options.
    found = _git(
        root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    if found is None:
        raise UsageError(f"{revision}: no revision of this repository")
    return found.decode().strip()


def is_revision(root: Path, text: str) -> bool:
    """Whether git knows a text as a revision."""
    try:
        resolve(root, text)
    except UsageError:
        return False
    return True


def short(commit: str) -> str:
    """A commit as people write it."""
    return commit[:10]


def tree_of(root: Path, commit: str) -> str | None:
    """The id of the project's folder at a commit: equal ids are equal files."""
    prefix = (_git(root, "rev-parse", "--show-prefix") or b"").decode().strip()
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{commit}:{prefix}")
    return None if found is None else found.decode().strip()


def export(root: Path, commit: str, folder: Path) -> None:
    """Write the project's files at a commit into a folder.

    Raises:
        UsageError: git cannot archive it.
    """
    # In the project's folder, which may be one of several in a repository: that folder alone.
    data = _git(root, "archive", "--format=tar", commit, ".")
    if data is None:
        raise UsageError(f"git cannot archive {short(commit)}")
    folder.mkdir(parents=True)
    # The filter is in Python from 3.11.4, 3.10.12: names stay below the folder. Without it git's own
    # archive of our own repository is trusted.
    keeping: Any = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, **keeping)  # noqa: S202


@contextmanager
def archived(root: Path, commit: str) -> Iterator[Path]:
    """The project's files at a commit, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tirbench-") as scratch:
        folder = Path(scratch) / "tree"
        export(root, commit, folder)
        yield folder


def export_working(root: Path, folder: Path) -> None:
    """Copy the working tree, without what git ignores, into a folder.

    Raises:
        UsageError: there is no repository.
    """
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".")
    if listed is None:
        raise UsageError("this project is in no git repository")
    folder.mkdir(parents=True)
    for name in sorted(set(os.fsdecode(listed).split("\0")) - {""}):
        source, target = root / name, folder / name
        if name.startswith(".tirbench/"):  # where it is not ignored: the copy itself lies there
            continue
        # A file that was deleted is listed all the same.
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def show(root: Path, commit: str, path: str) -> str | None:
    """The text of a file at a commit; `None` where it was not there."""
    data = _git(root, "show", f"{commit}:./{path}")
    return None if data is None else data.decode(errors="replace")


def log(root: Path, path: str) -> tuple[Commit, ...]:
    """The commits that changed a file, newest first, also those that a merge brought in."""
    pattern = SEPARATOR.join(("%H", "%ad", "%s"))
    text = _git(root, "log", "-m", f"--format={pattern}", "--date=short", "--", path)
    found: dict[str, Commit] = {}
    for line in (text or b"").decode(errors="replace").splitlines():
        if SEPARATOR in line:
            commit = _commit(line)
            found.setdefault(commit.id, commit)
    return tuple(found.values())


def between(root: Path, old: str, new: str) -> tuple[Commit, ...]:
    """The commits after one revision up to another, oldest first; a merge counts as one commit.

    Raises:
        UsageError: git does not know one of them, or `old` is none of those that `new` goes back to.
    """
    first, last = resolve(root, old), resolve(root, new)
    if _git(root, "merge-base", "--is-ancestor", first, last) is None:
        raise UsageError(f"{new} does not go back to {old}: no commit of its own could be at fault")
    pattern = SEPARATOR.join(("%H", "%ad", "%s"))
    text = _git(
        root,
        *("log", "--first-parent", "--reverse", f"--format={pattern}", "--date=short"),
        f"{first}..{last}",
    )
    lines = (text or b"").decode(errors="replace").splitlines()
    return tuple(_commit(line) for line in lines if SEPARATOR in line)


def commit_of(root: Path, revision: str) -> Commit:
    """A revision as a commit with its date and subject.

    Raises:
        UsageError: git does not know it.
    """
    pattern = SEPARATOR.join(("%H", "%ad", "%s"))
    commit = resolve(root, revision)
    text = _git(root, "log", "-1", f"--format={pattern}", "--date=short", commit)
    return _commit((text or b"").decode(errors="replace").rstrip("\n"))


def _commit(line: str) -> Commit:
    commit, date, subject = line.split(SEPARATOR, 2)
    return Commit(id=commit, date=date, subject=subject)


def paths_ever(root: Path, pattern: str) -> tuple[str, ...]:
    """The files that match a pattern in any commit that HEAD has, also those that are gone now."""
    text = _git(
        root,
        "log",
        "--format=",
        "--name-only",
        "-z",
        "--relative",
        "--",
        f":(glob)**/{pattern.lstrip('*')}",
    )
    return tuple(sorted({os.fsdecode(name).strip() for name in (text or b"").split(b"\0")} - {""}))


def parents(root: Path, commit: str) -> tuple[str, ...]:
    """The parents of a commit, the one it was merged into first."""
    text = _git(root, "rev-list", "--parents", "-n", "1", commit)
    return tuple((text or b"").decode().split()[1:])


def merge_base(root: Path, one: str, other: str) -> str | None:
    """The commit that two revisions have in common, the latest; `None` where they have none."""
    found = _git(root, "merge-base", resolve(root, one), resolve(root, other))
    return None if found is None else found.decode().strip()


def messages(root: Path, base: str, head: str) -> str:
    """The messages of the commits that `head` has and `base` has not, newest first."""
    found = _git(root, "log", "--format=%B", f"{resolve(root, base)}..{resolve(root, head)}")
    return (found or b"").decode(errors="replace")


def _git(root: Path, *arguments: str) -> bytes | None:
    """What git prints, or `None` where it fails or is not installed."""
    program = shutil.which("git")
    if program is None:
        return None
    result = subprocess.run(  # noqa: S603 - no shell; revisions are marked as such
        [program, "-C", str(root), "--no-optional-locks", *arguments],
        capture_output=True,
        check=False,
    )
    return result.stdout if result.returncode == 0 else None
