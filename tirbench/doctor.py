"""`tirbench doctor`: what this machine can measure and, for each thing it cannot, why and what to do."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from tirbench.model import (
    CaseJob,
    DeadlineChoice,
    Failed,
    Finding,
    ImplementationRole,
    Job,
    Outcome,
    Plan,
    Row,
    Verified,
)

PROBES: Final = {
    # One profiler family a process, so each family has a job, and with it a worker, of its own.
    "cuda": (
        ("device", "triton", "torch.compile", "cuda C++", "event", "proton", "cudagraph_proton"),
        ("kineto",),
    ),
    "cpu": (("device", "triton", "torch.compile", "wall"),),
}

DEADLINE_S: Final = 90.0
"""Of one probe: torch.compile on a slow disk takes a minute."""

CUPTI: Final = (
    "another profiler may hold CUPTI (nsys, ncu, DCGM profiling): end it; in a container, mount the "
    "driver's libraries; until then measure with --timer event"
)
REMEDIES: Final = {
    "device": "torch and the driver do not fit together, or the device is broken: nvidia-smi, and "
    "python -c 'import torch; torch.zeros(1, device=\"cuda\")'",
    "triton": "kernels of kind triton cannot run: look at the C++ compiler and ptxas above",
    "torch.compile": "references with compile = true will fail: look at the C++ compiler above",
    "cuda C++": "pip install 'tirbench[cuda]'; other kinds do without",
    "event": "CUDA events do not work on this device: look at the driver",
    "proton": CUPTI,
    "cudagraph_proton": CUPTI,
    "kineto": CUPTI,
    "wall": "the clock of this machine does not advance steadily: look at its virtualisation",
}
TIMERS: Final = frozenset({"event", "proton", "cudagraph_proton", "kineto", "wall"})
OPTIONAL: Final = frozenset({"cuda C++"})


def examine(
    device: Literal["cuda", "cpu"], root: Path, say: Callable[[str], None]
) -> tuple[Finding, ...]:
    """Look at the machine and try it.

    Args:
        device: what will be measured on.
        root: the project, where runs are kept.
        say: takes a sentence when another run holds the device.
    """
    from tirbench.execute.surroundings import look

    return (*look(device, root), *_tried(device, say))


def _tried(device: Literal["cuda", "cpu"], say: Callable[[str], None]) -> Iterator[Finding]:
    """What works in a worker, under the lock of the device."""
    from tirbench.execute import execute
    from tirbench.execute.events import RowDone

    role: ImplementationRole = "kernel"
    program = Path(__file__).parent / "harness" / "probes.py"  # named, not imported: it needs torch
    jobs = [
        Job(
            workload="doctor",
            harness=str(program),
            plan=Plan(device=device),
            cases=tuple(
                CaseJob(
                    case=name,
                    rows=(Row(workload="doctor", case=name, implementation=name, role=role),),
                )
                for name in names
            ),
            deadlines=DeadlineChoice(time=DEADLINE_S),
        )
        for names in PROBES[device]
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(execute(jobs, log_dir=Path(folder), on_wait=say)) as events,
    ):
        for event in events:
            if isinstance(event, RowDone):
                yield _finding(event.outcome, device)


def _finding(outcome: Outcome, device: str) -> Finding:
    """What a probe says of the machine."""
    name = outcome.row.implementation
    title = {"device": "CUDA device" if device == "cuda" else "CPU"}.get(name, name)
    title = f"timer {name}" if name in TIMERS else title
    if isinstance(outcome, Verified):
        found = Finding(name=title, status="yes", detail=outcome.verification.detail)
        if name == "triton" and device == "cpu":
            return replace(
                found,
                status="limited",
                remedy="kernels are verified, not timed; times of Triton kernels need a CUDA device",
            )
        return replace(found, optional=name in OPTIONAL)
    reason = outcome.reason if isinstance(outcome, Failed) else type(outcome).__name__
    return Finding(
        name=title, status="no", detail=reason, remedy=REMEDIES[name], optional=name in OPTIONAL
    )


def exit_code(findings: Iterable[Finding]) -> int:
    """3 where something that is not optional cannot be measured."""
    return 3 if any(one.status == "no" and not one.optional for one in findings) else 0
