"""Runs of `tirbench exec` as benchmarks make them: bounded, read from the disk, held against each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench import codec, store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tirbench.model import BuiltAhead

ROOT: Final = Path(__file__).resolve().parents[1]

SAME: Final = 0.01
"""T of the gate: a row that is nearer than this, or than its own intervals, is the same."""

NAMED: Final = {"driver", "torch", "triton", "tirx"}
"""What of the facts of a machine a page names beside the device."""

ENDING_S: Final = 10.0
"""What a run that is interrupted may take to end."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A run as it lies on the disk.

    Attributes:
        rows: outcomes by row.
        missing: rows without one: the time was up.
        seconds: how long it took.
        ahead: what was built ahead, if anything.
        facts: date, device and versions.
    """

    rows: dict[str, dict[str, Any]]
    missing: tuple[str, ...]
    seconds: float
    ahead: BuiltAhead | None = None
    facts: str = ""


def executed(
    files: Sequence[str],
    options: Sequence[str],
    limit_s: float,
    environ: Mapping[str, str] | None = None,
) -> Ran:
    """A run; after `limit_s` seconds it is interrupted, and is what it has finished.

    Args:
        files: as of `tirbench exec`.
        options: likewise.
        limit_s: how long it may take.
        environ: what its environment has besides our own.
    """
    before = set(store.run_ids(ROOT))
    start = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "tirbench", "exec", *files, *options, "--format", "json"],
        cwd=ROOT,
        env={**os.environ, **(environ or {})},
        stdout=subprocess.DEVNULL,
    )
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    seconds = time.perf_counter() - start
    made = sorted(set(store.run_ids(ROOT)) - before)
    if not made:
        raise SystemExit(f"exit {process.returncode}: no run was made")
    return replace(kept(made[-1]), seconds=seconds)


def kept(run_id: str) -> Ran:
    """A run that was made before, by its id; how long it took is not known."""
    found = store.read_run(ROOT, run_id)
    rows: dict[str, dict[str, Any]] = {
        outcome.row.key: codec.dump(outcome)  # type: ignore[misc]  # an object, for a dataclass
        for outcome in found.run.outcomes
    }
    missing = tuple(row.key for row in found.unanswered)
    machine, day = found.run.machine, datetime.strptime(run_id[:8], "%Y%m%d").date()  # noqa: DTZ007
    known = [
        f"{name} {text}" for name, text in (*machine.facts, *machine.versions) if name in NAMED
    ]
    facts = ", ".join([day.isoformat(), machine.device, *known])
    return Ran(rows, missing, 0.0, found.run.ahead, facts)


def compared(row: Mapping[str, Any], was: Mapping[str, Any]) -> tuple[str, str]:
    """`same` or `DIFFERENT` of two timed rows, and in words."""
    new, old = row["estimate"], was["estimate"]
    ratio = new["midmean_us"] / old["midmean_us"]
    widths = (new["half_width_us"] or 0.0) + (old["half_width_us"] or 0.0)  # none of a single round
    noise = widths / old["midmean_us"]
    same = abs(ratio - 1) <= max(SAME, noise)
    notes = "; ".join(row["notes"])
    said = f"{new['midmean_us']:.3f} µs, then {old['midmean_us']:.3f}, ratio {ratio:.4f}"
    return ("same" if same else "DIFFERENT"), said + (f" ({notes})" if notes else "")
