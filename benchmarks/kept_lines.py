"""What undoes it that a kernel asked the L2 cache to keep what it read? About half a minute on a GPU.

    python -m benchmarks.kept_lines --out benchmarks/results

A reader of normal priority is timed after another one has asked for the same lines to be evicted last, with
different things between the two. `bench()` is told l2="warm", and the flush is part of `prepare`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from benchmarks.variance import table
from tirbench.execute import describe
from tirbench.timing import bench, midmean

if TYPE_CHECKING:
    import torch

    from tirbench.model import L2Policy

MIB: Final = 1 << 20
SIZES_MIB: Final = (0.5, 4, 16, 40)
OTHERS_MIB: Final = (4, 8, 12, 16, 24)
ENOUGH_MIB: Final = 16
"""Of others: as much as it takes on an H200."""

FLUSH_MIB: Final = 256
CALLS: Final = 300
IN_A_ROW: Final = 50

FIRST: Final = "nothing kept; flush"

Step: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What precedes a call, and the L2 policy that `bench()` adds to it."""

    name: str
    prepare: Step
    l2: L2Policy = "warm"


class States:
    """The states of the cache for the tensor of one size."""

    def __init__(self, words: torch.Tensor, out: torch.Tensor, flush: torch.Tensor) -> None:
        """Hold the tensors; `flush` is larger than the cache."""
        import torch

        self.words, self.out, self.flush = words, out, flush
        self.other = torch.zeros_like(flush)

    def __iter__(self) -> Iterator[State]:
        """Every state, the one with nothing kept first and last."""
        from benchmarks.kept_kernels import demote, write

        zero = self.flush.zero_
        yield State(name=FIRST, prepare=zero)
        yield State(name="kept; no flush", prepare=self.keep)
        yield State(name="kept; flush", prepare=_all(self.keep, zero))
        twice = _all(self.keep, zero, self.other.zero_)
        yield State(name="kept; two flushes of other buffers", prepare=twice)
        demoted = _all(self.keep, partial(demote, self.words), zero)
        yield State(name="kept; `applypriority` on the same lines; flush", prepare=demoted)
        reset = _all(self.keep, self.reset, zero)
        yield State(name="kept; `cuCtxResetPersistingL2Cache`; flush", prepare=reset)
        for mib in OTHERS_MIB:
            some = self.other[: mib * MIB // 4]
            steps = _all(self.keep, partial(write, some), partial(demote, some), zero)
            yield State(name=f"kept; {mib} MiB of others kept and let go; flush", prepare=steps)
        some = self.other[: ENOUGH_MIB * MIB // 4]
        held = _all(self.keep, partial(write, some), zero)
        yield State(name=f"kept; {ENOUGH_MIB} MiB of others kept; flush", prepare=held)
        last = [
            partial(write, self.flush[-some.numel() :]),
            partial(demote, self.flush[-some.numel() :]),
        ]
        ending = _all(self.keep, self.flush[: -some.numel()].zero_, *last)
        yield State(
            name=f"kept; flush whose last {ENOUGH_MIB} MiB are kept and let go", prepare=ending
        )
        yield State(name="kept; `l2='cold-dirty'` of tirbench", prepare=self.keep, l2="cold-dirty")
        yield State(name=f"{FIRST}, again", prepare=zero)

    def keep(self) -> None:
        """Have the tensor kept."""
        from benchmarks.kept_kernels import keep

        keep(self.words, self.out)

    def reset(self) -> None:
        """Ask the driver to keep nothing any more; what the GPU still has to do comes first."""
        import torch

        torch.cuda.synchronize()
        reset_persisting()

    def measure(self) -> dict[str, float]:
        """Midmean of the reader in every state, µs; nothing is left over from one to the next."""
        from benchmarks.kept_kernels import read

        found = {}
        for state in self:
            self.reset()
            result: Any = bench(
                {"read": partial(read, self.words, self.out)},
                prepare={"read": state.prepare},
                l2=state.l2,
                calls=CALLS,
                cooldown_s=0.0,
            )
            found[state.name] = midmean(result["samples"]["read"][0])
        return found


def reset_persisting() -> None:
    """Ask the driver to keep nothing any more."""
    if error := ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache():
        raise RuntimeError(f"cuCtxResetPersistingL2Cache: CUDA error {error}")


def costs(flush: torch.Tensor) -> dict[str, tuple[float, float]]:
    """What flushing takes, by what it consists of: µs of the GPU and of the host."""
    from benchmarks.kept_kernels import demote, write
    from tirbench.timing.device import open_cuda
    from tirbench.timing.flush import BUFFERS
    from tirbench.timing.kept_lines import Driver, letting_go

    device = open_cuda(None, "event")
    other = flush.clone()
    most = ENOUGH_MIB * MIB // 4  # of words
    ours = BUFFERS.flush(device, "cold-dirty")
    beside = letting_go(Driver(), device.index, other.data_ptr(), other.nbytes, device.stream)
    within = letting_go(Driver(), device.index, flush.data_ptr(), flush.nbytes, device.stream)
    if ours is None or beside is None or within is None:
        return {}
    zero = flush.zero_
    ways: dict[str, Step] = {
        "zero": zero,
        f"keep {ENOUGH_MIB} MiB of another buffer": partial(write, other[:most]),
        f"let go of {ENOUGH_MIB} MiB": partial(demote, other[:most]),
        "keep and let go, by Triton": _all(
            partial(write, other[:most]), partial(demote, other[:most])
        ),
        "keep and let go, by the driver": beside,
        "zero; keep and let go of another buffer before": _all(beside, zero),
        "zero; keep and let go of a part of it before": _all(within, zero),
        f"zero; its last {ENOUGH_MIB} MiB kept and let go": _all(
            flush[:-most].zero_, partial(write, flush[-most:]), partial(demote, flush[-most:])
        ),
        "zero; `cuCtxResetPersistingL2Cache` before": _all(reset_persisting, zero),
        "`l2='cold-dirty'` of tirbench": ours,
    }
    return {name: _cost(way) for name, way in ways.items()}


def costs_while_recording(flush: torch.Tensor) -> dict[str, tuple[float, float]]:
    """The same while Proton records what is launched."""
    from tirbench.timing.proton import TritonProton

    session = TritonProton()
    try:
        return costs(flush)
    finally:
        session.finish()


def _cost(way: Step) -> tuple[float, float]:
    """µs of the GPU and of the host: of `IN_A_ROW` in a row, launched while the GPU is kept waiting."""
    import torch

    from tirbench.timing.device import open_cuda

    device = open_cuda(None, "event")
    begin, end = device.event(), device.event()
    way()
    device.synchronize()
    device.wait(20_000.0)
    started = time.perf_counter()
    begin.record()
    for _ in range(IN_A_ROW):
        way()
    end.record()
    host_s = time.perf_counter() - started
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / IN_A_ROW, host_s * 1e6 / IN_A_ROW


def _all(*steps: Step) -> Step:
    def run() -> None:
        for step in steps:
            step()

    return run


def measure() -> dict[str, Any]:
    """Every state for every size, with what it was measured on."""
    import torch

    from benchmarks.kept_kernels import BLOCK

    flush = torch.zeros(FLUSH_MIB * MIB // 4, dtype=torch.int32, device="cuda")
    before = costs(flush)
    recorded = costs_while_recording(flush)
    found = {}
    for size in SIZES_MIB:
        words = torch.zeros(int(size * MIB) // 4, dtype=torch.int32, device="cuda")
        out = torch.zeros(1 + words.numel() // BLOCK, dtype=torch.int32, device="cuda")
        found[f"{size:g}"] = States(words, out, flush).measure()
    machine = describe("cuda")
    known = {**dict(machine.versions), **dict(machine.facts)}
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "python -m benchmarks.kept_lines",
        "hardware": machine.hardware,
        "device": machine.device,
        "versions": {name: known[name] for name in ("driver", "torch", "triton") if name in known},
        "l2_mib": torch.cuda.get_device_properties(0).L2_cache_size / MIB,
        "calls": CALLS,
        "midmean_us": found,
        # CUPTI stays in a process that has had a session of Proton.
        "costs_us": {
            name: [*us, *recorded[name], *after]
            for (name, us), after in zip(before.items(), costs(flush).values(), strict=True)
        },
    }


def markdown(document: dict[str, Any]) -> str:
    """The page."""
    by_size: dict[str, dict[str, float]] = document["midmean_us"]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [
        (
            state,
            *(
                f"{found[state]:.4g} ({100 * (found[state] / found[FIRST] - 1):+.1f} %)"
                for found in by_size.values()
            ),
        )
        for state in next(iter(by_size.values()))
    ]
    parts = [
        f"# Lines that the L2 cache was asked to keep, on {document['device']}",
        "",
        (
            f"{document['date']}; {versions}; L2 of {document['l2_mib']:.0f} MiB; `{document['command']}`; "
            f"midmeans of {document['calls']} calls, µs, by Proton."
        ),
        "",
        (
            "A kernel of normal priority reads a tensor. `kept`: another one has read it before, with "
            f"`evict_last`. `flush`: {FLUSH_MIB} MiB are set to zero, as Triton does it. `others`: lines of "
            "another buffer, written with `evict_last`; `let go`: and given normal priority by "
            "`applypriority`. Percentages are against the first line."
        ),
        "",
        *table(("before the call", *(f"{size} MiB" for size in by_size)), lines),
        *_cost_table(document.get("costs_us", {})),
    ]
    return "\n".join(parts) + "\n"


def _cost_table(found: dict[str, list[float]]) -> list[str]:
    if not found:
        return []
    columns = ("GPU µs", "host µs")
    head = (
        "what",
        *(f"{column}{when}" for when in ("", ", recorded", ", after Proton") for column in columns),
    )
    return [
        "",
        "## What flushing takes",
        "",
        (
            f"Mean of {IN_A_ROW} in a row, by events, with the host ahead of the GPU: before any session of "
            "Proton, while one records, and after it."
        ),
        "",
        *table(head, [(name, *(f"{us:.1f}" for us in of)) for name, of in found.items()]),
    ]


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and write the page where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of kept_lines_<hardware>.md and .json")
    arguments = parser.parse_args(argv)
    document = measure()
    text = markdown(document)
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        stem = arguments.out / f"kept_lines_{document['hardware'].removeprefix('nvidia-')}"
        stem.with_suffix(".md").write_text(text, encoding="utf-8")
        written = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        stem.with_suffix(".json").write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
