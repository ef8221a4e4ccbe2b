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

_TRACE: Final = "(most recent call first):"
_FRAME: Final = '  File "'
_RUNNER: Final = re.compile(
    r'  File "(?:[^"]*\btirbench/(?:harness|execute)/[^"]*|<string>)", line '
)
"""A frame of what runs every case: it stands below all that is of interest."""
_MODULES: Final = "Extension modules: "


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
    return "\n".join(_of_interest(lines[last + 1 :])[-TAIL_LINES:])


def _of_interest(lines: list[str]) -> list[str]:
    """Without the foot of the fault handler's traces, which are the same for every kernel.

    The fault handler writes the innermost frame first: the end of a trace is where nobody looks.
    """
    kept: list[str] = []
    in_trace = False
    for line in lines:
        if in_trace and not line.startswith(_FRAME):
            _cut_foot(kept)
        in_trace = line.endswith(_TRACE) or (in_trace and line.startswith(_FRAME))
        if not line.startswith(_MODULES):
            kept.append(line)
    if in_trace:
        _cut_foot(kept)
    while kept and not kept[-1]:
        del kept[-1]
    return kept


def _cut_foot(kept: list[str]) -> None:
    """Take the runner's frames off the end, unless the trace has no others."""
    at = len(kept)
    while _RUNNER.match(kept[at - 1]):
        at -= 1
    if not kept[at - 1].endswith(_TRACE):
        del kept[at:]


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
