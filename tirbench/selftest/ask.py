"""What is asked of a self-test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tirbench.judge.rule import WORKERS
from tirbench.model import TimerName

SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is tried, and how long.

    Attributes:
        files: workloads as on the command line.
        keyword: `-k`.
        select: `--select`; `None` for what `exec` runs.
        device: where it is measured.
        timer: instead of the workloads'.
        seconds: how long all of it may take, about.
        workers: K of one stage.
        loads: how many times the files are loaded into one worker, at most; any two loads are a pair.
        sequences: virtual runs, at most; fewer where `seconds` ends before.
        planted: how many of them have a planted slowdown beside equal code.
        without: kinds of launches whose rows are left out.
        gpus: UUIDs of the GPUs that share the work; none for the first visible one.
    """

    files: tuple[str, ...]
    keyword: str | None = None
    select: str | None = None
    device: Literal["cuda", "cpu"] = "cuda"
    timer: TimerName | None = None
    seconds: float = SECONDS
    workers: int = WORKERS
    loads: int = 5
    sequences: int = 40
    planted: int = 4
    without: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
