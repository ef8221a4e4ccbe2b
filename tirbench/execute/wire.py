"""JSON lines over a private socket, the only thing that crosses between our processes.

Not pickles: what a worker says has passed through a process that ran foreign code, and reading it must
not be able to run anything here.
"""

from __future__ import annotations

import array
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHUNK_BYTES: Final = 1 << 16
MAX_FDS: Final = 16


class Channel:
    """One end of a stream of messages. Sending blocks, receiving never does.

    Attributes:
        closed: the other side is gone (or closed its end); nothing more will arrive.
        fds: file descriptors that came with messages and were not yet taken, oldest first.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Speak over `sock`, which the channel owns from now on."""
        self._socket = sock
        self._buffer = bytearray()
        self.closed = False
        self.fds: list[int] = []

    def fileno(self) -> int:
        """The descriptor, so that a channel can be waited for with `select`."""
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one message, with copies of `fds` beside it.

        Raises:
            OSError: the other side is gone (`BrokenPipeError`, `ConnectionResetError`).
        """
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        sent = 0
        if fds:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = self._socket.sendmsg([data], ancillary)
        self._socket.sendall(data[sent:])

    def receive(self) -> list[dict[str, Any]]:
        """Everything that has arrived completely, in order; empty when there is nothing yet."""
        while not self.closed:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(
                    CHUNK_BYTES, socket.CMSG_SPACE(MAX_FDS * 4), socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                break
            except OSError:  # reset: the other process died with our last message unread
                self.closed = True
                break
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    received = array.array("i")
                    received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                    self.fds.extend(received)
            if not data:
                self.closed = True
            self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        return [message for line in lines if (message := _decoded(line)) is not None]

    def gone(self) -> bool:
        """Whether the other side has closed, without taking anything that arrived."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close this end; the other one sees it."""
        self.closed = True
        self._socket.close()


def _decoded(line: bytes | bytearray) -> dict[str, Any] | None:
    """One message, or `None` for what is none: foreign code may have written to our descriptor."""
    with suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return None
