"""Are pinned numbers met again? Kept runs of other days and other cards, held against the committed pins.

    tirbench exec workloads/*.toml
    python -m benchmarks.repeat RUN... --out benchmarks/results

Every row of the runs whose problem, protocol and code are the pinned ones is held against its band, and
against that and what another unit of the product adds. Writes `repeat_<hardware>.md`. Nothing here measures.
Exit: 0 all inside, 1 some outside, 3 no row to compare.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from benchmarks.runs import NAMED, ROOT
from tirbench import store
from tirbench.bands import OTHER_UNIT
from tirbench.calls import CALLS
from tirbench.judge.gate import same_code_as_pinned
from tirbench.model import Baseline, PinnedRow, Run, Timed

WORST: Final = 10
"""Of rows, those that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A row that was measured again.

    Attributes:
        run: id.
        key: of the row.
        pinned_us: what is committed.
        change: of the time, relative.
        band: of the pin.
        other_unit: whether it was pinned on another one.
    """

    run: str
    key: str
    pinned_us: float
    change: float
    band: float
    other_unit: bool

    @property
    def allowed(self) -> float:
        """What the gate would let pass."""
        return self.band + (OTHER_UNIT if self.other_unit else 0.0)

    @property
    def excess(self) -> float:
        """By how much it is beyond that; 0 inside."""
        return max(0.0, abs(self.change) - self.allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All runs; `others` are rows of other code, problem or protocol than the pinned."""

    runs: tuple[Run, ...]
    held: tuple[Held, ...]
    others: tuple[tuple[str, str], ...]


def study(root: Path, ids: Sequence[str]) -> Study:
    """Hold runs against the pins of their hardware.

    Raises:
        RunError: there is no such run.
        BaselineError: pins cannot be read.
    """
    runs, held, others = [], [], []
    for one in ids:
        kept = store.read_run(root, one)
        runs.append(kept.run)
        pins = {
            (baseline.workload, row.case, row.implementation): row
            for baseline in _baselines(root, kept)
            for row in baseline.rows
        }
        for outcome in kept.run.outcomes:
            row = outcome.row
            pin = pins.get((row.workload, row.case, row.implementation))
            if pin is None or not isinstance(outcome, Timed):
                continue
            if _is_of(pin, outcome):
                held.append(_held(kept.run, outcome, pin))
            else:
                others.append((kept.run.id, row.key))
    return Study(runs=tuple(runs), held=tuple(held), others=tuple(others))


def _baselines(root: Path, kept: store.KeptRun) -> Iterator[Baseline]:
    for path in kept.workload_paths:
        workload = Path(path)
        pins = workload.parent / "baselines" / kept.run.machine.hardware / workload.name
        baseline = store.read_baseline(root, pins.as_posix())
        if baseline is not None:
            yield baseline


def _is_of(pin: PinnedRow, timed: Timed) -> bool:
    same = (pin.problem, pin.protocol) == (timed.problem, timed.protocol)
    return same and same_code_as_pinned(pin, timed)


def _held(run: Run, timed: Timed, pin: PinnedRow) -> Held:
    return Held(
        run=run.id,
        key=timed.row.key,
        pinned_us=pin.midmean_us,
        change=timed.estimate.midmean_us / pin.midmean_us - 1,
        band=pin.band,
        other_unit=pin.unit != (timed.unit or run.machine.unit),
    )


# --- The report -------------------------------------------------------------------------------------


def markdown(found: Study) -> str:
    """The tables."""
    last = found.runs[-1]
    known = dict((*last.machine.facts, *last.machine.versions))
    versions = ", ".join(f"{name} {known[name]}" for name in known if name in NAMED)
    parts = [
        f"# Pinned numbers, met again: {last.machine.device}",
        "",
        f"{versions}. `python -m benchmarks.repeat {' '.join(run.id for run in found.runs)}`",
        "",
        "All rows of the runs whose problem, protocol and code are the pinned ones. `inside`: within the",
        "band that the pin carries; `allowed`: with what another unit of the product adds where it is",
        f"another, {100 * OTHER_UNIT:g} %, which is what the gate lets pass.",
        "",
        *_by_run(found),
        "",
        *_by_class(found),
        "",
        *_worst(found),
    ]
    if found.others:
        names = sorted({key for _, key in found.others})
        parts += [
            "",
            f"Of other code than the pinned, and not in the tables: {len(found.others)} rows.",
            "",
            *(f"* {name}" for name in names),
        ]
    return "\n".join(parts) + "\n"


def _by_run(found: Study) -> Iterator[str]:
    yield "| run | rows | on the unit of the pin | inside | allowed | median change | half within | largest |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for run in found.runs:
        mine = [one for one in found.held if one.run == run.id]
        if mine:
            day = datetime.strptime(run.id[:15], "%Y%m%d-%H%M%S")  # noqa: DTZ007 - ids are UTC
            same = sum(not one.other_unit for one in mine)
            yield f"| {day:%Y-%m-%d %H:%M} | {len(mine)} | {same} | {_shares(mine)} |"


def _by_class(found: Study) -> Iterator[str]:
    yield "| launch | rows | inside | allowed | median change | half within | largest |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    low = 0.0
    for high, name in [*((us, f"to {us:g} µs") for us, _ in CALLS), (float("inf"), "longer")]:
        mine = [one for one in found.held if low < one.pinned_us <= high]
        low = high
        if mine:
            yield f"| {name} | {len(mine)} | {_shares(mine)} |"


def _shares(mine: Sequence[Held]) -> str:
    changes = [one.change for one in mine]
    inside = sum(abs(one.change) <= one.band for one in mine)
    allowed = sum(one.excess == 0 for one in mine)
    half = statistics.median(map(abs, changes))
    largest = max(changes, key=abs)
    return (
        f"{100 * inside / len(mine):.1f} % | {100 * allowed / len(mine):.1f} % | "
        f"{100 * statistics.median(changes):+.2f} % | {100 * half:.2f} % | {100 * largest:+.2f} %"
    )


def _worst(found: Study) -> Iterator[str]:
    yield "| furthest away | pinned µs | change | allowed | |"
    yield "|---|--:|--:|--:|---|"
    for one in sorted(found.held, key=lambda one: one.allowed - abs(one.change))[:WORST]:
        yield (
            f"| {one.key} | {one.pinned_us:.4g} | {100 * one.change:+.2f} % | {100 * one.allowed:.2f} % | "
            f"{'OUTSIDE' if one.excess else ''} |"
        )


def main() -> int:
    """Read, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="ids below .tirbench/runs")
    parser.add_argument("--out", type=Path, help="folder of the page")
    arguments = parser.parse_args()
    found = study(ROOT, arguments.runs)
    if not found.held:
        print("repeat: no row of these runs is of pinned code", file=sys.stderr)
        return 3
    text = markdown(found)
    print(text)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        hardware = found.runs[-1].machine.hardware.removeprefix("nvidia-")
        (arguments.out / f"repeat_{hardware}.md").write_text(text, encoding="utf-8")
    return 1 if any(one.excess for one in found.held) else 0


if __name__ == "__main__":
    raise SystemExit(main())
