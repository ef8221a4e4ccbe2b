"""The few facts about Linux processes that the runner needs, without a dependency.

Everything here is best effort: on a system without `/proc` or `prctl` the answers are empty, and what
depends on them (finding strays, dying with the parent) is left to the process group and to the closing
of the connection.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h

PROC: Final = Path("/proc")

SERVER_VARIABLE: Final = "TIRBENCH_SERVER"
"""Environment variable by which everything below a server is found, whoever its parent is by now."""

CLEAR_LOOKS: Final = 3
"""How often in a row nothing must be found: a process has no environment while it executes a program."""


def libc() -> Any:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that forked it ends."""
    with suppress(AttributeError, OSError):
        libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none gets away."""
    with suppress(AttributeError, OSError):
        libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid: int) -> frozenset[int]:
    """The processes whose parent is `pid`."""
    try:
        tasks = list((PROC / str(pid) / "task").iterdir())
        lists = [(task / "children").read_text().split() for task in tasks]
    except FileNotFoundError:  # a thread ended, or a kernel without CONFIG_PROC_CHILDREN
        return frozenset(child for child, parent in _parents().items() if parent == pid)
    except OSError:
        return frozenset()
    return frozenset(int(child) for numbers in lists for child in numbers)


def descendants(pid: int) -> frozenset[int]:
    """The process `pid` and all processes below it."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        current = todo.pop()
        if current not in found:
            found.add(current)
            todo.extend(children(current))
    return frozenset(found)


def _parents() -> dict[int, int]:
    """The parent of every process that can be seen, by process id."""
    found = {}
    with suppress(OSError):
        for entry in PROC.iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError, ValueError, IndexError):  # it may be gone by now
                # The name in parentheses may itself hold spaces and parentheses.
                stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found[int(entry.name)] = int(stat[1])
    return found


def scheduled_ns(pid: int) -> tuple[int, int]:
    """How long the threads of a process and those below it ran, and waited for a CPU, in ns.

    Threads that have ended are not counted. Both are 0 where the kernel does not tell.
    """
    ran = waited = 0
    for process in descendants(pid):
        with suppress(OSError):
            for task in (PROC / str(process) / "task").iterdir():
                with suppress(OSError, ValueError):
                    run, wait, _ = map(int, (task / "schedstat").read_text().split())
                    ran, waited = ran + run, waited + wait
    return ran, waited


def memory_kills() -> int:
    """How often this system has killed a process because memory ran out; 0 where it does not tell."""
    with suppress(OSError, ValueError):
        for line in (PROC / "vmstat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def command_of(pid: int) -> str:
    """The command line of a process; empty for a zombie, a kernel thread or one that is gone."""
    with suppress(OSError):
        return (
            (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    return ""


def kill_group(pid: int) -> None:
    """Kill the process group that `pid` leads, and `pid` itself.

    Both, as a process that was forked a moment ago may not lead its group yet.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_marked(mark: str, timeout_s: float) -> None:
    """Kill everything that was started below a server, and what it forks meanwhile, until none is left.

    Args:
        mark: value of `SERVER_VARIABLE`.
        timeout_s: when to give up: a process in an endless system call does not die.
    """
    variable = f"{SERVER_VARIABLE}={mark}".encode()
    end = time.monotonic() + timeout_s
    clear = 0
    while clear < CLEAR_LOOKS and time.monotonic() < end:
        found = _marked(variable)
        clear = 0 if found else clear + 1
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _marked(variable: bytes) -> list[int]:
    """The processes that were started with this in their environment; the dead have none."""
    found = []
    with suppress(OSError):
        for entry in PROC.iterdir():
            with suppress(OSError):  # another user's, or gone by now
                if not entry.name.isdigit() or int(entry.name) == os.getpid():
                    continue
                if variable in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11; the number itself where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
