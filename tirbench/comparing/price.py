"""What a comparison would find and cost, from what is known of its rows before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tirbench import store
from tirbench.bands import repeat_variance, session_sd_in
from tirbench.calls import FLUSH_US, LONG_BLOCK, SHORT_BLOCK, SHORT_CALL_US, calls_for
from tirbench.comparing.ask import Asked
from tirbench.comparing.pairing import Pair, paired
from tirbench.comparing.sides import Sides, opened
from tirbench.errors import TirbenchError
from tirbench.gating import Pins
from tirbench.judge import PairPlan, gpu_seconds, minimal_effect, workers_for
from tirbench.judge.rule import WORKERS
from tirbench.model import PairPrice, Timed

MOST_WORKERS: Final = 40
"""Where more would be needed, the spread between workers decides and not their number."""

ARMS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a row: its time, how well one placement's midmean repeats, and from where."""

    midmean_us: float
    within_sd: float
    source: str

    def plan(self, slower_than: float, workers: int = WORKERS) -> PairPlan:
        """The noise of the row as `judge.planning` takes it.

        A worker's log-ratio has the variance of two midmeans of one placement, spread over its quads.
        """
        block = self.block
        quads = max(1, math.ceil(calls_for(self.midmean_us) / block[1]) // 2)
        return PairPlan(
            quad_sd=self.within_sd * math.sqrt(2 * quads),
            quads=quads,
            workers=workers,
            slower_than=slower_than,
        )

    @property
    def block(self) -> tuple[int, int]:
        """Discarded and kept calls of a sub-block."""
        return SHORT_BLOCK if self.midmean_us < SHORT_CALL_US else LONG_BLOCK


def prices(root: Path, asked: Asked) -> tuple[PairPrice, ...]:
    """What every row of a comparison would find and cost; nothing is measured.

    Raises:
        UsageError: a revision or workload that nothing has.
    """
    from tirbench.execute import describe

    hardware = describe(asked.device).hardware
    with opened(root, asked) as sides:
        rows = [pair for pair in paired(sides, asked, hardware).pairs if not pair.placebo]
        known = known_rows(root, sides, hardware)
        workers = workers_of(root, rows, asked.resolve, hardware)
        return tuple(_price(pair, known.get(pair.key), workers, asked) for pair in rows)


def _price(pair: Pair, known: Known | None, workers: int, asked: Asked) -> PairPrice:
    priced = PairPrice(row=pair.row, slower_than=pair.slower_than, workers=workers)
    if known is None:
        return priced
    plan = known.plan(pair.slower_than, workers)
    flush_us = 0.0 if asked.device == "cpu" else FLUSH_US
    one_side = gpu_seconds(plan, known.midmean_us, flush_us, block=known.block)
    return replace(
        priced,
        minimal_effect=minimal_effect(plan),
        gpu_s=ARMS * one_side,
        known_from=known.source,
    )


def workers_of(root: Path, rows: Sequence[Pair], resolve: float | None, hardware: str) -> int:
    """K of a stage: five, or what a smaller threshold takes on the noisiest row that is known."""
    if resolve is None:
        return WORKERS
    known = _of_latest_run(root, hardware)
    wanted = [
        workers_for(known[pair.key].plan(resolve), resolve) for pair in rows if pair.key in known
    ]
    # Of a row that nothing is known of, tau alone sets the least.
    least = workers_for(PairPlan(quad_sd=0.0, quads=1, slower_than=resolve), resolve)
    return min(MOST_WORKERS, max([least, *wanted]))


def known_rows(root: Path, sides: Sides, hardware: str) -> Mapping[str, Known]:
    """What the pins of this hardware and the latest run say; the run comes first."""
    found: dict[str, Known] = {}
    for workload in sides.head.workloads.values():
        for (case, one), row in Pins.read(root, workload).by_hardware.get(hardware, {}).items():
            # The band of a pin holds its spread: 2·s²/5, of five placements.
            spread = repeat_variance(row.band, session_sd_in(row.session_sd))
            found[f"{workload.name}/{case}/{one}"] = Known(
                midmean_us=row.midmean_us,
                within_sd=math.sqrt(spread * WORKERS / 2),
                source="its pin",
            )
    return {**found, **_of_latest_run(root, hardware)}


def _of_latest_run(root: Path, hardware: str) -> dict[str, Known]:
    try:
        kept = store.read_run(root)
    except TirbenchError:  # none is kept, or it is of another version: pins are known all the same
        return {}
    if kept.run.machine.hardware != hardware:
        return {}
    return {
        one.row.key: Known(
            midmean_us=one.estimate.midmean_us,
            within_sd=one.estimate.within_sd,
            source=f"run {kept.run.id}",
        )
        for one in kept.run.outcomes
        if isinstance(one, Timed)
    }
