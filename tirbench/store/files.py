"""Files that are whole or not there, and texts that name no machine."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Scrub: TypeAlias = "Callable[[str], str]"
"""Replaces what names this machine or its user in a text."""


def write(path: Path, text: str) -> bool:
    """Write a file under a temporary name, then rename it; leave it alone where it says that already.

    Contents and name are on the disk when this returns. Line ends are LF on every machine.

    Returns:
        Whether the file has changed.
    """
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def scrubber(root: Path) -> Scrub:
    """Make the function that takes this machine out of a text: tracebacks are full of it.

    Paths below the project's root become relative, the Python installation, the home and the temporary
    folder get short names, and host and user names within paths go.

    Args:
        root: the project's folder.
    """
    places = {
        str(root.resolve()): ".",
        str(root.absolute()): ".",
        sys.prefix: "<python>",
        sys.base_prefix: "<base>",
        str(Path.home()): "~",
        tempfile.gettempdir(): "<tmp>",
    }
    longest_first = sorted((place for place in places if len(place) > 1), key=len, reverse=True)
    # Only where the path begins and ends as a whole: /root is no part of /rootless or of /x/root.
    paths = re.compile(r"(?<![\w./~>-])(" + "|".join(map(re.escape, longest_first)) + r")(?![\w-])")
    names = _names_of_this_machine()

    def scrub(text: str) -> str:
        text = paths.sub(lambda match: places[match[1]], text)
        return names.sub("<private>", text) if names else text

    return scrub


def _names_of_this_machine() -> re.Pattern[str] | None:
    """The host's name anywhere, the user's as a part of a path; short or common ones tell nothing."""
    host = socket.gethostname()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in the password file
        user = ""
    parts = []
    if len(host) >= 4 and host != "localhost":
        parts.append(rf"\b{re.escape(host)}\b")
    if len(user) >= 2 and user != "root":
        parts.append(rf"(?<=/){re.escape(user)}(?![\w-])")
    return re.compile("|".join(parts)) if parts else None
