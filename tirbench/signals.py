"""Ctrl-C and its like: the first ends a run in order, the second at once.

In order: workers are killed, what was finished is kept, the locks are given back. At once: the process
ends; the server of the workers sees its connection close and kills what is below it, the locks fall with
their holder, and the run reads as one that was cut short.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
INTERRUPTED: Final = 130

AGAIN_S: Final = 0.01
"""When a signal that nobody heard is sent again."""


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
    hook = sys.unraisablehook
    if before:
        sys.unraisablehook = partial(_unheard, hook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _first(number: int, _: FrameType | None) -> None:
    """End in order, and listen for the second."""
    for one in ENDING:
        if signal.getsignal(one) is _first:
            signal.signal(one, _second)
    raise KeyboardInterrupt(number)


def _unheard(hook: Callable[[Any], object], lost: Any) -> None:
    """Send the first signal again where its exception could not get out.

    Python runs a handler wherever the program is. Of a `__del__` or the callback of a weak reference no
    exception gets out: the run would go on, and the next signal would be taken for the second.
    """
    if not isinstance(lost.exc_value, KeyboardInterrupt) or not lost.exc_value.args:
        hook(lost)
        return
    for number in ENDING:
        if signal.getsignal(number) is _second:
            signal.signal(number, _first)
    main, number = threading.main_thread().ident, lost.exc_value.args[0]
    if main is not None:
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, number))
        again.daemon = True
        again.start()


def _second(_: int, __: FrameType | None) -> None:
    """End at once: no handler, no `finally`, nothing that could wait."""
    os._exit(INTERRUPTED)
