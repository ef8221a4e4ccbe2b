"""Where every millisecond of a suite of 50 cases goes: warm, with fresh workers, with fresh interpreters.

    python -m benchmarks.overhead --device cpu --out benchmarks/results/overhead_cpu.md
    python -m benchmarks.overhead --device cuda --out benchmarks/results/overhead_h200.md

Three ways to run the same cases with the same plan: all in one worker (as `tirbench exec` does), each in a
fresh worker (as after a crash), and each in a fresh interpreter (what a runner without a server does; a
sample). Stages are timed where their announcements arrive, so a stage includes what the worker does until
it announces the next one.

The cost of the runner is what is left of a case without building, verifying, initialising, and the stage
that takes times: the targets are 50 ms in a warm worker and 0.6 s in a fresh one.

It takes `--limit-s` seconds at most; the page is written after each of the three, and says what was cut.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tirbench import codec, pipeline, report, running, store
from tirbench.execute import Workers, describe, jobs
from tirbench.execute.events import CaseDone, StageStarted
from tirbench.execute.lock import DeviceLock
from tirbench.execute.pool import Server
from tirbench.model import Timed
from tirbench.reading import Reading, read
from tirbench.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tirbench.model import Job, Machine

ROOT: Final = Path(__file__).resolve().parents[1]
LIMIT_S: Final = 88.0
SHARES: Final = {"warm": 0.6, "fresh": 0.85, "alone": 1.0}
"""Of the limit: until when each way of running may begin another case."""

NOT_THE_RUNNER: Final = ("allocate", "build", "verify", "time", "reverify")
"""Stages that would take as long without a runner."""

KERNEL: Final = '''\
"""A kernel that doubles."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n)
    tl.store(y_ptr + offsets, x * 2, offsets < n)


def double(x, y):
    torch.mul(x, 2, out=y)


def doubled(x):
    return x * 2
'''
WORKLOAD: Final = """\
#:schema ./workload.schema.json
schema = 1
description = "Twice the input"
id = "n{n}"
[matrix]
n = [SIZES]
[select]
default = ["*"]
cpu = ["*"]
[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }
[kernels.ours]
target = "double.py:double"
args = ["x", "y"]
[references.torch]
target = "torch.mul"
args = { input = "x", other = 2, out = "y" }
[check.oracle]
target = "double.py:doubled"
args = ["x"]
returns = "y"
"""
TRITON: Final = """\
[kernels.triton]
kind = "triton"
target = "double.py:double_kernel"
grid = ["cdiv(n, BLOCK)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", BLOCK = 1024 }
"""
ALONE: Final = """\
import json, sys
from tirbench import codec
from tirbench.harness import open_program
from tirbench.model import CaseJob, Plan
harness, case, plan = sys.argv[1:]
done = []
open_program(harness).run(
    codec.load(CaseJob, json.loads(case)), codec.load(Plan, json.loads(plan)), done.append
)
assert sum(event["event"] == "outcome" for event in done) == len(json.loads(case)["rows"])
"""


class TimeUp(Exception):
    """What was measured until now is what there is."""


@dataclass
class Clock:
    """How long what took, in seconds, each time it was done.

    Attributes:
        end: by `perf_counter`, after which no further case begins.
        spans: seconds by what was done.
        cases_s: of each case.
        stages_s: of the stages of each case together.
    """

    end: float = float("inf")
    spans: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cases_s: list[float] = field(default_factory=list)
    stages_s: list[float] = field(default_factory=list)
    _in_case_s: float = 0.0
    _open: tuple[str, float] | None = None

    def watch(self, event: object) -> None:
        """See an event of `execute` as it arrives.

        Raises:
            TimeUp: a case is done, and no other may begin.
        """
        now = time.perf_counter()
        if isinstance(event, StageStarted):
            self._close(now)
            self._open = (event.stage, now)
        elif isinstance(event, CaseDone):
            self._close(now)
            self.cases_s.append(event.elapsed_s)
            self.stages_s.append(self._in_case_s)
            self._in_case_s = 0.0
            if now > self.end:
                raise TimeUp

    def _close(self, now: float) -> None:
        if self._open is not None:
            name, start = self._open
            self.spans[name].append(now - start)
            self._in_case_s += now - start
            self._open = None

    def timed(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        """`action`, with a note of how long it took."""

        def run(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return action(*args, **options)
            finally:
                self.spans[name].append(time.perf_counter() - start)

        return run

    def around(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        """`action`, with a note of how long it took without what is noted inside."""

        def run(*args: Any, **options: Any) -> Any:
            start, inside_s = time.perf_counter(), self.total_s(*self.spans)
            try:
                return action(*args, **options)
            finally:
                inside_s = self.total_s(*self.spans) - inside_s
                self.spans[name].append(time.perf_counter() - start - inside_s)

        return run

    def total_s(self, *names: str) -> float:
        """The sum of these."""
        return sum(sum(self.spans.get(name, ())) for name in names)


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Time what the parent does between the announcements of workers."""
    places: list[tuple[Any, str, str]] = [
        (jobs, "open_program", "load"),
        (Workers, "start", "fork"),
        (Server, "close", "close"),
        (DeviceLock, "acquire", "lock"),
        (store.RunWriter, "outcome", "journal"),
        (store.RunWriter, "samples", "journal"),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    roofs = running.measure_device
    try:
        for owner, name, what in places:
            setattr(owner, name, clock.timed(what, getattr(owner, name)))
        running.measure_device = clock.around("roofs", roofs)
        yield
    finally:
        running.measure_device = roofs
        for owner, name, action in kept:
            setattr(owner, name, action)


@dataclass
class Measured:
    """One way of running the cases."""

    clock: Clock
    wall_s: float
    rows: int
    asked: int

    @property
    def cases(self) -> int:
        """How many cases it is about."""
        return len(self.clock.cases_s)


def suite(folder: Path, cases: int, device: str) -> Reading:
    """A workload with so many small cases, in a project of its own."""
    (folder / "pyproject.toml").touch()
    (folder / "double.py").write_text(KERNEL)
    sizes = ", ".join(str(1024 * (n + 1)) for n in range(cases))
    text = WORKLOAD.replace("SIZES", sizes) + (TRITON if device == "cuda" else "")
    (folder / "twice.toml").write_text(text)
    return read(Selection(files=(str(folder / "twice.toml"),), select="all"))


def run(
    reading: Reading, options: pipeline.Options, *, fresh: bool, end: float = float("inf")
) -> Measured:
    """`exec` of the suite; with `fresh`, each case in a worker of its own; no case begins after `end`."""
    clock = Clock(end=end)
    tree = store.Tree(commit=None, dirty=())
    with watched(clock):
        execute = jobs.execute_in
        if fresh:

            def apart(where: Any, asked: Sequence[Job]) -> Any:
                single = [replace(job, cases=(case,)) for job in asked for case in job.cases]
                return execute(where, single)

            jobs.execute_in = apart  # type: ignore[assignment]
        try:
            start = time.perf_counter()
            with suppress(TimeUp):
                pipeline.run(reading, options, tree, clock.watch, lambda _: None)
            wall_s = time.perf_counter() - start
        finally:
            jobs.execute_in = execute
    kept = store.read_run(reading.root)
    clock.timed("report", report.render)(kept.run, "text", width=120, color=False)
    timed = sum(isinstance(outcome, Timed) for outcome in kept.run.outcomes)
    if timed != len(kept.run.outcomes) or not clock.cases_s:
        raise SystemExit(
            f"only {timed} of {len(kept.rows)} rows were timed: {kept.run.outcomes[:3]}"
        )
    asked = sum(len(job.cases) for job in kept.jobs)
    return Measured(clock=clock, wall_s=wall_s, rows=timed, asked=asked)


def alone(kept: store.KeptRun, options: pipeline.Options, samples: int, end: float) -> list[float]:
    """Seconds of a case in an interpreter of its own, for some of the cases; none begins after `end`."""
    (job,) = kept.jobs
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        **({"TRITON_INTERPRET": "1"} if options.device == "cpu" else {}),
    }
    found = []
    for case in job.cases[:: max(1, len(job.cases) // samples)][:samples]:
        texts = [json.dumps(codec.dump(value)) for value in (case, job.plan)]
        start = time.perf_counter()
        with suppress(subprocess.TimeoutExpired):  # killed by then
            subprocess.run(  # noqa: S603 - our own interpreter and our own text
                [sys.executable, "-c", ALONE, job.harness, *texts],
                env=environ,
                check=True,
                stdout=subprocess.DEVNULL,
                cwd=kept.folder,
                timeout=max(0.0, end - start),
            )
            found.append(time.perf_counter() - start)
    return found


# --- The page -------------------------------------------------------------------------------------


def page(
    warm: Measured, fresh: Measured | None, single_s: list[float], machine: Machine
) -> Iterator[str]:
    """What was measured, as Markdown; what the time did not reach to is left empty."""
    versions, facts = dict(machine.versions), dict(machine.facts)
    ways = [warm] if fresh is None else [warm, fresh]
    yield f"# What the runner costs: {warm.cases} cases, {machine.device}"
    yield ""
    yield (
        f"{datetime.now(timezone.utc).date()}, `python {' '.join(sys.argv)}`: "
        f"torch {versions.get('torch')}, Triton {versions.get('triton')}, {facts['python']}, "
        f"{facts.get('cpu_cores_usable', '?')} cores. {warm.rows} rows, one placement, one round."
    )
    yield ""
    yield from _ways(ways, single_s)
    yield ""
    yield "Where the time goes, in all and for a case:"
    yield ""
    yield from _parts(ways)
    yield ""
    yield (
        "The journal is written while the worker goes on, so its time lies inside the stages as well; it is "
        "counted as the runner's and not taken from the last line. The report is made after the run. The "
        "first fork waits for the server, which imports torch, Triton and inductor once; means of a case "
        "leave the first case out."
    )
    for name, way in zip(("warm", "fresh"), ways, strict=False):
        if way.cases < way.asked:
            yield ""
            yield f"The time was up: {way.cases} of {way.asked} cases were run ({name})."


def _ways(ways: Sequence[Measured], single_s: list[float]) -> Iterator[str]:
    """The three ways side by side."""
    one_s = statistics.median(single_s) if single_s else None
    rows: dict[str, list[str]] = {
        "cases": [str(way.cases) for way in ways],
        "all of them": [_ms(way.wall_s) for way in ways],
        "a case, mean": [_ms(statistics.fmean(way.clock.cases_s[1:] or [0.0])) for way in ways],
        "of it the runner": [
            f"**{_ms(_runner_s(way))}** (target {target})"
            for way, target in zip(ways, (50, 600), strict=False)
        ],
    }
    last = ["–"] * 4
    if one_s is not None:
        last = [str(len(single_s)), _ms(sum(single_s)), _ms(one_s), _ms(one_s - _work_s(ways[0]))]
    yield "| | warm worker | fresh worker a case | fresh interpreter a case |"
    yield "|---|---:|---:|---:|"
    for (label, cells), alone_cell in zip(rows.items(), last, strict=True):
        missing = ["–"] * (2 - len(cells))
        yield f"| {label} | {' | '.join([*cells, *missing, alone_cell])} |"


def _parts(ways: Sequence[Measured]) -> Iterator[str]:
    """Where the time of each way went."""
    heads = [
        f"{name}: {way.cases} cases | a case"
        for name, way in zip(("warm", "fresh"), ways, strict=False)
    ]
    yield f"| what | {' | '.join(heads)} |"
    yield "|---|" + "---:|" * (2 * len(ways))
    rests = [way.wall_s for way in ways]
    for name in (*LABELS, ""):
        if name and not any(way.clock.total_s(name) for way in ways):
            continue
        cells = []
        for number, way in enumerate(ways):
            total_s = way.clock.total_s(name) if name else rests[number]
            rests[number] -= total_s if name not in OUTSIDE else 0.0
            cells += [_ms(total_s), _ms(total_s / way.cases)]
        label = LABELS.get(name, "everything else: rendering, planning, messages")
        yield f"| {label} | {' | '.join(cells)} |"


OUTSIDE: Final = frozenset({"journal", "report"})

LABELS: Final = {
    "roofs": "ceilings of the device, and its context for that",
    "lock": "lock of the device",
    "fork": "fork (the first waits for the server)",
    "load": "load: importing harness and kernels",
    "allocate": "allocate: tensors, oracle's inputs, the context of the device",
    "build": "build",
    "verify": "verify",
    "time": "time: pilots, timed calls, flushes, rests",
    "reverify": "reverify",
    "journal": "journal: outcomes and samples, fsync",
    "report": "report",
    "close": "ending the workers and the server",
}


def _runner_s(measured: Measured) -> float:
    """Seconds of a case that no stage accounts for, and the journal."""
    clock = measured.clock
    pairs = list(zip(clock.cases_s, clock.stages_s, strict=True))
    own_s = statistics.fmean(case_s - stages_s for case_s, stages_s in pairs[1:] or pairs)
    return own_s + clock.total_s("journal") / len(pairs)


def _work_s(measured: Measured) -> float:
    """Seconds of a case that any runner would need."""
    return measured.clock.total_s(*NOT_THE_RUNNER) / len(measured.clock.cases_s)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--fresh", type=int, default=10, help="cases with a worker of their own")
    parser.add_argument(
        "--alone", type=int, default=3, help="cases with an interpreter of their own"
    )
    parser.add_argument("--timer", help="as of `tirbench exec`")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    start = time.perf_counter()
    device: Literal["cpu", "cuda"] = asked.device
    options = pipeline.Options(device=device, timer=asked.timer, placements=1, rounds=1)
    ends = {name: start + share * asked.limit_s for name, share in SHARES.items()}
    machine = describe(device)

    def show(warm: Measured, fresh: Measured | None, single_s: list[float]) -> str:
        text = "\n".join(page(warm, fresh, single_s, machine)) + "\n"
        if asked.out is not None:
            store.write(asked.out, text)
        return text

    with tempfile.TemporaryDirectory() as name:
        reading = suite(Path(name), asked.cases, device)
        # Compiled kernels and files are in caches after this.
        run(_first(reading, 2), options, fresh=False)
        warm = run(reading, options, fresh=False, end=ends["warm"])
        show(warm, None, [])
        harness = store.read_run(reading.root)
        fresh = run(_first(reading, asked.fresh), options, fresh=True, end=ends["fresh"])
        show(warm, fresh, [])
        single_s = alone(harness, options, asked.alone, ends["alone"])
    print(show(warm, fresh, single_s), end="")


def _first(reading: Reading, cases: int) -> Reading:
    (chosen,) = reading.chosen
    return replace(reading, chosen=(replace(chosen, cases=chosen.cases[:cases]),))


if __name__ == "__main__":
    main()
