"""Which cores the worker that measures has to itself, and which are for building ahead."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEAST: Final = 4
"""Processors below which nothing is built ahead: launching kernels needs one, torch and NVML the next."""

BUILDING_SHARE: Final = 4
"""One core in so many builds ahead: it is rarely waited for, and measuring never waits."""

CPUS: Final = Path("/sys/devices/system/cpu")
GROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The processors of this machine in two parts that share no core."""

    measuring: tuple[int, ...]
    building: tuple[int, ...]


def division(
    usable: Iterable[int] | None = None, cpus: Path = CPUS, group: Path = GROUP
) -> Division | None:
    """How the processors that we may use are divided; `None` where there are too few to share.

    Threads of one core stay together. All tirbench processes of a machine divide alike, so that no run
    builds where another measures.

    Args:
        usable: processor numbers; those that the system lets us use where left out.
        cpus: where Linux lists which of them are threads of one core.
        group: where it says how much time of processors this container gets.
    """
    if usable is None:
        if not hasattr(os, "sched_getaffinity"):
            return None
        usable = os.sched_getaffinity(0)
    processors = sorted(usable)
    # In a container that gets less time than it sees processors, whatever builds is taken from the worker.
    if min(len(processors), _limited_to(group)) < LEAST:
        return None
    cores = _cores(processors, cpus)
    if len(cores) < 2:
        return None
    few = max(1, len(cores) // BUILDING_SHARE)
    return Division(
        measuring=tuple(sorted(number for core in cores[:-few] for number in core)),
        building=tuple(sorted(number for core in cores[-few:] for number in core)),
    )


def _cores(processors: list[int], cpus: Path) -> list[tuple[int, ...]]:
    """The processors by the core that they are threads of, in the order of their first."""
    found: dict[int, list[int]] = {}
    for number in processors:
        first = number
        with suppress(OSError, ValueError):
            text = (cpus / f"cpu{number}" / "topology" / "thread_siblings_list").read_text()
            first = min(_numbers(text))
        found.setdefault(first, []).append(number)
    return [tuple(core) for core in found.values()]


def _numbers(text: str) -> Iterator[int]:
    """The numbers of `0,64` or `0-1`."""
    for part in text.strip().split(","):
        start, _, end = part.partition("-")
        yield from range(int(start), int(end or start) + 1)


def _limited_to(group: Path) -> float:
    """How many processors' time this container gets, by the second or the first version of cgroups."""
    with suppress(OSError):
        return _quotient(*(group / "cpu.max").read_text().split())
    with suppress(OSError):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        return _quotient(*((group / "cpu" / name).read_text() for name in names))
    return float("inf")


def _quotient(quota: str, period: str = "100000") -> float:
    """`max` and -1 are no limit."""
    try:
        found = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return float("inf")
    return found if found > 0 else float("inf")
