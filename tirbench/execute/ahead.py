"""The parent's side of building ahead: processes that compile cases to come while a worker measures.

Nothing here waits for a builder. It is looked after whenever the run says something; one that hangs or
crashes is replaced, without the case it was at, and given up when that has happened too often.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tirbench.errors import MeasurementError
from tirbench.execute import logs
from tirbench.execute.events import Reported, StageStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tirbench.execute.attempt import WorkerLike
    from tirbench.execute.events import Event
    from tirbench.model import BuiltAhead

REPLACEMENTS: Final = 3
"""How often a builder is replaced in a run: what breaks more often is not worth its cores."""

SILENCE_S: Final = 120.0
"""How long one implementation may take; a large kernel takes ptxas a minute at most (seen)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToBuild:
    """One case to come: `workload/case`, and what the opener of the builder takes."""

    case: str
    request: dict[str, Any] = field(hash=False)


@dataclass(slots=True)
class _Builder:
    """One process and its share of the cases."""

    left: list[ToBuild]
    process: WorkerLike | None = None
    at: str | None = None
    heard_s: float = 0.0


class Ahead:
    """Builds ahead until it is closed; `look` is called with every event of the run."""

    def __init__(
        self,
        shares: Sequence[Sequence[ToBuild]],
        start: Callable[[], WorkerLike],
        *,
        opener: str,
        log: Path,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start a builder for each share.

        Args:
            shares: the cases of each builder, in the order in which they will be measured.
            start: forks a process that runs `tirbench.execute.builder`.
            opener: `module:function` that builds one request.
            log: file that takes what builders print.
            silence_s: after this long without a word a builder hangs.
            clock: seconds, monotonic.
        """
        self._start = start
        self._opener = opener
        self._log = log
        self._silence_s = silence_s
        self._clock = clock
        self._begun: set[str] = set()
        self._replaced = 0
        self._lost = 0
        self._built: dict[str, dict[str, Any]] = {}
        self._asked_for: list[Mapping[str, Any]] = []
        self._builders = [_Builder(list(share)) for share in shares if share]
        for builder in self._builders:
            self._begin(builder)

    def look(self, event: Event | None = None) -> None:
        """Tell builders what the run has come to, hear what they did, and replace what is broken."""
        if isinstance(event, StageStarted):
            key = f"{event.workload}/{event.case}"
            if key not in self._begun:
                self._begun.add(key)
                for builder in self._builders:
                    if builder.process is not None:
                        builder.process.send({"do": "begun", "case": key})
        elif isinstance(event, Reported) and event.data.get("event") == "kernels":
            self._asked_for.append(event.data)
        for builder in self._builders:
            self._follow(builder)

    def close(self) -> None:
        """End all builders."""
        for builder in self._builders:
            self._follow(builder, last=True)
            self._end(builder)

    @property
    def built(self) -> BuiltAhead:
        """What was built until now."""
        from tirbench.model import BuiltAhead

        every, asked_for = list(self._built.values()), self._asked_for
        return BuiltAhead(
            cases=len(self._built),
            kernels=int(_sum(every, "kernels")),
            compiled=int(_sum(every, "compiled")),
            failed=int(_sum(every, "failed")) + self._lost,
            seconds=round(_sum(every, "seconds"), 1),
            replaced=self._replaced,
            found=int(_sum(asked_for, "found")),
            late=int(_sum(asked_for, "compiled")),
            late_seconds=round(_sum(asked_for, "seconds"), 1),
        )

    def _begin(self, builder: _Builder) -> None:
        """Start a process for what is left of a share; without one, nothing is built ahead."""
        builder.left = [case for case in builder.left if case.case not in self._begun]
        if not builder.left:
            return
        try:
            builder.process = self._start()
        except MeasurementError:  # the server is gone: the run will say so where it matters
            return
        builder.at, builder.heard_s = None, self._clock()
        builder.process.send(
            {
                "do": "build",
                "opener": self._opener,
                "log": str(self._log),
                "cases": [{"case": one.case, "request": one.request} for one in builder.left],
            }
        )

    def _follow(self, builder: _Builder, *, last: bool = False) -> None:
        """Hear what a builder did since."""
        if builder.process is None:
            return
        for message in builder.process.receive(0.0):
            builder.heard_s = self._clock()
            kind = message.get("event")
            if kind == "row":
                builder.at = str(message.get("case"))
            elif kind == "built" and builder.at == message.get("case"):
                self._built[str(builder.at)] = message
                builder.left = [one for one in builder.left if one.case != builder.at]
                builder.at = None
            elif kind == "done":
                self._end(builder)
                return
        hangs = self._clock() - builder.heard_s > self._silence_s
        if not last and (hangs or builder.process.exit_status is not None):
            self._replace(builder)
        logs.bound(self._log)

    def _replace(self, builder: _Builder) -> None:
        """Go on without the case at which a builder hung or died, if it was not too often."""
        self._end(builder)
        self._lost += builder.at is not None
        builder.left = [one for one in builder.left if one.case != builder.at]
        if self._replaced < REPLACEMENTS:
            self._replaced += 1
            self._begin(builder)

    def _end(self, builder: _Builder) -> None:
        process, builder.process = builder.process, None
        if process is not None:
            process.kill()


def _sum(messages: Iterable[Mapping[str, Any]], key: str) -> float:
    """The sum of a number over messages, which have passed through processes that ran foreign code."""
    values = (message.get(key) for message in messages)
    return float(sum(v for v in values if isinstance(v, int | float) and math.isfinite(v)))
