"""A harness for tests: a JSON file of what each implementation of each case does to its process."""

# ruff: noqa: T201 - kernels print

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirbench import codec
from tirbench.model import Failed, Verification, Verified, Wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.model import CaseJob, Outcome, Plan, Row

Report = "Callable[[dict[str, Any]], None]"


def hangs() -> None:
    while True:
        time.sleep(0.01)


def hangs_deaf() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGABRT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hangs()


def hangs_in_native_code() -> None:
    ctypes.PyDLL(None).sleep(1000)  # holds the interpreter's lock: no Python code runs any more


def segfaults() -> None:
    print("about to read address 0")
    ctypes.string_at(0)


def exits() -> None:
    os._exit(0)


def raises_system_exit() -> None:
    sys.exit(3)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def prints_100_mb() -> None:
    line = "x" * 999
    for _ in range(100_000):
        print(line)


def closes_every_descriptor() -> None:
    os.closerange(3, 256)


def leaves_a_thread() -> None:
    threading.Thread(target=hangs, daemon=True, name="left").start()


def leaves_children() -> None:
    command = (
        f"import time; open({note()!r}, 'a').write('{{}} '.format(__import__('os').getpid())); "
    )
    command += "time.sleep(1000)"
    subprocess.Popen([sys.executable, "-S", "-c", command])
    subprocess.Popen([sys.executable, "-S", "-c", command], start_new_session=True)
    while not Path(note()).exists() or len(Path(note()).read_text().split()) < 2:
        time.sleep(0.005)


def leaves_children_and_hangs() -> None:
    leaves_children()
    hangs()


def leaves_children_and_segfaults() -> None:
    leaves_children()
    segfaults()


def forks() -> None:
    os.fork()  # and both go on


def changes_folder() -> None:
    os.chdir("/")


def replaces_the_clock() -> None:
    time.perf_counter_ns = lambda: 0


def has_a_bad_destructor() -> None:
    class Bad:
        def __del__(self) -> None:
            raise RuntimeError("in a destructor")

    Bad()


def prints_and_returns() -> None:
    print("printed by", os.getpid())
    ctypes.CDLL(None).puts(b"printed by the C library")


def uses_the_gpu() -> None:
    start = time.monotonic()
    time.sleep(0.05)
    used = {"gpu": os.environ["TIRBENCH_TEST_GPU"], "start": start, "end": time.monotonic()}
    with Path(note()).open("a") as file:  # one write, so that two processes do not mix
        file.write(json.dumps(used) + "\n")


def allocates_without_end() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + (256 << 20)  # instead of the memory of the machine
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    kept = []
    while True:
        kept.append(bytearray(16 << 20))


def fills_the_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails then, as on a full disk
    for _ in range(1000):
        print("x" * 999)


def is_good() -> None:
    pass


def is_slow() -> None:
    time.sleep(0.5)


def tells_its_cores() -> None:
    print("cores", *sorted(os.sched_getaffinity(0)))


def note() -> str:
    """File for process ids of children."""
    return os.environ["TIRBENCH_TEST_NOTE"]


class Program:
    """Behaviours by case and implementation."""

    def __init__(self, path: str) -> None:
        self.cases: dict[str, dict[str, str]] = json.loads(Path(path).read_text())

    def run(self, job: CaseJob, plan: Plan, report: Callable[[dict[str, Any]], None]) -> None:
        """Announce, behave, answer."""
        assert plan.device == "cpu"
        behaviours = self.cases[job.case]
        stage(report, job, "allocate")
        behave(behaviours.get("allocate", "is_good"))
        for row in job.rows:
            stage(report, job, "build", row)
            stage(report, job, "verify", row)
            report(outcome(answer(row, behaviours[row.implementation], job.rows)))
        report({"event": "samples", "case": job.case, "pid": os.getpid()})
        report({"event": "case_done", "case": job.case})
        behave(behaviours.get("after", "is_good"))


def stage(
    report: Callable[[dict[str, Any]], None], job: CaseJob, name: str, row: Row | None = None
) -> None:
    implementation = None if row is None else row.implementation
    report({"event": "stage", "case": job.case, "implementation": implementation, "stage": name})


def answer(row: Row, behaviour: str, rows: tuple[Row, ...]) -> Outcome:
    if behaviour == "breaks_the_context":
        globals()["broken"] = True
    if globals().get("broken"):
        reason = "AcceleratorError: CUDA error: an illegal memory access was encountered"
        return Failed(row=row, stage="verify", reason=reason)
    if behaviour == "is_wrong":
        return Wrong(row=row, reason="all got values are 0", stage="verify")
    if behaviour == "hangs_together" and len(rows) > 1:
        behaviour = "hangs"
    behave(behaviour)
    return Verified(
        row=row,
        verification=Verification(method="oracle", worst=0.5, detail=str(os.getpid())),
        untimed="a test",
    )


def outcome(value: Outcome) -> dict[str, Any]:
    return {"event": "outcome", "outcome": codec.dump(value)}


def behave(name: str) -> None:
    globals()[name]()


def open_program(path: str) -> Program:
    """What the worker calls."""
    name = Path(path).name
    if name.startswith("raises"):
        raise ImportError("no module named deep_gemm")
    if name.startswith(("segfaults", "hangs")):
        behave(name.partition("_")[0])
    opened.append(name)
    if name.startswith("alone") and len(opened) > 1:
        raise ImportError(f"{opened[0]} was here before")
    return Program(path)


opened: list[str] = []
