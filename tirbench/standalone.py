"""A generated harness run by itself: `python build/rmsnorm.py`, without the command line of tirbench."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tirbench import codec
from tirbench.errors import TirbenchError, UsageError
from tirbench.model import CaseJob, Failed, Outcome, Plan, Roofs, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.harness import Program
    from tirbench.harness.case import Case
    from tirbench.harness.ranks import Ranks

INTERPRET: Final = "TRITON_INTERPRET"
"""Makes Triton run kernels in its interpreter; read while Triton is imported."""


def main(program: Program, arguments: Sequence[str] | None = None) -> None:
    """Verify and time the cases of a harness, or launch them alone; exits as the command line does."""
    try:
        code = _main(program, arguments)
    except KeyboardInterrupt:
        code = 130
    except TirbenchError as error:
        sys.stderr.write(f"error: {error}\n")
        code = error.exit_code
    sys.exit(code)


def _main(program: Program, arguments: Sequence[str] | None) -> int:
    import torch

    from tirbench.harness import ranks

    parser = _parser(program)
    options = parser.parse_args(arguments)
    there: Literal["cuda", "cpu"] = "cuda" if torch.cuda.is_available() else "cpu"
    device: Literal["cuda", "cpu"] = options.device or there
    chosen = [
        name
        for name in program.cases
        if any(fnmatch.fnmatchcase(name, p) for p in options.cases or ["*"])
    ]
    if not chosen:
        parser.error(f"no case of {program.name} matches; it has {', '.join(program.cases)}")
    if device == "cpu":
        _interpret_triton(program)
    here = ranks.join(device)
    chosen = _startable(program, chosen, here)
    plan = Plan(device=device, timer=options.timer)
    outcomes: list[Outcome] = []
    known: dict[str, None] = {}
    for name in chosen:
        case = _open(program, name, device, here)
        known |= dict.fromkeys(case.implementations)
        asked = [one for one in case.implementations if options.only in (None, one)]
        if options.launch is not None:
            launch(case, asked, options.launch)
        elif asked:
            rows = tuple(
                Row(
                    workload=program.name,
                    case=name,
                    implementation=one,
                    role=case.implementations[one].role,
                )
                for one in asked
            )
            del case  # its tensors, before they are laid out anew
            job = CaseJob(case=name, rows=rows, time=not options.verify)
            program.run(job, plan, lambda event: _note(event, outcomes, here), here)
    if options.only not in (None, *known):
        parser.error(f"no implementation is called {options.only}; there are {', '.join(known)}")
    code = 0 if options.launch is not None else _print(outcomes, here)
    here.leave()  # torchrun ends every rank as soon as one exits with another code than 0
    return code


def _startable(program: Program, names: list[str], here: Ranks) -> list[str]:
    """The cases of as many ranks as there are; the others are named on stderr.

    Raises:
        UsageError: there are none; says how the first of the others is started.
    """
    fit = [name for name in names if program.cases[name].processes == here.world_size]
    others = [program.how_to_start(name, here.world_size) for name in names if name not in fit]
    if not fit:
        raise UsageError(others[0])
    if here.rank == 0:
        sys.stderr.writelines(f"not run: {other}\n" for other in others)
    return fit


def _print(outcomes: Sequence[Outcome], here: Ranks) -> int:
    """Print the table of what was done, on the first rank; the exit code."""
    from tirbench.pipeline import exit_code
    from tirbench.rates import rated
    from tirbench.report.terminal import table

    # Rates are of the work that the workload states; there is no measured roof to compare them with.
    if here.rank == 0:
        print(table([rated(one, Roofs(), 0) for one in outcomes]), end="", flush=True)  # noqa: T201 - the result
    return exit_code(outcomes, invalid=False)


def _interpret_triton(program: Program) -> None:
    """Have Triton interpret kernels in this process: there is no device to compile them for.

    Raises:
        UsageError: Triton is imported already, and the harness is not what this process runs.
    """
    if os.environ.get(INTERPRET) == "1":
        return
    os.environ[INTERPRET] = "1"
    if "triton" in sys.modules:  # too late for this process: the same program once more
        if Path(sys.argv[0]).resolve() != Path(program.file).resolve():
            raise UsageError(
                f"set {INTERPRET}=1 before Triton is imported: there is no CUDA device"
            )
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself


def launch(case: Case, names: Sequence[str], times: int) -> None:
    """Launch without checks or timers: what a profiler or a debugger should see."""
    with case.contexts:
        for name in names:
            run = case.build(case.implementations[name])
            for _ in range(times):
                case.reset()
                run()
        case.device.synchronize()


def _open(program: Program, name: str, device: str, here: Ranks) -> Case:
    """A case on its first placement."""
    from tirbench.harness.case import Shared
    from tirbench.harness.device import Device
    from tirbench.tensors import home

    opened = Device(device, here)
    return program.open(name, opened, 0, Shared(home(opened.torch)))


def _note(event: dict[str, Any], outcomes: list[Outcome], here: Ranks) -> None:
    """Keep outcomes; say on stderr what the first rank does, and what failed on the others."""
    if event["event"] == "outcome":
        outcomes.append(outcome := codec.load(Outcome, event["outcome"]))
        if here.rank and isinstance(outcome, Failed):
            row = f"{outcome.row.case} {outcome.row.implementation}"
            sys.stderr.write(f"rank {here.rank}: {row}: {outcome.reason}\n")
    elif here.rank == 0 and event["event"] == "stage" and event["implementation"]:
        sys.stderr.write(f"{event['case']} {event['implementation']}: {event['stage']}\n")


def _parser(program: Program) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"{program.name}: {program.description}")
    ids = ", ".join(program.cases).replace("%", "%%")  # argparse formats help with %
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"case ids or globs: {ids}")
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
