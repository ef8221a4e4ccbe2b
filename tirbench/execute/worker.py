"""What runs in a forked worker: opens one harness, runs one case after the other when told to.

The worker is the only process in which foreign code runs, so it promises nothing: the parent holds the
deadlines and the truth. It does make sure that it dies with its parent, that what is printed lands in
the log of the case, and that what a case left behind (threads, children, another folder, a replaced
clock) is reported, so that no other case starts in its remains.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import resource
import select
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench.execute import logs, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tirbench.execute.wire import Channel

PARENT_GONE: Final = 71
"""Exit status of a worker that nobody listens to any more."""

OOM_SCORE_ADJUSTMENT: Final = "500"
"""The kernel's out-of-memory killer takes the worker and not the command or a neighbour."""

CLOCKS: Final = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")


def main(channel: Channel, server: int, cores: Iterable[int] = ()) -> int:
    """Obey `open` and `case` until the connection closes; returns the exit status.

    Args:
        channel: the connection to the parent.
        server: process id of the server this worker was forked from.
        cores: the processors it keeps to; empty for all.
    """
    if not settle(server, cores, OOM_SCORE_ADJUSTMENT):
        return PARENT_GONE
    try:
        _Worker(channel).serve()
    except (BrokenPipeError, ConnectionResetError):
        return PARENT_GONE
    return 0


def settle(server: int, cores: Iterable[int], oom_score: str) -> bool:
    """Make a process of its own of what was just forked; false if its parent is gone already.

    Args:
        server: process id of the server it was forked from, with which it dies.
        cores: the processors it keeps to; empty for all.
        oom_score: how gladly the system may kill it for its memory.
    """
    os.setsid()
    processes.die_with_parent()
    if os.getppid() != server:  # it died before the kernel knew whom we depend on
        return False
    if chosen := frozenset(cores):
        _keep_to(chosen)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core of a GPU process is gigabytes
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(oom_score)
    faulthandler.enable(file=2)  # where every thread stood, also when the parent aborts a hung one
    return True


def _keep_to(cores: frozenset[int]) -> None:
    """Run on these processors, with no more threads of torch than they are."""
    try:
        os.sched_setaffinity(0, cores)
    except OSError:  # taken from us meanwhile: then all that are left
        return
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(min(torch.get_num_threads(), len(cores)))


class _Worker:
    """One harness, opened once, and the connection."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pid = os.getpid()
        self._program: Any = None
        self._plan: Any = None

    def serve(self) -> None:
        """Do what the parent says until it closes the connection."""
        while not self._channel.closed:
            select.select([self._channel], [], [])
            for message in self._channel.receive():
                log_to(message["log"])
                if message["do"] == "open":
                    self._guarded(partial(self._open, message))
                else:
                    self._case(message)
                _flush()

    def _open(self, message: dict[str, Any]) -> None:
        """Import the opener and let it load the harness."""
        from tirbench import codec
        from tirbench.model import Plan

        module, _, function = message["opener"].partition(":")
        self._plan = codec.load(Plan, message["plan"])
        self._program = getattr(importlib.import_module(module), function)(message["harness"])
        self._send({"event": "opened"})

    def _case(self, message: dict[str, Any]) -> None:
        """Run one case and say that it returned, and in what state it left the process."""
        from tirbench import codec
        from tirbench.model import CaseJob

        job = codec.load(CaseJob, message["case_job"])
        before = _State()
        if self._guarded(partial(self._program.run, job, self._plan, self._report)):
            self._send({"event": "case_done", "damage": before.damage()})

    def _report(self, event: dict[str, Any]) -> None:
        """Pass on an event of the harness; that a case is done is ours to say, when it returned."""
        if event["event"] == "stage":
            _flush()
            with suppress(OSError):  # foreign code may have closed it
                os.write(2, logs.mark(event["stage"], event.get("implementation")).encode())
        if event["event"] != "case_done":
            self._send(event)

    def _send(self, message: dict[str, Any]) -> None:
        """Speak to the parent, unless this is a copy of the worker that a kernel forked."""
        if os.getpid() != self._pid:
            os._exit(0)
        self._channel.send(message)

    def _guarded(self, action: Callable[[], None]) -> bool:
        """Run foreign code; what escapes it is reported, and false returned."""
        try:
            action()
        except (BrokenPipeError, ConnectionResetError):
            if self._channel.gone():
                raise
            self._raised()
        except BaseException:  # noqa: BLE001 - a kernel may raise SystemExit or KeyboardInterrupt too
            self._raised()
        else:
            return True
        return False

    def _raised(self) -> None:
        """Tell of the exception being handled and of its traceback."""
        kind, value, _ = sys.exc_info()
        name = kind.__name__ if kind else "unknown"
        first = next(iter(str(value).splitlines()), "")
        detail = traceback.format_exc()
        self._send({"event": "raised", "reason": f"{name}: {first}".rstrip(": "), "detail": detail})


class _State:
    """What a case must leave as it found it."""

    def __init__(self) -> None:
        self._folder = os.getcwd()  # noqa: PTH109 - compared as text
        self._threads = set(threading.enumerate())
        self._children = processes.descendants(os.getpid())
        self._clocks = {name: getattr(time, name) for name in CLOCKS}

    def damage(self) -> list[str]:
        """One phrase for each thing that is not as it was."""
        found = []
        if _folder() != self._folder:
            found.append("it changed the working directory")
        if changed := [
            name for name, clock in self._clocks.items() if getattr(time, name) is not clock
        ]:
            found.append(f"it replaced time.{changed[0]}")
        if threads := [
            t.name for t in threading.enumerate() if t not in self._threads and _foreign(t)
        ]:
            found.append(f"it left a running thread ({threads[0]})")
        left = processes.descendants(os.getpid()) - self._children
        if any(_disturbs(processes.command_of(pid)) for pid in left):
            found.append("it left a running process")
        return found


def _folder() -> str:
    """The working directory; empty if it was deleted."""
    with suppress(OSError):
        return os.getcwd()  # noqa: PTH109 - compared as text
    return ""


def _foreign(thread: threading.Thread) -> bool:
    """Whether a thread may disturb the next case.

    The pools that torch and Triton keep do not, nor does the monitor of tqdm (torch.compile shows its
    progress with it), which wakes every ten seconds.
    """
    runs = getattr(thread, "_target", None) or type(thread)
    package = (getattr(runs, "__module__", None) or "").partition(".")[0]
    return thread.is_alive() and package not in {"concurrent", "torch", "tqdm", "triton"}


def _disturbs(command: str) -> bool:
    """Whether a child may disturb the next case; torch.compile keeps idle compilers, which do not."""
    return bool(command) and "compile_worker" not in command and "resource_tracker" not in command


def log_to(path: str) -> None:
    """Let what this process and its children print end in the file `path`, appending."""
    _flush()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:  # a full disk: the case before keeps the log
        return
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    if fd > 2:
        os.close(fd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        # Line by line, so that a crash loses nothing that was printed; new objects, as foreign code
        # may have replaced or closed the old ones.
        stream = open(number, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def _flush() -> None:
    """Write out what Python and the C library still hold for stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # whatever foreign code put there
            stream.flush()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).fflush(None)
