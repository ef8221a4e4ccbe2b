"""One measurement at a time on a device, across all users of the host.

Two timing runs on one GPU, or on one CPU, disturb each other without either noticing. The lock is of
the operating system (`flock`), so that a killed holder leaves none behind.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from tirbench.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

FOLDER_VARIABLE: Final = "TIRBENCH_LOCK_DIR"
"""Environment variable that moves the folder, where `TMPDIR` differs between users of one device."""

TIMEOUT_S: Final = 1800.0
FIRST_S: Final = 0.01
LONGEST_S: Final = 0.2


def lock_folder() -> Path:
    """The folder of the lock files, which everybody may write."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "tirbench-locks")
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):  # somebody else made it, and did this
        # Not sticky: Linux refuses to open another user's file in a sticky folder for creation.
        folder.chmod(0o777)
    return folder


class DeviceLock:
    """The right to measure on one device; a context manager.

    Fair: who waits holds the second lock `<name>.queue`, which the holder needs before it can have the
    device again, so a run of many cases does not starve one that waits.
    """

    def __init__(
        self,
        name: str,
        *,
        folder: Path | None = None,
        timeout_s: float | None = TIMEOUT_S,
        on_wait: Callable[[str], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Name the device; nothing is locked yet.

        Args:
            name: the UUID of a GPU, or `cpu`.
            folder: where the lock files lie; the shared folder of the host where left out.
            timeout_s: how long to wait; `None` for ever, 0 not at all.
            on_wait: called once with a sentence when the device is taken.
            sleep: waits for seconds; what it raises ends the waiting.
        """
        self.name = name
        self._folder = folder
        self._timeout_s = timeout_s
        self._on_wait = on_wait
        self._sleep = sleep
        self._held: FileLock | None = None

    def acquire(self) -> None:
        """Wait for the device and take it.

        Raises:
            MeasurementError: it was taken for the whole `timeout_s`, or the folder cannot be written.
        """
        try:
            folder = self._folder or lock_folder()
        except OSError as error:
            raise MeasurementError(
                f"cannot make the folder of the device locks: {error}"
            ) from error
        start = time.monotonic()
        queue = FileLock(folder / f"{self.name}.queue", mode=0o666)
        device = FileLock(folder / f"{self.name}.lock", mode=0o666)
        self._take(queue, start)
        try:
            self._take(device, start)
        finally:
            queue.release()
        self._held = device

    def release(self) -> None:
        """Give the device to whoever waits."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def _take(self, lock: FileLock, start: float) -> None:
        """Poll until the lock is ours: a blocking `flock` would not let Ctrl-C through at once."""
        pause = FIRST_S
        while True:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                pass
            except OSError as error:
                raise MeasurementError(f"cannot lock {self.name}: {error}") from error
            else:
                return
            if self._on_wait is not None:
                self._on_wait(f"waiting for {self.name}: another tirbench measures on it")
                self._on_wait = None
            waited = time.monotonic() - start
            if self._timeout_s is not None and waited >= self._timeout_s:
                raise MeasurementError(
                    f"{self.name} was in use by another tirbench for {waited:.0f} s; "
                    f"try again when it is free"
                )
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_S)

    def __enter__(self) -> DeviceLock:  # noqa: PYI034 - Self is in typing from 3.11
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
