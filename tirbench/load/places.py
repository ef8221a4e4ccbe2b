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
        real = _real_below(_real(folder), text)
    except (OSError, ValueError):
        return None, "missing"
    if os.path.commonpath([real, _real(root)]) != _real(root):
        return None, "outside"
    return (Path(real), "") if os.path.exists(real) else (None, "missing")


def leads_outside(path: Path, root: Path) -> bool:
    """Whether a file or a folder above it is a link out of the project."""
    return resolve(str(root.absolute()), str(path.absolute().parent), path.name)[1] == "outside"


@lru_cache(maxsize=4096)
def _real(path: str) -> str:
    return os.path.realpath(path)


def _real_below(folder: str, text: str) -> str:
    """The real path of a relative one below a real folder: only what `text` adds is looked at."""
    path = folder
    for part in text.split("/"):
        path = f"{path}/{part}"
        if part in ("", ".", "..") or stat.S_ISLNK(os.lstat(path).st_mode):
            return os.path.realpath(os.path.join(folder, text))
    return path
