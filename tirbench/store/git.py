"""What git says of the tree that is measured."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirbench.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The state of the project's files when a run starts.

    `commit` is `None` where there is no git, no repository or no commit yet. `dirty` are paths relative
    to the project's root that differ from it, untracked ones among them.
    """

    commit: str | None
    dirty: tuple[str, ...] = ()

    @property
    def uncommitted_inputs(self) -> tuple[str, ...]:
        """Dirty paths that a number could depend on: baselines are results and run folders are ours."""
        return tuple(
            path
            for path in self.dirty
            if "baselines" not in path.split("/") and path.split("/")[0] != ".tirbench"
        )


def read_tree(root: Path) -> Tree:
    """Ask git for the commit and the uncommitted paths below `root`; nothing is written."""
    commit = _git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    if commit is None:
        return Tree(commit=None)
    prefix = (_git(root, "rev-parse", "--show-prefix") or "").strip()
    # -z: names as they are, one entry a NUL; a rename has its old name as an entry of its own.
    listing = _git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--", ".")
    return Tree(commit=commit.strip(), dirty=_paths(listing or "", prefix))


def require_committed(tree: Tree, *, allow_dirty: bool) -> None:
    """Refuse to pin what no commit holds; call it before measuring, not after.

    Raises:
        UsageError: there is no commit, or files differ from it; the message says what to do.
    """
    if allow_dirty:
        return
    told = "or allow it (--allow-dirty), which every row then says"
    if tree.commit is None:
        raise UsageError(f"nothing to pin against: no commit holds this tree; commit it, {told}")
    paths = tree.uncommitted_inputs
    if paths:
        shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        raise UsageError(f"uncommitted changes in {shown}; commit them, {told}")


def _paths(listing: str, prefix: str) -> tuple[str, ...]:
    found: set[str] = set()
    entries = iter(listing.split("\0"))
    for entry in entries:
        if not entry:
            continue
        found.add(entry[3:].removeprefix(prefix))
        if entry[0] in "RC":
            found.add(next(entries, "").removeprefix(prefix))
    return tuple(sorted(found))


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, or `None` where it fails or is not installed."""
    program = shutil.which("git")
    if program is None:
        return None
    result = subprocess.run(  # noqa: S603 - fixed arguments, no shell
        [program, "-C", str(root), "--no-optional-locks", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return result.stdout if result.returncode == 0 else None
