"""A generated harness run by itself: `python build/rmsnorm.py`, without the command line of tirbench."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from typing import TYPE_CHECKING, Any, Literal

from tirbench import codec
from tirbench.model import CaseJob, Outcome, Plan, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.harness import Program


def main(program: Program, arguments: Sequence[str] | None = None) -> None:
    """Verify and time the cases of a harness, or launch one for a profiler.

    Exits with 1 where a kernel is wrong or fails.
    """
    import torch

    options = _parser(program).parse_args(arguments)
    there: Literal["cuda", "cpu"] = "cuda" if torch.cuda.is_available() else "cpu"
    device: Literal["cuda", "cpu"] = options.device or there
    chosen = [
        name
        for name in program.cases
        if any(fnmatch.fnmatchcase(name, p) for p in options.cases or ["*"])
    ]
    if not chosen:
        sys.exit(f"no case of {program.name} matches; it has {', '.join(program.cases)}")
    if options.launch is not None:
        return launch(program, chosen, device, options.only, options.launch)
    plan = Plan(device=device, timer=options.timer)
    outcomes: list[Outcome] = []
    for name in chosen:
        rows = _rows(program, name, device, options.only)
        job = CaseJob(case=name, rows=rows, time=not options.verify)
        program.run(job, plan, lambda event: _note(event, outcomes))
    from tirbench.report.terminal import table

    print(table(outcomes))  # noqa: T201 - a program of its own, whose result is this table
    sys.exit(
        any(type(o).__name__ in {"Wrong", "Failed"} and o.row.role == "kernel" for o in outcomes)
    )


def launch(
    program: Program, cases: Sequence[str], device: str, only: str | None, times: int
) -> None:
    """Launch without checks or timers: what a profiler or a debugger should see."""
    from tirbench.harness.case import Shared
    from tirbench.harness.device import Device
    from tirbench.tensors import Arena

    opened = Device(device)
    for name in cases:
        case = program.open(name, opened, 0, Shared(Arena(opened.torch)))
        for declared in case.implementations.values():
            if only in (None, declared.name):
                run = case.build(declared)
                for _ in range(times):
                    case.memory.restore()
                    run()
        opened.synchronize()


def _rows(program: Program, name: str, device: str, only: str | None) -> tuple[Row, ...]:
    """The rows of a case, read from what its function declares."""
    from tirbench.harness.case import Shared
    from tirbench.harness.device import Device
    from tirbench.tensors import Arena

    opened = Device(device)
    case = program.open(name, opened, 0, Shared(Arena(opened.torch)))
    return tuple(
        Row(workload=program.name, case=name, implementation=item.name, role=item.role)
        for item in case.implementations.values()
        if only in (None, item.name)
    )


def _note(event: dict[str, Any], outcomes: list[Outcome]) -> None:
    """Keep outcomes; say on stderr what is being done."""
    if event["event"] == "outcome":
        outcomes.append(codec.load(Outcome, event["outcome"]))
    elif event["event"] == "stage" and event["implementation"]:
        sys.stderr.write(f"{event['case']} {event['implementation']}: {event['stage']}\n")


def _parser(program: Program) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"{program.name}: {program.description}")
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"case ids or globs: {', '.join(program.cases)}"
    )
    parser.add_argument("--only", metavar="NAME", help="one implementation")
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], help="default: cuda where torch finds one"
    )
    parser.add_argument(
        "--timer", choices=["event", "proton", "cudagraph_proton", "kineto", "wall"]
    )
    parser.add_argument("--verify", action="store_true", help="verify, do not time")
    parser.add_argument("--launch", type=int, metavar="N", help="launch N times and nothing else")
    return parser
