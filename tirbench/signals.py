"""Ctrl-C and its like: the first ends a run in order, the second at once.

In order: workers are killed, what was finished is kept, the locks are given back. At once: the process
ends; the server of the workers sees its connection close and kills what is below it, the locks fall with
their holder, and the run reads as one that was cut short.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
INTERRUPTED: Final = 130


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at the first of these signals, and end the process at the second."""
    before = {}
    if threading.current_thread() is threading.main_thread():  # only there does Python take signals
        for number in ENDING:
            # Who was started with a signal ignored (nohup) wants it ignored; None is not Python's.
            if (handler := signal.getsignal(number)) not in {signal.SIG_IGN, None}:
                before[number] = handler
                signal.signal(number, _first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first(_: int, __: FrameType | None) -> None:
    """End in order, and listen for the second."""
    for number in ENDING:
        if signal.getsignal(number) is _first:
            signal.signal(number, _second)
    raise KeyboardInterrupt


def _second(_: int, __: FrameType | None) -> None:
    """End at once: no handler, no `finally`, nothing that could wait."""
    os._exit(INTERRUPTED)
