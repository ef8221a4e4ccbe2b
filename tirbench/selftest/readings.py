"""What is kept of trials, line by line in a file that only grows: readings of several runs add up."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tirbench.judge import read_worker
from tirbench.model import Block, PairQuad, PairReading, PairWorker

Record: TypeAlias = "dict[str, Any]"

SEPARATOR = "~"
"""Between the sides of a pair."""

BASE = "base"
"""The files as they are."""

QUIETS = ("quiet", "quiet2")
"""Two loads of kernels that can be delayed, launched without a delay."""

PLANTED = "planted"

PLANTEDS = (PLANTED, "planted2")
"""The same files as those of `QUIETS`, launched with a delay."""

DELAYED = (*QUIETS, *PLANTEDS)
"""The sides whose kernels can be delayed."""

FEW_DELAYED = ((QUIETS[0], PLANTED), (*QUIETS, PLANTED), DELAYED)
"""Those of a sequence with room for two of them, three or all."""


@dataclass(slots=True)
class Writer:
    """Appends records, from several threads."""

    path: Path
    records: list[Record] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, record: Record) -> None:
        """Write a record, whole or not at all."""
        line = json.dumps(record, allow_nan=False, separators=(",", ":"))
        with self._lock:
            self.records.append(record)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def read(paths: Iterable[Path]) -> list[Record]:
    """The records of files, in order; one that was cut off when its run was killed is left out."""
    return [record for path in paths if path.is_file() for record in _records(path)]


def _records(path: Path) -> Iterator[Record]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "type" in record:
            yield record


def protocol_of(run: Record) -> int:
    """The version of the protocol that a run measured by; the first ones did not say it."""
    return int(run["protocol"].get("version", 2))


def readings_of(record: Record) -> dict[str, PairReading]:
    """What a record of type `reading` says of each of its pairs."""
    return {
        pair: PairReading(
            placement=record["placement"],
            log_ratio=log_ratio,
            quad_variance=variance,
            quads=quads,
        )
        for pair, (log_ratio, variance, quads) in record["pairs"].items()
    }


def pair_of(base: str, head: str) -> str:
    """How a pair of sides is called."""
    return f"{base}{SEPARATOR}{head}"


def is_planted(pair: str) -> bool:
    """Whether the second side of a pair is slower than the first on purpose."""
    base, _, head = pair.partition(SEPARATOR)
    return base in QUIETS and head in PLANTEDS


def pairs_of(sides: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of a sequence: any two loads of equal code; the slower sides against the quiet ones.

    Against those nothing but the delay differs. Against a load of the files as they are the machine code
    would, too, and a slowdown would have whatever size that makes of it.
    """
    loads = [side for side in sides if side not in DELAYED]
    quiets = [side for side in QUIETS if side in sides]
    slower = [side for side in PLANTEDS if side in sides]
    equal = [pair for of in (loads, quiets, slower) for pair in itertools.combinations(of, 2)]
    return [*equal, *itertools.product(quiets, slower)]


def read_logs(placement: int, base: Sequence[float], head: Sequence[float]) -> PairReading:
    """What a worker says of a pair whose sub-blocks are known by the logarithms of their midmeans.

    Two sub-blocks of each side are a quad, as `harness.quads.quads_of` pairs them.
    """
    count = min(len(base), len(head)) // 2
    quads = tuple(
        PairQuad(base=_blocks(base, index), head=_blocks(head, index)) for index in range(count)
    )
    return read_worker(PairWorker(placement=placement, quads=quads))


def _blocks(logs: Sequence[float], index: int) -> tuple[Block, Block]:
    first, second = (math.exp(value) for value in logs[2 * index : 2 * index + 2])
    return (first,), (second,)
