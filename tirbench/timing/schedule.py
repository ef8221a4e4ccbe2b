"""In which order calls are made: blocked or interleaved, paced or not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tirbench.calls import LONG_BLOCK, SHORT_BLOCK, SHORT_CALL_US
from tirbench.timing.plan import Block, Call, Pilot, Plan, Rest, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tirbench.model import Regime

Order: TypeAlias = Literal["blocked", "interleaved"]

ORDERS: Final[tuple[Order, ...]] = ("blocked", "interleaved")
REGIMES: Final[tuple[Regime, ...]] = ("burst", "sustained")

# On an H200 a long matrix product leaves its rested regime after 30 to 90 ms of continuous work, and
# 20 ms of idling after each 16 ms of work keep it there for ever.
BURST_WORK_US: Final = 15_000.0
BURST_REST_S: Final = 0.020

# Continuous work before the first timed call of the sustained regime: twice the longest time that the
# power limit took to arrive.
SUSTAINED_WARMUP_MS: Final = 200.0

# A sub-block of a graph is one replay: 8 to 16 calls.
GRAPH_BLOCK: Final = (1, 12)
LONG_GRAPH_BLOCK: Final = (0, 8)

# Implementations are interleaved when the longest takes at most so many times the shortest.
COMPARABLE: Final = 2.0


@dataclass(slots=True, kw_only=True)
class Pacer:
    """Decides where the device rests, so that no stretch of work leaves the asked-for regime."""

    regime: Regime | None
    _spent_us: float = field(default=0.0, init=False)

    def spend(self, work_us: float) -> tuple[Rest, ...]:
        """The rest that must come before this much work; none outside of the burst regime."""
        rest = self.due(work_us)
        self._spent_us += work_us
        return rest

    def due(self, work_us: float = 0.0) -> tuple[Rest, ...]:
        """The rest that the work so far calls for before this much more; longer after longer work."""
        if self.regime != "burst" or self._spent_us == 0:
            return ()
        if self._spent_us + work_us <= BURST_WORK_US:
            return ()
        seconds = BURST_REST_S * max(1.0, self._spent_us / BURST_WORK_US)
        self._spent_us = 0.0
        return (Rest(seconds=seconds),)

    def worked(self, work_us: float) -> None:
        """So much has been done that nobody paced: first calls and estimates."""
        self._spent_us += work_us

    def rested(self, seconds: float) -> None:
        """The device has idled for so long for another reason."""
        if seconds >= BURST_REST_S:
            self._spent_us = 0.0


def warmup(call: Call, count: int, pilot: Pilot, pacer: Pacer) -> tuple[Step, ...]:
    """So many calls without a flush, as `triton.testing.do_bench` warms up."""
    return paced(replace(call, flush=None), count, pilot.launch_us, pacer)


def paced(call: Call, count: int, cycle_us: float, pacer: Pacer) -> tuple[Step, ...]:
    """So many kept calls of one implementation, in as few blocks as the pacer allows."""
    steps: list[Step] = []
    run = 0
    for _ in range(count):
        rest = pacer.spend(cycle_us)
        if rest:
            steps += [Block(call=call, kept=run)] if run else []
            steps += rest
            run = 0
        run += 1
    return (*steps, Block(call=call, kept=run)) if run else tuple(steps)


def replays(call: Call, sizes: Sequence[int], cycle_us: float, pacer: Pacer) -> tuple[Step, ...]:
    """One replay of a graph of so many calls for each of the sizes."""
    steps: list[Step] = []
    for size in sizes:
        steps += [*pacer.spend(size * cycle_us), Block(call=call, kept=size)]
    return tuple(steps)


def split(count: int, size: int) -> list[int]:
    """`count` in parts of `size`, the last one smaller where it does not divide."""
    return [min(size, count - done) for done in range(0, count, size)]


def graph_length(calls: int, cycle_us: float, regime: Regime | None) -> int:
    """How many of the calls one graph may hold: all, unless they would outlast a burst."""
    if regime != "burst" or not cycle_us > 0:
        return calls
    return max(1, min(calls, int(BURST_WORK_US / cycle_us)))


def block_shape(timer: str, pilot: Pilot, regime: Regime | None) -> tuple[int, int]:
    """(discarded, kept) calls of a sub-block of calls that take as long as the pilot says."""
    short = pilot.launch_us < SHORT_CALL_US
    if timer != "cudagraph_proton":
        return SHORT_BLOCK if short else LONG_BLOCK
    if short:
        return GRAPH_BLOCK
    discarded, kept = LONG_GRAPH_BLOCK
    return discarded, graph_length(kept, pilot.cycle_us, regime)


def groups(pilots: Mapping[str, Pilot]) -> list[list[str]]:
    """Names that are interleaved with each other: within a factor of two of the shortest of them.

    Groups and their members keep the order in which the names came.
    """
    waiting = sorted(pilots, key=lambda name: pilots[name].launch_us)
    found: list[list[str]] = []
    while waiting:
        limit_us = COMPARABLE * pilots[waiting[0]].launch_us
        group = [name for name in waiting if pilots[name].launch_us <= limit_us]
        waiting = [name for name in waiting if name not in group]
        found.append(group)
    position = {name: index for index, name in enumerate(pilots)}
    ordered = [sorted(group, key=position.__getitem__) for group in found]
    return sorted(ordered, key=lambda group: position[group[0]])


def interleaved(  # each decides one thing of the order
    calls: Sequence[Call],
    pilots: Mapping[str, Pilot],
    count: int,
    shape: tuple[int, int],
    pacer: Pacer,
    *,
    reverse: bool,
) -> Plan:
    """Sub-blocks of every call in balanced order: A B B A A B B A …, or B A A B … in reverse.

    Args:
        calls: what is interleaved; one alone gets a block of its own.
        pilots: estimates by name.
        count: kept calls of each.
        shape: (discarded, kept) calls of a sub-block.
        pacer: where to rest.
        reverse: start with the last call, as every second round does.
    """
    discarded, kept = shape
    sizes = split(count, kept)
    steps: list[Step] = []
    for index in range(0, len(sizes), 2):
        quad: list[Block] = []
        for line, size in enumerate(sizes[index : index + 2]):
            forward = (line == 0) != reverse
            row = calls if forward else list(reversed(calls))
            quad += [Block(call=call, kept=size, discarded=discarded) for call in row]
        steps += _paced_quad(quad, pilots, pacer)
    return Plan(timed=tuple(steps))


def _paced_quad(quad: Sequence[Block], pilots: Mapping[str, Pilot], pacer: Pacer) -> list[Step]:
    """Rest before the quad where all of it fits into one burst, else before single blocks."""
    work_us = [block.launches * pilots[block.call.name].cycle_us for block in quad]
    if sum(work_us) <= BURST_WORK_US:
        return [*pacer.spend(sum(work_us)), *quad]
    steps: list[Step] = []
    for block, block_us in zip(quad, work_us, strict=True):
        steps += [*pacer.spend(block_us), block]
    return steps
