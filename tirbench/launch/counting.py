"""What Triton finds in its cache and what it compiles, and how long that takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Counts:
    """Kernels that were found and that were compiled, and the seconds of compiling."""

    found: int = 0
    compiled: int = 0
    seconds: float = 0.0


@contextmanager
def counting(counts: Counts | None = None) -> Iterator[Counts]:
    """Count what is compiled inside; nothing is where Triton was not imported before, or does not tell.

    Args:
        counts: what is added to; new ones where left out.
    """
    counts = Counts() if counts is None else counts
    knobs: Any = getattr(sys.modules.get("triton"), "knobs", None)
    if not hasattr(getattr(knobs, "compilation", None), "listener"):
        yield counts
        return
    before = knobs.compilation.listener

    def listen(*, times: Any, cache_hit: bool, **rest: Any) -> None:
        if cache_hit:
            counts.found += 1
        else:
            counts.compiled += 1
            counts.seconds += times.total / 1e6
        if before is not None:
            before(times=times, cache_hit=cache_hit, **rest)

    knobs.compilation.listener = listen
    try:
        yield counts
    finally:
        knobs.compilation.listener = before
