"""Where a path leads: what a stranger's file names is followed to its end, and not out of the project."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

# ruff: noqa: PTH110, PTH118
# What is resolved here may be a hostile text, at which a `Path` would raise.


def resolve(root: str, folder: str, text: str) -> tuple[Path | None, str]:
    """The real path of a relative one, or why there is none: `outside` or `missing`.

    Args:
        root: the project's folder.
        folder: what the path is relative to.
        text: the path.
    """
    try:
        real, there = _real_below(_real(folder), text)
    except (OSError, ValueError):
        return None, "missing"
    if os.path.commonpath([real, _real(root)]) != _real(root):
        return None, "outside"  # whether it exists is nobody's business
    return (Path(real), "") if there or os.path.exists(real) else (None, "missing")


def leads_outside(path: Path, root: Path) -> bool:
    """Whether a file or a folder above it is a link out of the project."""
    return resolve(str(root.absolute()), str(path.absolute().parent), path.name)[1] == "outside"


@lru_cache(maxsize=4096)
def _real(path: str) -> str:
    return os.path.realpath(path)


def _real_below(folder: str, text: str) -> tuple[str, bool]:
    """The real path of a relative one below a real folder, and whether it is known to exist.

    Only what `text` adds is looked at, as long as that has no links.

    Raises:
        OSError: nothing is there.
        ValueError: the text is no path.
    """
    path = folder
    for part in text.split("/"):
        path = f"{path}/{part}"
        if part in ("", ".", "..") or stat.S_ISLNK(os.lstat(path).st_mode):
            return os.path.realpath(os.path.join(folder, text)), False
    return path, True
