"""Files of JSON lines that a kill, a full disk or a power cut may have left unfinished."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final

from tirbench.errors import TirbenchError

if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES: Final = 1 << 16

HOLE: Final = b"\0"
"""What a file system may have in place of what did not reach the disk; no JSON has it."""


class RunError(TirbenchError):
    """A kept run cannot be found or read."""


def read_lines(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The objects of a file of lines, and whether its end is torn: cut off while being written.

    What follows a hole was not on the disk for certain when the power went, and is left out.

    Raises:
        RunError: another line than the last is broken.
    """
    if not path.is_file():
        return [], False
    whole, hole, _ = path.read_bytes().partition(HOLE)
    parts = whole.split(b"\n")
    tail = parts.pop()
    objects: list[dict[str, Any]] = []
    for number, part in enumerate(parts, start=1):
        try:
            objects.append(json.loads(part))
        except ValueError as error:  # noqa: PERF203 - the message names the line
            raise RunError(f"{path.parent.name}/{path.name}:{number}: {error}") from error
    return objects, bool(tail or hole)


def whole_bytes(file: IO[bytes]) -> int:
    """Where the last whole line ends: a write that was cut off leaves a part of one, or a hole."""
    end = _before_hole(file)
    while end:
        start = max(0, end - CHUNK_BYTES)
        file.seek(start)
        if (found := file.read(end - start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def _before_hole(file: IO[bytes]) -> int:
    """Where the first hole begins; the end of a file without one."""
    at = file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        if (found := chunk.find(HOLE)) >= 0:
            return at + found
        at += len(chunk)
    return at
