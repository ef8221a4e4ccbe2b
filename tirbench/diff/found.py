"""A weakening of one case, before those of several cases are joined."""

from __future__ import annotations

from dataclasses import dataclass

from tirbench.model import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A weakening of one case."""

    subject: str
    text: str
    path: Path = ()
    implementation: str | None = None
    reason: str | None = None
