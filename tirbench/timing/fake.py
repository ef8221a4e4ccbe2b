"""A GPU in memory, with a clock of its own and both profilers: every branch of a timer runs without a card.

Used by the tests of the timers; use it to test a timer of your own.

    gpu = FakeGpu()
    timer = EventTimer(device=gpu, sleep=gpu.sleep, clock_ns=gpu.clock_ns)
    timer.measure(Plan(timed=(Block(call=Call(name="k", launch=gpu.kernel(5.0)), kept=3),)))
"""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tirbench.timing.activity import GpuEvent, Kind
from tirbench.timing.plan import Closure
from tirbench.timing.proton import CAPTURED_AT, TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One activity: what it is, how long it takes, and on which stream (None: the current one)."""

    name: str
    us: float
    kind: Kind = "kernel"
    stream: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An activity as captured: in which graph, and in which scopes."""

    graph: int
    work: Work
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An activity that has run, in which scopes it was launched, and the node it was launched by, if any."""

    work: Work
    start_ns: int
    end_ns: int
    stream: int
    scopes: tuple[str, ...]
    node: Node | None


class FakeEvent:
    """A point in the virtual time of the current stream."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.at_ns = 0

    def record(self) -> None:
        """Mark when the current stream gets here."""
        self.at_ns = self._gpu.reached_ns()

    def elapsed_time(self, end: FakeEvent) -> float:
        """Milliseconds, or what the GPU is told to answer instead."""
        if self._gpu.event_answers_ms:
            return self._gpu.event_answers_ms.pop(0)
        return (end.at_ns - self.at_ns) / 1e6


class FakeGraph:
    """Captured activities."""

    def __init__(self, gpu: FakeGpu, nodes: list[Node]) -> None:
        self._gpu = gpu
        self.nodes = nodes

    def replay(self) -> None:
        """Run them all again."""
        self._gpu.log.append("replay")
        for node in self.nodes:
            self._gpu.run(node.work, node)


@dataclass
class FakePool:
    """Memory of graphs: gone with the last of them."""

    graphs: weakref.WeakSet[FakeGraph] = field(default_factory=weakref.WeakSet)
    used: bool = False


@dataclass
class FakeGpu:
    """Streams, a host clock, events, graphs, and what profilers see of them.

    `log` lists what happened in order: names of activities, `replay`, `rest`, `drain`. `event_answers_ms`
    are answered first when events are asked for times.
    """

    is_hip: bool = False
    capturing: bool = False
    host_ns: int = 1_000
    event_answers_ms: list[float] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    sleeps_s: list[float] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    stream: int = 0
    _free_ns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _graphs: int = 0
    _recording: list[Node] | None = None

    def kernel(
        self, us: float, name: str = "kernel", *, kind: Kind = "kernel", stream: int | None = None
    ) -> Closure:
        """A closure that launches this activity."""
        work = Work(name=name, us=us, kind=kind, stream=stream)
        return lambda: self.run(work)

    def run(self, work: Work, node: Node | None = None) -> None:
        """Enqueue the activity, or record it while a graph is captured.

        Stream 0, as torch's default stream, has no part in a capture: what is launched there runs.
        """
        if self._recording is not None and work.stream != 0:
            self._recording.append(Node(graph=self._graphs, work=work, scopes=tuple(self.scopes)))
            return
        stream = self.stream if work.stream is None else work.stream
        start_ns = max(self.host_ns, self._free_ns[stream])
        end_ns = start_ns + round(work.us * 1e3)
        self._free_ns[stream] = end_ns
        self.log.append(work.name)
        self.done.append(
            Done(
                work=work,
                start_ns=start_ns,
                end_ns=end_ns,
                stream=stream,
                scopes=tuple(self.scopes),
                node=node,
            )
        )

    def run_us(self, us: float) -> None:
        """Launch a kernel that takes so long."""
        self.run(Work(name="kernel", us=us))

    def reached_ns(self) -> int:
        """When the current stream will have done all it has."""
        return max(self.host_ns, self._free_ns[self.stream])

    def clock_ns(self) -> int:
        """The host's clock; reading it takes 50 ns."""
        self.host_ns += 50
        return self.host_ns

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.log.append("rest")
        self.sleeps_s.append(seconds)
        self.host_ns += round(seconds * 1e9)

    def synchronize(self) -> None:
        """Wait for all streams."""
        self.log.append("drain")
        self.host_ns = max(self.host_ns, *self._free_ns.values(), 0)

    def synchronize_stream(self) -> None:
        """Wait for the current stream."""
        self.host_ns = self.reached_ns()

    def event(self) -> FakeEvent:
        """A new event."""
        return FakeEvent(self)

    def is_capturing(self) -> bool:
        """As told."""
        return self.capturing

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        """Stream 7, after all that stream 0 has."""
        outer, self.stream = self.stream, 7
        self._free_ns[7] = max(self._free_ns[7], self._free_ns[outer])
        yield
        self._free_ns[outer] = max(self._free_ns[7], self._free_ns[outer])
        self.stream = outer

    def graph_pool(self) -> FakePool:
        """A new pool."""
        return FakePool()

    def capture(self, body: Closure, pool: object) -> FakeGraph:
        """Record what the body launches; like torch, only into a pool that its graphs have kept alive."""
        if not isinstance(pool, FakePool) or (pool.used and not pool.graphs):
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        self.log.append("capture")
        self._graphs += 1
        self._recording = []
        try:
            body()
            graph = FakeGraph(self, self._recording)
        finally:
            self._recording = None
        pool.used = True
        pool.graphs.add(graph)
        return graph

    def fill_one(self) -> None:
        """A kernel of 1 µs."""
        self.run(Work(name="fill_one", us=1.0))

    def wait(self, us: float) -> None:
        """Nothing, for so long."""
        self.run(Work(name="wait", us=us))

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """An open scope of whichever profiler runs."""
        self.scopes.append(name)
        try:
            yield
        finally:
            self.scopes.pop()


@dataclass
class FakeProton:
    """A Proton session on a fake GPU; like Proton it sees kernels alone.

    Args:
        gpu: whose activities it sees.
        generation: the version of Triton. For each node of a graph, 3.6 knows the scopes of its latest
            launch alone, and reads what CUPTI has recorded when the session ends; 3.7 knows the scopes of
            every launch.
        lose: activities that leave no record.
    """

    gpu: FakeGpu
    generation: Literal["3.6", "3.7"] = "3.6"
    lose: Callable[[Done], bool] = lambda _: False
    opened_at: int = field(init=False)

    def __post_init__(self) -> None:
        self.gpu.log.append("proton start")
        self.opened_at = len(self.gpu.done)

    def scope(self, name: str) -> contextlib.AbstractContextManager[object]:
        """A scope."""
        return self.gpu.scope(name)

    def finish(self) -> list[dict[str, Any]]:
        """The tree, in the shape of Proton's JSON."""
        self.gpu.log.append("proton finish")
        seen = self.gpu.done[self.opened_at :]
        latest = {done.node.graph: done.scopes for done in seen if done.node is not None}
        root = _frame("ROOT")
        root["metrics"] = {"count": 0, TIME: 0}
        for done in seen:
            if done.work.kind != "kernel" or self.lose(done):
                continue
            path = done.scopes
            if done.node is not None:
                launched_in = path if self.generation == "3.7" else latest[done.node.graph]
                path = (*launched_in, CAPTURED_AT, *done.node.scopes)
            node = root
            for name in (*path, done.work.name):
                node = _child(node, name)
            metrics = node["metrics"]
            metrics[TIME] = metrics.get(TIME, 0) + done.end_ns - done.start_ns
            metrics["count"] = metrics.get("count", 0) + 1
        return [root, {"CUDA": {"0": {"arch": "90"}}}]


def _frame(name: str) -> dict[str, Any]:
    return {"frame": {"name": name, "type": "function"}, "metrics": {}, "children": []}


def _child(node: dict[str, Any], name: str) -> dict[str, Any]:
    for child in node["children"]:
        if child["frame"]["name"] == name:
            found: dict[str, Any] = child
            return found
    new = _frame(name)
    node["children"].append(new)
    return new


@dataclass
class FakeKineto:
    """A Kineto session on a fake GPU: intervals of everything, annotations per stream and scope."""

    gpu: FakeGpu
    lose: Callable[[Done], bool] = lambda _: False
    opened_at: int = field(init=False)

    def __post_init__(self) -> None:
        self.gpu.log.append("kineto start")
        self.opened_at = len(self.gpu.done)

    def scope(self, name: str) -> contextlib.AbstractContextManager[object]:
        """An annotation."""
        return self.gpu.scope(name)

    def finish(self) -> list[GpuEvent]:
        """Activities and annotations since the session was opened."""
        self.gpu.log.append("kineto finish")
        seen = [done for done in self.gpu.done[self.opened_at :] if not self.lose(done)]
        annotations: dict[tuple[str, int], list[Done]] = defaultdict(list)
        for done in seen:
            for scope in done.scopes:
                annotations[scope, done.stream].append(done)
        return [
            *(_event(done.work.kind, done.work.name, [done], done.stream) for done in seen),
            *(
                _event("annotation", scope, covered, stream)
                for (scope, stream), covered in annotations.items()
            ),
        ]


def _event(kind: Kind, name: str, covered: list[Done], stream: int) -> GpuEvent:
    return GpuEvent(
        kind=kind,
        name=name,
        start_ns=min(done.start_ns for done in covered),
        end_ns=max(done.end_ns for done in covered),
        stream=(0, stream),
    )
