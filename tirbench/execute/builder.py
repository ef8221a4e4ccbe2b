"""What runs in a forked builder: compiles cases to come, so that the worker finds them in the cache on disk.

It is told everything at once and goes on by itself: while it compiles, the parent follows a worker that
measures. It sees no GPU, launches nothing, and keeps to processors of its own. Whatever becomes of it
costs the run nothing but a head start.
"""

from __future__ import annotations

import importlib
import os
import select
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tirbench.execute.worker import PARENT_GONE, log_to, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tirbench.execute.wire import Channel

OOM_SCORE_ADJUSTMENT: Final = "1000"
"""Where memory runs out, a head start is the first thing to give up."""

NICENESS: Final = 10


def main(channel: Channel, server: int, cores: Iterable[int] = ()) -> int:
    """Build what the parent asks for, or until the connection closes; returns the exit status.

    Args:
        channel: the connection to the parent.
        server: process id of the server it was forked from.
        cores: the processors it keeps to.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # CUDA asks when it is first used, which is after this
    if not settle(server, cores, OOM_SCORE_ADJUSTMENT):
        return PARENT_GONE
    with suppress(OSError):
        os.nice(NICENESS)
    try:
        _Builder(channel).serve()
    except (BrokenPipeError, ConnectionResetError):
        return PARENT_GONE
    return 0


class _Builder:
    """What is left to build, and what the worker has begun meanwhile."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._begun: set[str] = set()
        self._asked: dict[str, Any] | None = None

    def serve(self) -> None:
        """Take the list, build it in order, and say what was built."""
        while self._asked is None and not self._channel.closed:
            select.select([self._channel], [], [])
            self._listen()
        if self._asked is None:
            return
        log_to(self._asked["log"])
        module, _, function = self._asked["opener"].partition(":")
        build: Callable[[Any, Callable[[str], bool]], dict[str, Any]]
        build = getattr(importlib.import_module(module), function)
        for case in self._asked["cases"]:
            if self._goes_on(case["case"]):
                self._build(build, case)
            if self._channel.closed:
                return
        self._channel.send({"event": "done"})

    def _build(
        self, build: Callable[[Any, Callable[[str], bool]], dict[str, Any]], case: dict[str, Any]
    ) -> None:
        """One case; what is wrong with it, the worker that measures it will say."""
        name, start = case["case"], time.monotonic()
        self._channel.send({"event": "row", "case": name})  # its files are imported first

        def goes_on(row: str) -> bool:
            self._channel.send({"event": "row", "case": name, "row": row})
            return self._goes_on(name)

        try:
            built = build(case["request"], goes_on)
        except BaseException as error:  # noqa: BLE001 - kernel files raise what they like, SystemExit too
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - into its log
            built = {"failed": 1}
        seconds = time.monotonic() - start
        self._channel.send({"event": "built", "case": name, "seconds": seconds, **built})

    def _goes_on(self, case: str) -> bool:
        """Whether a case is still to come, and somebody listens."""
        self._listen()
        return not self._channel.closed and case not in self._begun

    def _listen(self) -> None:
        """Hear what the parent has said since."""
        for message in self._channel.receive():
            if message.get("do") == "build":
                self._asked = message
            elif message.get("do") == "begun":
                self._begun.add(message["case"])
