"""Timer `cudagraph_proton`: kernel time of replayed graphs, as Triton's `do_bench_cudagraph_proton`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from tirbench.errors import AttributionError, CaptureError
from tirbench.timing.pilots import EventPilot
from tirbench.timing.plan import Block, Call, CallFailed, Pilot, Plan, Record, Rest
from tirbench.timing.proton import Attribution, ProtonSession, ScopeNames, TritonProton, attribute
from tirbench.timing.steps import blame, drain, launch_untimed, walk
from tirbench.timing.timers.common import require_no_capture, require_nvidia
from tirbench.timing.timers.proton import record, require_all_attributed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.timing.device import Device, Graph
    from tirbench.timing.plan import Closure

# triton.testing.do_bench_cudagraph replays the graph ten times.
REPLAYS: Final = 10


@dataclass(slots=True, kw_only=True)
class Captured:
    """The graph of one or more blocks: its launches bear the numbers from `first` on."""

    block: Block
    graph: Graph
    first: int
    replays: int = 0


@dataclass(slots=True, kw_only=True)
class CudagraphProtonTimer:
    """Adds the durations of the kernels of each launch in a replayed graph: no host, no launch cost.

    Every block of the plan is one replay. Proton adds up all replays of a graph, so a block has a graph
    of its own unless the plan asks for the mean over replays. Scopes around the replays would not tell
    them apart: Proton of Triton 3.6 knows one scope for each node of a graph, that of its latest
    launch, and books there whatever CUPTI hands over afterwards, from earlier launches too.

    Flush and `prepare` are nodes of the graph outside of the scopes. What a closure does in Python is
    frozen at the capture. A flush, or a kernel of one element, follows the last launch: the last kernel
    of a graph takes 0.3 µs longer than it does elsewhere (H200), so that without it the time of a
    launch would depend on how many share its graph.
    """

    device: Device
    sleep: Callable[[float], None]
    clock_ns: Callable[[], int]
    open_session: Callable[[], ProtonSession] = TritonProton
    _pilot: EventPilot = field(init=False)

    def __post_init__(self) -> None:
        """Estimate without the flush, as `do_bench_cudagraph`."""
        self._pilot = EventPilot(device=self.device, clock_ns=self.clock_ns, flushed=False)

    def require(self) -> None:
        """Refuse ROCm and an active capture."""
        require_nvidia(self.device, "cudagraph_proton")
        require_no_capture(self.device, "cudagraph_proton")

    def pilot(self, call: Call) -> Pilot:
        """First call and estimate, on a side stream."""
        with self.device.side_stream():
            return self._pilot.estimate(call)

    def measure(self, plan: Plan) -> list[Record]:
        """Capture each block once with the session open, then replay in the order of the plan."""
        names = ScopeNames(f"tirbench.{uuid.uuid4().hex}")
        with self.device.side_stream():
            self._warm(plan)
            walk(plan.warmup, launch_untimed, self.device, self.sleep)
            drain(self.device, plan)
            session = self.open_session()
            tree = []
            try:
                self.device.fill_one()  # a sign of life: a profiler that misses even this is dead
                captures = self._capture(plan, session, names)
                self._replay(plan, captures)
                drain(self.device, plan)
            finally:
                tree = session.finish()
        return to_records(attribute(tree, names), captures)

    def facts(self) -> dict[str, object]:
        """What a sample is."""
        return {
            "source": "proton",
            "definition": "sum of the durations of all kernels of one launch in a replayed graph; "
            "gaps, memcpy and memset excluded",
        }

    def _warm(self, plan: Plan) -> None:
        """Launch everything once in the stream of the capture.

        Libraries allocate a workspace per stream on first use, which a capture forbids (ROCm/aiter#5371).
        """
        for call in {block.call.name: block.call for block in plan.blocks()}.values():

            def launch(call: Call) -> None:
                call.precede()
                call.launch()
                self.device.synchronize()

            blame(call, launch)

    def _capture(self, plan: Plan, session: ProtonSession, names: ScopeNames) -> list[Captured]:
        """A graph for every block of the plan, in order; the same one for equal blocks that merge."""
        pool = self.device.graph_pool()
        captures: list[Captured] = []
        merged: dict[tuple[str, int], Captured] = {}
        first = 0
        for block in plan.blocks():
            key = (block.call.name, block.launches)
            captured = merged.get(key) if plan.merge_replays else None
            if captured is None:
                last = block.call.flush or self.device.fill_one
                body = partial(_launch_scoped, block, first, session, names, last)
                graph = self._capture_one(block.call.name, body, pool)
                captured = merged[key] = Captured(block=block, graph=graph, first=first)
                first += block.launches
            captures.append(captured)
        self.device.synchronize()
        return captures

    def _capture_one(self, name: str, body: Closure, pool: object) -> Graph:
        try:
            return self.device.capture(body, pool)
        except Exception as error:  # foreign code runs in the capture
            cause = root_cause(error)
            stuck = f". {error}" if isinstance(error, CaptureError) else ""
            because = f"{type(cause).__name__}: {first_line(cause)}"
            raise CallFailed(name, cannot_capture(name, because, stuck, error)) from error

    def _replay(self, plan: Plan, captures: list[Captured]) -> None:
        """Replay the graph of every block in the order of the plan."""
        waiting = iter(captures)
        for step in plan.timed:
            if isinstance(step, Rest):
                self.device.synchronize()
                self.sleep(step.seconds)
            else:
                captured = next(waiting)
                blame(step.call, partial(_replay_once, captured.graph))
                captured.replays += 1


def _launch_scoped(
    block: Block, first: int, session: ProtonSession, names: ScopeNames, last: Closure
) -> None:
    for index in range(first, first + block.launches):
        block.call.precede()
        with session.scope(names.launch(index)):
            block.call.launch()
    last()


def _replay_once(graph: Graph, _: Call) -> None:
    graph.replay()


def to_records(attribution: Attribution, captures: list[Captured]) -> list[Record]:
    """One record per launch of a graph: its time, or its mean over the replays of the graph."""
    graphs = list({id(captured): captured for captured in captures}.values())
    owners = [
        captured.block.call.name for captured in graphs for _ in range(captured.block.launches)
    ]
    require_all_captured(attribution, owners)
    require_all_attributed(attribution, owners)
    records = []
    for captured in graphs:
        name = captured.block.call.name
        for index in range(captured.block.launches):
            totals = attribution.scopes[captured.first + index]
            if totals.kernels % captured.replays:
                raise CallFailed(
                    name,
                    AttributionError(
                        f"{name!r}: Proton recorded {totals.kernels} kernels in {captured.replays} "
                        "replays of one launch: records were lost"
                    ),
                )
            kept = index >= captured.block.discarded
            records.append(record(name, totals, kept=kept, replays=captured.replays))
    return records


def require_all_captured(attribution: Attribution, owners: list[str]) -> None:
    """Insist that all kernels came from replays.

    A kernel on a stream that has no part in the capture runs at once, while its launch is captured: its
    time would be taken for that of the replay, in which it is missing.

    Raises:
        CallFailed: around a CaptureError.
    """
    for index, totals in attribution.scopes.items():
        if totals.replayed != totals.kernels:
            names = ", ".join(map(repr, totals.names))
            because = f"it launches on a stream that has no part in the capture; seen: {names}"
            raise CallFailed(owners[index], cannot_capture(owners[index], because))


def cannot_capture(
    name: str, because: str, stuck: str = "", cause: Exception | None = None
) -> CaptureError:
    """The error to raise for an implementation that cannot be captured, and which timer can time it."""
    failure = CaptureError(
        f"{name!r} cannot be captured into a CUDA graph ({because}); use timer='proton'{stuck}"
    )
    failure.__cause__ = cause
    return failure


def first_line(error: BaseException) -> str:
    """What the error says; torch appends paragraphs on how to debug CUDA in general."""
    return str(error).strip().partition("\n")[0]


def root_cause(error: BaseException) -> BaseException:
    """The first error of a chain: leaving a broken capture raises a second one over it."""
    while True:
        earlier = error.__cause__ or error.__context__
        if earlier is None:
            return error
        error = earlier
