"""The parent's side of the processes: a server for each device, and the workers forked from it.

Nothing here imports torch, triton or numpy.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Literal

from tirbench.errors import MeasurementError
from tirbench.execute import logs, processes
from tirbench.execute.deadlines import GRACE_S, START_S
from tirbench.execute.wire import Channel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tirbench.model import Job

PRELOAD: Final = (
    "torch",
    "triton",
    "tirbench.codec",
    "tirbench.harness",
)

SERVER_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from tirbench.execute.server import main; main({fd}, {preload!r})"
)

LOST_S: Final = 2.0
"""How long a worker that closed its connection may take to end before it is killed."""


def server_environment(
    device: Literal["cuda", "cpu"], environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a server and its workers.

    On a CPU, Triton kernels run in Triton's interpreter, which it decides on while it is imported, and
    no GPU is visible: a run on the CPU holds no lock of a GPU. With a GPU the interpreter is off, CUDA
    numbers devices as NVML does, and `torch.cuda.is_available()` asks NVML, as asking CUDA would
    create state in the server that no fork survives.
    """
    environment = dict(environ)
    if device == "cpu":
        return environment | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TRITON_INTERPRET", None)
    environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    environment.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    return environment


class Worker:
    """A forked worker as the parent sees it.

    Attributes:
        pid: its process id, which is also its process group.
        exit_status: `None` while it runs; then its status, or minus the signal that ended it.
        lost: it closed its connection while it ran, and was killed for it.
    """

    def __init__(self, pid: int, channel: Channel, server: Server) -> None:
        self.pid = pid
        self.exit_status: int | None = None
        self.lost = False
        self._channel = channel
        self._server = server

    def send(self, message: Mapping[str, Any]) -> None:
        """Tell the worker what to do; that it is dead is for `receive` to say."""
        try:
            self._channel.send(message)
        except OSError:
            self._channel.closed = True

    def receive(self, timeout_s: float) -> list[dict[str, Any]]:
        """What it said, in order; empty when it said nothing for `timeout_s` seconds or has ended."""
        end = time.monotonic() + timeout_s
        while True:
            self._server.listen()
            # In this order: what a worker said before it died is read after its death is known.
            messages = self._channel.receive()
            if messages or self.exit_status is not None:
                return messages
            if self._channel.closed:
                if not self._await_exit(LOST_S):
                    self.lost = True
                    self._server.tell({"do": "kill", "pid": self.pid})
                    if not self._await_exit(LOST_S):
                        self.exit_status = -signal.SIGKILL  # in a system call that cannot be ended
            elif not self._server.wait(end - time.monotonic(), self._channel):
                return []

    def abort(self, grace_s: float) -> None:
        """End a worker that hangs: ask it to say where it stands and die, then kill its group."""
        # On SIGABRT the fault handler writes where every thread stands, even inside native code.
        self._server.tell({"do": "signal", "pid": self.pid, "signal": signal.SIGABRT})
        self._await_exit(grace_s)
        self.kill()

    def kill(self) -> None:
        """Kill the worker and its process group, and wait until it is buried."""
        if self.exit_status is None:
            self._server.tell({"do": "kill", "pid": self.pid})
            self._await_exit(GRACE_S)
        self._channel.close()

    def _await_exit(self, timeout_s: float) -> bool:
        """Wait until the server has buried the worker; false if it lives on."""
        end = time.monotonic() + timeout_s
        while self.exit_status is None and self._server.wait(end - time.monotonic()):
            self._server.listen()
        return self.exit_status is not None


class Server:
    """The process that has torch and triton imported, and the connection to it.

    Attributes:
        log: file with what it printed.
        imported_s: how long its imports took; `None` while they go on.
    """

    def __init__(
        self,
        *,
        log: Path,
        environment: Mapping[str, str],
        preload: tuple[str, ...] = PRELOAD,
    ) -> None:
        """Start it; imports go on while the caller does something else."""
        self.log = log
        self._workers: dict[int, Worker] = {}
        self.imported_s: float | None = None
        self._forked: int | None = None
        self._mark = secrets.token_hex(8)
        ours, theirs = socket.socketpair()
        self._control = Channel(ours)
        program = SERVER_PROGRAM.format(path=sys.path, fd=theirs.fileno(), preload=preload)
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own text
                [sys.executable, "-c", program],
                env={**environment, processes.SERVER_VARIABLE: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the command, which then ends the others
            )

    @property
    def alive(self) -> bool:
        """Whether it can still fork."""
        self.listen()
        return not self._control.closed

    def fork(
        self,
        timeout_s: float,
        *,
        cores: Sequence[int] = (),
        role: Literal["worker", "builder"] = "worker",
        imports: Sequence[str] = (),
    ) -> Worker:
        """Fork a worker, waiting for the imports of the server if need be.

        Args:
            timeout_s: how long to wait.
            cores: the processors it keeps to; empty for all.
            role: what it obeys: `tirbench.execute.worker` or `builder`.
            imports: modules that the server imports before, if it has not yet.

        Raises:
            MeasurementError: the server died or did not answer in time.
        """
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        end = time.monotonic() + timeout_s
        with theirs:
            message = {"do": "fork", "as": role, "cores": list(cores), "imports": list(imports)}
            self.tell(message, fds=(theirs.fileno(),))
        self._forked = None
        while self._forked is None:
            self.listen()
            if self._forked is None and not self.wait(end - time.monotonic()):
                channel.close()
                raise MeasurementError(self._why())
        worker = self._workers[self._forked] = Worker(self._forked, channel, self)
        return worker

    def tell(self, message: Mapping[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Ask for something; a server that is gone is noticed by whoever waits."""
        try:
            self._control.send(message, fds)
        except OSError:
            self._control.closed = True

    def listen(self) -> None:
        """Take in what it said: forks and deaths."""
        for message in self._control.receive():
            if "ready" in message:
                self.imported_s = message["ready"]
            elif "forked" in message:
                self._forked = message["forked"]
            elif "exited" in message and (worker := self._workers.pop(message["exited"], None)):
                worker.exit_status = message["status"]
        if self._control.closed:  # its workers died with it
            for worker in self._workers.values():
                worker.exit_status = -signal.SIGKILL
                worker.lost = True
            self._workers.clear()

    def wait(self, timeout_s: float, channel: Channel | None = None) -> bool:
        """Wait until the server or the worker behind `channel` says something; false if neither did."""
        sources = [c for c in (self._control, channel) if c is not None and not c.closed]
        if self._control.closed or timeout_s < 0:
            return False
        return bool(select.select(sources, [], [], timeout_s)[0])

    def close(self) -> None:
        """End it; it kills its workers and everything below them first."""
        self._control.close()
        left = list(self._workers.values())
        self.listen()
        for worker in left:
            worker.kill()
        try:
            self._process.wait(timeout=2 * GRACE_S)
        finally:  # also when the second Ctrl-C comes
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            if self._process.returncode:  # killed, so that nobody has killed what was below it
                processes.kill_marked(self._mark, LOST_S)

    def _why(self) -> str:
        """Why no worker came."""
        last = logs.tail(self.log)
        what = "did not start a worker in time" if self.alive else "ended"
        return f"the server that workers are forked from {what}" + (f":\n{last}" if last else "")


class Workers:
    """Starts workers, from one server for each device; a context manager that ends them all.

    Attributes:
        cores: the processors that workers keep to; empty for all.
    """

    def __init__(
        self,
        log_dir: Path,
        *,
        preload: tuple[str, ...] = PRELOAD,
        environ: Mapping[str, str] | None = None,
        start_s: float = START_S,
    ) -> None:
        """Start nothing yet.

        Args:
            log_dir: where the servers write what they have to say.
            preload: modules that the servers import.
            environ: environment of the servers; the caller's own where left out.
            start_s: how long the start of a server and its first worker may take.
        """
        self._log_dir = log_dir
        self._preload = preload
        self._environ = os.environ if environ is None else environ
        self._start_s = start_s
        self.cores: Sequence[int] = ()
        self._servers: dict[str, Server] = {}
        self._refused: dict[str, MeasurementError] = {}

    def warm(self, device: Literal["cuda", "cpu"]) -> Server:
        """Start the server of a device if it is not up; returns at once, while it imports."""
        server = self._servers.get(device)
        if server is None or not server.alive:
            if server is not None:
                server.close()
            self._log_dir.mkdir(parents=True, exist_ok=True)
            server = self._servers[device] = Server(
                log=self._log_dir / f"server-{device}.log",
                environment=server_environment(device, self._environ),
                preload=self._preload,
            )
        return server

    def start(self, job: Job) -> Worker:
        """A fresh worker for a job.

        Raises:
            MeasurementError: none could be started; a server that never came up is not tried again.
        """
        device = job.plan.device
        if device in self._refused:
            raise self._refused[device]
        server = self.warm(device)
        try:
            return server.fork(self._start_s, cores=self.cores, imports=job.imports)
        except MeasurementError as error:
            if server.imported_s is None:
                self._refused[device] = error
            raise

    def start_builder(self, device: Literal["cuda", "cpu"], cores: Sequence[int]) -> Worker:
        """A process that builds ahead, on these processors.

        Raises:
            MeasurementError: none could be started.
        """
        return self.warm(device).fork(self._start_s, cores=cores, role="builder")

    def close(self) -> None:
        """End all servers and workers."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def __enter__(self) -> Workers:  # noqa: PYI034 - Self is in typing from 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
