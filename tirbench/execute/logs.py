"""The files that hold what kernels printed: one for each case, bounded, the end of it quotable."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 << 20
"""A log that grew beyond this is cut down to its two ends while the case still runs."""

KEPT_BYTES: Final = 512 << 10
"""What stays of either end of a log that is cut."""

TAIL_BYTES: Final = 8 << 10
TAIL_LINES: Final = 30


def log_path(folder: Path, workload: str, case: str) -> Path:
    """Where the log of a case lies: `<folder>/<workload>/<case>.log`; the folder is made."""
    place = folder / _file_name(workload)
    place.mkdir(parents=True, exist_ok=True)
    return place / f"{_file_name(case)}.log"


def _file_name(text: str) -> str:
    """`text` where nothing can lead out of the folder."""
    return re.sub(r"[^\w.,=+@-]", "_", text).lstrip(".") or "_"


def size(path: Path) -> int:
    """Bytes in the file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def mark(stage: str, implementation: str | None) -> str:
    """The line that a worker writes into the log where a stage begins."""
    return f"--- {stage} {implementation or ''}".rstrip() + "\n"


def tail(path: Path) -> str:
    """The last lines of a log since the last stage began, as much as a person reads."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    lines = text.rstrip().splitlines()
    last = max((i for i, line in enumerate(lines) if line.startswith("--- ")), default=-1)
    return "\n".join(lines[last + 1 :][-TAIL_LINES:])


def bound(path: Path, max_bytes: int = MAX_BYTES, kept_bytes: int = KEPT_BYTES) -> bool:
    """Cut the middle out of a log that is too long; true if it was.

    The worker appends (`O_APPEND`), so it goes on at the new end. What it prints between our reading
    and our cutting is lost, which a log of that size can bear.
    """
    length = size(path)
    if length <= max_bytes:
        return False
    try:
        with path.open("r+b") as file:
            file.seek(length - kept_bytes)
            end = file.read(kept_bytes)
            left_out = length - 2 * kept_bytes
            file.seek(kept_bytes)
            file.write(f"\n... {left_out} bytes left out ...\n".encode() + end)
            file.truncate()
    except OSError:  # a full disk must not end the run
        return False
    return True
