"""Self-test: how often are the verdicts of this machine right?

Every kernel is loaded several times into one worker, and one more time with a slowdown planted in it, and
the pairs are judged as `ab` judges two revisions (`engine`, `decide`). Readings of several runs add up
(`readings`); `shares` say how often equal code was called different and how often a slowdown was found.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirbench.digest import PROTOCOL_VERSION
from tirbench.judge import Policy
from tirbench.selftest.ask import Asked
from tirbench.selftest.foresee import Foreseen, foresee
from tirbench.selftest.kept import Kept, keep, known, notes, resolver, sentence
from tirbench.selftest.outcomes import Tried, tried
from tirbench.selftest.readings import Record, Writer, protocol_of, read
from tirbench.selftest.shares import AIMED, Tally, tally

if TYPE_CHECKING:
    from tirbench.execute.events import Event
    from tirbench.model import Machine

__all__ = [
    "AIMED",
    "Asked",
    "Foreseen",
    "Kept",
    "Record",
    "Tally",
    "Tried",
    "folders",
    "foresee",
    "keep",
    "known",
    "measure",
    "notes",
    "of_latest",
    "of_protocol",
    "protocol_of",
    "read",
    "resolver",
    "sentence",
    "tallied",
    "tally",
    "tried",
]


def measure(
    asked: Asked,
    *,
    machine: Machine,
    readings: Path,
    say: Callable[[str], None],
    watch: Callable[[Event], None] = lambda _: None,
    before: Sequence[Record] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Measure what is asked for and append it to a file.

    Args:
        asked: what, and how long.
        machine: what it is measured on.
        readings: the file.
        say: takes sentences.
        watch: is shown every event.
        before: records of earlier runs, whose strengths are used again; those of the file where left out.
        facts: what the file says of this run besides.

    Raises:
        UsageError: nothing to try.
        InputError: a workload is not right.
    """
    from tirbench.selftest.engine import Engine
    from tirbench.selftest.trees import opened

    earlier = read([readings]) if before is None else before
    run = secrets.token_hex(3)
    with opened(asked) as trees:
        writer = Writer(readings)
        engine = Engine(
            asked=asked,
            trees=trees,
            writer=writer,
            run=run,
            before=of_latest(earlier, _versions(machine)),
            watch=watch,
            say=say,
            hardware=machine.hardware,
        )
        writer.add(
            {
                "type": "run",
                "run": run,
                "date": datetime.now(timezone.utc).date().isoformat(),
                "command": "tirbench selftest",
                **(facts or {}),
                "hardware": machine.hardware,
                "device": machine.device,
                "versions": _versions(machine),
                "units": engine.units(machine),
                "protocol": {
                    "version": PROTOCOL_VERSION,
                    "workers": asked.workers,
                    "loads": asked.loads,
                    "planted": asked.planted,
                },
            }
        )
        engine.measure()


def of_latest(records: Sequence[Record], versions: str | None = None) -> list[Record]:
    """The records of runs on the software of the latest run, or on this one: others tell of other kernels."""
    runs = [one for one in records if one["type"] == "run"]
    if not runs:
        return []
    wanted = runs[-1]["versions"] if versions is None else versions
    mine = {one["run"] for one in runs if one["versions"] == wanted}
    return [one for one in records if one["run"] in mine]


def of_protocol(records: Sequence[Record]) -> list[Record]:
    """The records of runs by the newest protocol among them: times of another mean something else."""
    versions = {one["run"]: protocol_of(one) for one in records if one["type"] == "run"}
    newest = max(versions.values(), default=0)
    return [one for one in records if versions.get(one["run"]) == newest]


def tallied(records: Sequence[Record]) -> Tally | None:
    """What the readings of all runs by the newest protocol say; `None` without a run."""
    mine = of_protocol(records)
    runs = [one for one in mine if one["type"] == "run"]
    if not runs:
        return None
    return tally(tried(mine, Policy(workers=runs[-1]["protocol"]["workers"])))


def folders(asked: Asked) -> tuple[Path, ...]:
    """The folders of the workloads that are asked for."""
    from tirbench.selection import Selection, paths

    return tuple(sorted({path.absolute().parent for path in paths(Selection(files=asked.files))}))


def _versions(machine: Machine) -> str:
    """What a reader wants to know of the software."""
    found = {**dict(machine.versions), **dict(machine.facts)}
    names = ("driver", "torch", "triton", "apache-tvm-tirx")
    return ", ".join(f"{name} {found[name]}" for name in names if name in found)
