"""A generated program: the cases of one workload, and the files they come from."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from tirbench.errors import UsageError
from tirbench.harness.case import Case, Shared
from tirbench.harness.declarations import Timing
from tirbench.harness.device import Device
from tirbench.harness.driver import CaseRun
from tirbench.harness.ranks import Ranks, join_alone
from tirbench.model import CaseJob, Plan
from tirbench.tensors import Computed, filled_by

CaseFunction = Callable[[Case], None]


@dataclass(frozen=True, slots=True)
class CaseEntry:
    """One case as the harness declares it; `world_size` is `None` where the workload has no ranks."""

    name: str
    values: Mapping[str, object]
    function: CaseFunction
    world_size: int | None = None

    @property
    def processes(self) -> int:
        """How many processes run it together."""
        return self.world_size or 1


@dataclass
class Program:
    """The head of a harness.

    Attributes:
        name: name of the workload.
        workload: path of its TOML file, relative to the project's folder.
        file: the harness itself.
        description: the workload's own.
        seed: seed of the tensors' contents.
        timing: how the workload asks to be timed.
        cases: by id, in the order of the file.
    """

    name: str
    workload: str
    file: str
    description: str = ""
    seed: int = 0
    timing: Timing = field(default_factory=Timing)
    cases: dict[str, CaseEntry] = field(default_factory=dict)

    def case(
        self, name: str, values: Mapping[str, object], *, world_size: int | None = None
    ) -> Callable[[CaseFunction], CaseFunction]:
        """Declare a case: the decorated function fills a `Case` in."""

        def declare(function: CaseFunction) -> CaseFunction:
            self.cases[name] = CaseEntry(name, values, function, world_size)
            return function

        return declare

    @cached_property
    def folder(self) -> Path:
        """The folder of the workload, found upwards from the harness and from the working directory.

        A harness holds no absolute path, so it finds its project where it lies or where it is run.

        Raises:
            UsageError: neither is inside the project.
        """
        for start in (Path(self.file).resolve().parent, Path.cwd()):
            for folder in (start, *start.parents):
                if (folder / self.workload).is_file():
                    return (folder / self.workload).parent
        raise UsageError(
            f"{self.workload} is not above this harness nor the working directory: run it inside the project"
        )

    def open(self, case: str, device: Device, placement: int, shared: Shared) -> Case:
        """One case on one placement: tensors laid out and filled, nothing built yet.

        Raises:
            UsageError: the harness has no such case, or it is one of another number of ranks.
        """
        if case not in self.cases:
            raise UsageError(f"{self.name} has no case {case!r}; it has {', '.join(self.cases)}")
        entry = self.cases[case]
        if entry.processes != device.world_size:
            raise UsageError(self.how_to_start(case, device.world_size))
        if entry.world_size == 1:
            join_alone(device.kind)
        opened = Case(
            name=case,
            folder=self.folder,
            device=device,
            seed=self.seed,
            placement=placement,
            shared=shared,
        )
        entry.function(opened)
        return opened

    def how_to_start(self, case: str, world_size: int) -> str:
        """The sentence that says how a case is started that needs another number of ranks."""
        needed, there = self.cases[case].processes, f"runs as {world_size}"
        by = "python" if needed == 1 else f"torchrun --nproc-per-node {needed}"
        ranks = "1 process" if needed == 1 else f"{needed} ranks"
        return f"{case} needs {ranks} and {there}: {by} {Path(self.file).name} {case}"

    def run(
        self,
        job: CaseJob,
        plan: Plan,
        report: Callable[[dict[str, Any]], None],
        ranks: Ranks | None = None,
    ) -> None:
        """Verify and time one case; every row of the job is reported exactly once.

        Args:
            job: the case and its rows.
            plan: device, timer, placements and rounds.
            report: takes `{"event": "stage" | "samples" | "outcome" | "case_done", …}`.
            ranks: this process among those that run the case, each with the same job; left out: it is alone.
        """
        CaseRun(self, job, plan, report, ranks).run()

    def place(self, trace: TracebackType | None) -> str:
        """The line of the TOML that an error comes from: `workloads/rmsnorm.toml:28`.

        The innermost frame inside the harness decides; the nearest comment at or above it, in the same
        case, names the line. Without one (tensors are allocated by one call) the workload is named alone.
        """
        filling = filled_by(trace)
        if isinstance(filling, Computed):
            return self.place_of_function(filling.args)
        if filling is not None:
            return self._declared("Tensor", filling.name)
        numbers = [number for file, number in _frames(trace) if Path(file) == Path(self.file)]
        return self._at_or_above(numbers[-1] if numbers else 0)

    def place_of(self, name: str) -> str:
        """The line of the TOML that declares an implementation: the same in every case."""
        return self._declared("(?:kernel|reference)", name)

    def _declared(self, what: str, name: str) -> str:
        """The line of the TOML of what the harness declares by name: `tb.Tensor('x', …)`."""
        head = re.compile(
            rf"^ +(?:@case|tb)\.{what}\((?:  # .*\n\s+)?{re.escape(repr(name))}[,)\n]", re.MULTILINE
        )
        text = "\n".join(self._source)
        if start := head.search(text):
            line = text.count("\n", 0, start.start())
            if found := self._marker.search(self._source[line]):
                return f"{self.workload}:{found[1]}"
        return self.workload

    def place_of_function(self, function: Callable[..., Any]) -> str:
        """The line of the TOML that a function written in the harness comes from."""
        return self._at_or_above(function.__code__.co_firstlineno)

    def _at_or_above(self, line: int) -> str:
        """The line of the TOML that the nearest comment names, at or above a line, in the same case."""
        for text in reversed(self._source[:line]):
            if found := self._marker.search(text):
                return f"{self.workload}:{found[1]}"
            if text.startswith("@program.case("):
                break
        return self.workload

    @cached_property
    def _marker(self) -> re.Pattern[str]:
        return re.compile(rf"  # {re.escape(self.name)}\.toml:(\d+)$")

    @cached_property
    def _source(self) -> list[str]:
        return Path(self.file).read_text(encoding="utf-8").splitlines()


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


class Runnable(Protocol):
    """What a worker runs: a harness, or a program that answers a job like one."""

    def run(self, job: CaseJob, plan: Plan, report: Callable[[dict[str, Any]], None]) -> None:
        """Answer every row of the job."""


def open_program(path: str | Path) -> Runnable:
    """Import a generated harness.

    Raises:
        UsageError: the file is no harness.
        Exception: what the file raises when it is imported.
    """
    path = Path(path).resolve()
    name = f"tirbench_harness_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if not hasattr(getattr(module, "program", None), "run"):
        raise UsageError(f"{path.name} is no harness of `tirbench compile`: it defines no program")
    program: Runnable = module.program
    return program
