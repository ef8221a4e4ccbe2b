"""What `fidelity.py` times, and who reads the time: tirbench, Triton, and a second reading of the protocol.

Everything here runs in worker processes. The second reading of Proton's public protocol follows Triton 3.8's
`do_bench_proton` and `do_bench_cudagraph_proton` and shares no code with tirbench, so that a mistake
of one of them shows. `triton.profiler` is imported by whom uses it, never beside Kineto.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
import triton
import triton.language as tl
import triton.testing

from tirbench.timing import bench, midmean

Closure: TypeAlias = Callable[[], object]
Reader: TypeAlias = "Callable[[Closure, float], float]"
"""Of a closure and about how many µs it takes: how many somebody says it takes."""

WARMUP_MS: Final = 1.0
REPEAT_MS: Final = 4.0
GRAPH_LAUNCHES: Final = 20
GRAPH_MS: Final = 2.0
HOST_US: Final = (
    20.0  # what launching a short kernel takes the host, which is all its estimate sees
)
LONG_US: Final = 500.0
REST_S: Final = 0.02  # keeps a long matrix product in its rested regime: 20 ms after at most 15 ms

ARENA_BYTES: Final = 3 << 30


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def empty_kernel(x_ptr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103
    pass


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103, N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + y, mask=at < n)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def rmsnorm_kernel(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103, N803
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / n + 1e-6) * w
    tl.store(y_ptr + row * n + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


class Arena:
    """One allocation, so that all workers place their tensors alike."""

    def __init__(self) -> None:
        self.buffer = torch.zeros(ARENA_BYTES, dtype=torch.uint8, device="cuda")
        self._used = 0

    def take(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The next tensor, at a multiple of 512 bytes, with normal values."""
        count = torch.Size(shape).numel() * dtype.itemsize
        piece = self.buffer[self._used : self._used + count].view(dtype).view(shape)
        self._used += -(-count // 512) * 512
        return piece.normal_()


def closures(arena: Arena) -> dict[str, Closure]:
    """Twelve launches from 1 µs to 2 ms, by name."""
    x, w, y = (
        arena.take(128, 4096, dtype=torch.float16),
        arena.take(4096, dtype=torch.float16),
        arena.take(128, 4096, dtype=torch.float16),
    )
    big = [arena.take(1 << 26) for _ in range(3)]
    square = arena.take(4096, 4096)
    softmaxed = arena.take(4096, 4096)
    side = torch.cuda.Stream()

    def add(count: int) -> Closure:
        a, b, out = (tensor[:count] for tensor in big)
        grid = (triton.cdiv(count, 1024),)
        return lambda: add_kernel[grid](a, b, out, count, BLOCK=1024)

    def product(size: int) -> Closure:
        a, b, out = (arena.take(size, size, dtype=torch.bfloat16) for _ in range(3))
        return lambda: torch.mm(a, b, out=out)

    def rmsnorm() -> object:
        return rmsnorm_kernel[(128,)](x, w, y, 4096, BLOCK=4096, num_warps=8)

    small = add(1 << 20)

    def two() -> None:
        small()
        rmsnorm()

    def joined() -> None:
        current = torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            rmsnorm()
        current.wait_stream(side)

    return {
        "empty": lambda: empty_kernel[(1,)](x),
        "add_4k": add(4096),
        "rmsnorm_128x4096": rmsnorm,
        "matmul_512": product(512),
        "add_1m": small,
        "two_kernels": two,
        "side_stream": joined,
        "matmul_2048": product(2048),
        "copy_64m": lambda: big[2].copy_(big[0]),
        "softmax_4096": lambda: torch.softmax(square, -1, out=softmaxed),
        "add_64m": add(1 << 26),
        "matmul_8192": product(8192),
    }


def graph_ms(length_us: float) -> float:
    """A budget for some twenty launches a graph, fewer of long ones.

    Public graphs end with a launch, and the last kernel of a graph takes 0.3 µs longer (H200). With the
    20 ms that the protocol has by default that is nothing; with one launch a graph it would be all of it.
    """
    return min(GRAPH_MS, GRAPH_LAUNCHES * max(length_us, HOST_US) / 1e3)


def ours(timer: str) -> Reader:
    """Tirbench's mean, µs."""

    def read(launch: Closure, length_us: float) -> float:
        budgets: dict[str, Any] = {"warmup": WARMUP_MS, "repeat": REPEAT_MS}
        if timer == "cudagraph_proton":
            budgets = {"cudagraph_rep": graph_ms(length_us)}
        result = bench({"it": launch}, timer=timer, cooldown_s=0.0, **budgets)  # type: ignore[arg-type,unused-ignore]
        return float(result["impls"]["it"])

    return read


def kineto_sum(launch: Closure, _: float) -> float:
    """What tirbench's Kineto timer adds up, µs: the midmean of spans, or the sum of several kernels."""
    result = bench(
        {"it": launch}, timer="kineto", cooldown_s=0.0, warmup=WARMUP_MS, repeat=REPEAT_MS
    )
    activity = result["activity"]["it"]
    if len(activity["names"]) > 1:
        return float(activity["sum_us"])
    return midmean(result["samples"]["it"][0])


def do_bench(launch: Closure, _: float) -> float:
    """Triton's own mean, µs."""
    time_ms = triton.testing.do_bench(launch, warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="mean")
    return float(time_ms) * 1e3


def public_proton(launch: Closure, _: float) -> float:
    """The public protocol of `proton`, read a second time, µs."""
    import triton.profiler as proton

    launch()
    torch.cuda.synchronize()
    cache = torch.empty(256 * 1024 * 1024 // 4, dtype=torch.int, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(5):
        cache.zero_()
        launch()
    end.record()
    torch.cuda.synchronize()
    estimate_ms = begin.elapsed_time(end) / 5
    for _ in range(max(1, int(WARMUP_MS / estimate_ms))):
        launch()
    torch.cuda.synchronize()
    count = max(1, int(REPEAT_MS / estimate_ms))

    def run() -> None:
        for index in range(count):
            cache.zero_()
            with proton.scope(f"public.{index:06d}"):
                launch()
        torch.cuda.synchronize()

    times_ns = scope_times_ns(run)
    if len(times_ns) != count:
        raise RuntimeError(f"{len(times_ns)} scopes of {count}")
    return sum(times_ns) / count / 1e3


def public_cudagraph_proton(launch: Closure, length_us: float) -> float:
    """The public protocol of `cudagraph_proton`, read a second time, µs."""
    import triton.profiler as proton

    cache = torch.empty(256 * 1024 * 1024 // 4, dtype=torch.int, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        launch()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            launch()
        end.record()
        torch.cuda.synchronize()
        count = max(1, int(graph_ms(length_us) / (begin.elapsed_time(end) / 5)))

        def run() -> None:
            graph = torch.cuda.CUDAGraph()
            gc.disable()
            with torch.cuda.graph(graph):
                for index in range(count):
                    cache.zero_()
                    with proton.scope(f"public.{index:06d}"):
                        launch()
            gc.enable()
            torch.cuda.synchronize()
            for _ in range(10):
                graph.replay()
            torch.cuda.synchronize()

        times_ns = scope_times_ns(run)
    return sum(times_ns) / count / 10 / 1e3


def scope_times_ns(run: Closure) -> list[int]:
    """GPU time below every `public.…` scope that Proton saw while it ran; from the file it writes."""
    import triton.profiler as proton

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "public"
        session = proton.start(str(path), context="shadow", data="tree")
        try:
            run()
        finally:
            proton.finalize(session)
        tree = json.loads(path.with_suffix(".hatchet").read_text(encoding="utf-8"))
    totals: dict[str, int] = {}

    def visit(node: dict[str, Any], scope: str | None) -> None:
        name = node["frame"]["name"]
        scope = name if name.startswith("public.") else scope
        if scope is not None:
            totals[scope] = totals.get(scope, 0) + int(node["metrics"].get("time (ns)", 0))
        for child in node.get("children", []):
            visit(child, scope)

    visit(tree[0], None)
    return [total for total in totals.values() if total > 0]


READINGS: Final[dict[str, dict[str, Reader]]] = {
    # One profiler family per process.
    "events": {"event": ours("event"), "do_bench": do_bench},
    "proton": {
        "proton": ours("proton"),
        "public_proton": public_proton,
        "cudagraph_proton": ours("cudagraph_proton"),
        "public_cudagraph_proton": public_cudagraph_proton,
    },
    "kineto": {
        "kineto_span": ours("kineto"),
        "kineto_sum": kineto_sum,
        "event_beside": ours("event"),
    },
}

# A copy has no kernel: Proton cannot see it, and tirbench must refuse to say a number.
INVISIBLE_TO_PROTON: Final = "copy_64m"


def worker(family: str, requests: Any, answers: Any) -> None:
    """Answer `(closure, reversed)` with the readings of the family, until None comes."""
    torch.manual_seed(0)
    arena = Arena()
    launches = closures(arena)
    lengths_us = {}
    for name, launch in launches.items():
        launch()  # compile, and find out how long it takes
        lengths_us[name] = do_bench(launch, 0.0)
    gc.collect()
    gc.freeze()  # capturing a graph collects garbage: not all of torch and Triton each time
    answers.send({"address": arena.buffer.data_ptr(), "lengths_us": lengths_us, **facts()})
    while (request := requests.recv()) is not None:
        name, backwards = request
        names = list(READINGS[family])
        found: dict[str, float | str] = {}
        for reading in reversed(names) if backwards else names:
            time.sleep(REST_S if lengths_us[name] > LONG_US else 0.0)
            try:
                found[reading] = READINGS[family][reading](launches[name], lengths_us[name])
            except RuntimeError as error:
                found[reading] = f"{type(error).__name__}: {error}"
        answers.send(found)


def facts() -> dict[str, str]:
    """What it was measured on."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
    }
