"""The process that workers are forked from: imports the heavy modules once, then forks on request.

Our own and not `multiprocessing.forkserver`, for four things that one cannot do: an environment per
server (Triton reads `TRITON_INTERPRET` while its own library is imported), no second run of the
caller's `__main__`, the killing of whole process groups by the process that reaps them (so that a
process id is never used after it was given to someone else), and the adoption of what a worker's
children leave behind.

It runs no foreign code and creates no CUDA context. When its connection closes (the command ended, or
was killed in any way) it kills every worker and everything below them, and ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from tirbench.execute import builder, processes, worker
from tirbench.execute.wire import Channel

LAST_KILL_S: Final = 5.0


def main(control_fd: int, preload: tuple[str, ...]) -> None:
    """Serve until the connection `control_fd` closes.

    Args:
        control_fd: descriptor of a stream socket to the parent.
        preload: modules to import before the first fork; one that fails is reported on stderr and
            left to the worker, whose own import names the row that needed it.
    """
    control = Channel(socket.socket(fileno=control_fd))
    processes.adopt_orphans()
    started = time.perf_counter()
    _preload(preload)
    # The interpreter warns of threads that a preloaded library keeps (BLAS pools survive a fork).
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
    with suppress(OSError):
        control.send({"ready": round(time.perf_counter() - started, 3)})
    _Server(control).run()
    os._exit(0)  # taking torch apart would take another 0.2 s


def _preload(names: Sequence[str]) -> None:
    """Import modules; if that fails, in whatever way, the worker that needs one will say so."""
    for name in names:
        _import(name)
    gc.collect()
    gc.freeze()  # a collection in a worker would otherwise copy every page that is now shared


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception:  # noqa: BLE001 - foreign modules raise what they like
        traceback.print_exc()


class _Server:
    """The loop: fork and kill on request, reap, report, adopt and kill strays."""

    def __init__(self, control: Channel) -> None:
        self._control = control
        self._workers: set[int] = set()
        self._tried: set[str] = set()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler there must be, for the wake-up
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the parent is gone, then leave nothing behind."""
        while not self._control.closed:
            select.select([self._control.fileno(), self._wake_read], [], [])
            with suppress(BlockingIOError):
                while os.read(self._wake_read, 4096):
                    pass
            for message in self._control.receive():
                self._obey(message)
            self._reap()
        for pid in self._workers:
            processes.kill_group(pid)
        give_up = time.monotonic() + LAST_KILL_S
        while time.monotonic() < give_up and self._reap():
            self._kill_strays()  # again: the list of children skips some while others die (proc(5))
            time.sleep(0.005)
        if mark := os.environ.get(processes.SERVER_VARIABLE):
            processes.kill_marked(mark, LAST_KILL_S)

    def _obey(self, message: dict[str, Any]) -> None:
        """Do what the parent asks for: `fork`, `signal` or `kill`; the dead are past both."""
        what, pid = message.get("do"), message.get("pid")
        if what == "fork":
            self._prepare(message.get("imports", ()))
            self._fork(self._control.fds.pop(0), message)
        elif what == "signal" and pid in self._workers:
            with suppress(ProcessLookupError):
                os.kill(pid, message["signal"])
        elif what == "kill" and pid in self._workers:
            processes.kill_group(pid)

    def _prepare(self, names: Sequence[str]) -> None:
        """Import what is asked for the first time; what fails is not tried again for every worker."""
        new = [name for name in names if name not in self._tried]
        if new:
            self._tried.update(new)
            _preload(new)

    def _fork(self, fd: int, message: dict[str, Any]) -> None:
        """Fork one worker or builder, which talks to the parent over `fd`."""
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 70  # EX_SOFTWARE: the worker's own code failed
            try:
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_DFL)
                os.close(self._wake_read)
                os.close(self._wake_write)
                self._control.close()
                begin = builder.main if message.get("as") == "builder" else worker.main
                cores = message.get("cores") or ()
                status = begin(Channel(socket.socket(fileno=fd)), server, cores)
            except BaseException:  # noqa: BLE001 - nothing may return into the loop of the server
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(fd)
        self._workers.add(pid)
        self._say({"forked": pid})

    def _reap(self) -> bool:
        """Bury the dead and kill the strays; true while children are left."""
        while True:
            try:
                # Look first: while the dead keep their process id, their group cannot be another's.
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if dead is None:
                return True
            processes.kill_group(dead.si_pid)
            os.waitpid(dead.si_pid, 0)
            self._kill_strays()
            if dead.si_pid in self._workers:
                self._workers.discard(dead.si_pid)
                killed = dead.si_code != os.CLD_EXITED
                self._say(
                    {"exited": dead.si_pid, "status": -dead.si_status if killed else dead.si_status}
                )

    def _kill_strays(self) -> None:
        """Kill what was handed to us because its parent died: it may have left its group."""
        for pid in processes.children(os.getpid()) - self._workers:
            processes.kill_group(pid)

    def _say(self, message: dict[str, Any]) -> None:
        """Tell the parent; that it is gone is noticed by the loop."""
        with suppress(OSError):
            self._control.send(message)
