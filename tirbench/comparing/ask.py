"""What is asked of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tirbench.model import TimerName


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be compared, and how far.

    Attributes:
        base: a revision.
        head: another one; `None` is the working tree as it is, with what is not committed.
        files: workloads as on the command line, relative to `cwd` of the command or absolute.
        keyword: `-k`.
        select: `--select`; `None` for what `exec` runs.
        device: where it is measured.
        timer: instead of the workloads'.
        rows: keys of the only rows to compare; `None` for all.
        candidates: two implementations of the working tree instead of two revisions.
        resolve: T instead of the workloads' own, relative; more workers are spent for a smaller one.
        references: compare references too, also where their source is the same.
    """

    base: str = "HEAD"
    head: str | None = None
    files: tuple[str, ...] = ()
    keyword: str | None = None
    select: str | None = None
    device: Literal["cuda", "cpu"] = "cuda"
    timer: TimerName | None = None
    rows: frozenset[str] | None = None
    candidates: tuple[str, str] | None = None
    resolve: float | None = None
    references: bool = False
