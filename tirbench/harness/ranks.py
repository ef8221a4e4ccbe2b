"""The ranks of a distributed case: who this process is among them, and how they agree.

Every rank runs the same harness and must make the same collective calls, whatever happens to it: what one
rank cannot do, none does. (A kernel that waits on the GPU for a rank that never launched is beyond this: that
rank waits for the others' word until the time-out of the process group, and torchrun ends them all.)
"""

from __future__ import annotations

import atexit
import datetime as dt
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import torch

from tirbench.errors import MeasurementError, UsageError

T = TypeVar("T")

TIMEOUT: Final = dt.timedelta(minutes=10)
"""How long a rank waits for the others, as NCCL does: one may compile while the rest are done."""


class Ranks:
    """This process among the ranks of its case; in itself a process alone, which is the only one."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    def gather(self, said: str | None) -> list[str | None]:
        """What every rank says, in their order; a collective call."""
        return [said]

    def barrier(self) -> None:
        """Return when every rank has called it; the host waits."""

    def max_reduce(self, value: float) -> float:
        """The largest value of all ranks; a collective call."""
        return value

    def agree(self, action: Callable[[], T]) -> T:
        """The result of an action that succeeds on every rank; a collective call.

        Raises:
            Exception: what the action raised here.
            MeasurementError: it failed on another rank; says on which, and what it raised.
        """
        if self.world_size == 1:
            return action()
        results: list[T] = []
        failure: Exception | None = None
        try:
            results.append(action())
        except Exception as error:  # noqa: BLE001 - foreign code; said to the others, raised below
            failure = error
        elsewhere = self.first(None if failure is None else _one_line(failure))
        if failure is not None:
            raise failure
        if elsewhere is not None:
            raise MeasurementError(elsewhere)
        return results[0]

    def first(self, said: str | None) -> str | None:
        """What the first rank that says something says; names it where not all say the same."""
        if self.world_size == 1:
            return said
        found = self.gather(said)
        if len(set(found)) == 1:
            return found[0]
        rank, text = next((rank, text) for rank, text in enumerate(found) if text is not None)
        return f"rank {rank}: {text}"

    def require_same(self, what: str, said: str) -> None:
        """Refuse what differs between ranks; a collective call.

        Raises:
            UsageError: another rank says something else.
        """
        for rank, other in enumerate(self.gather(said)):
            if other != said:
                raise UsageError(f"{what}: {said} on rank {self.rank}, {other} on rank {rank}")

    def leave(self) -> None:
        """End what was joined, when every rank is done."""


class Group(Ranks):
    """One rank of a process group of torch: every word goes over the host.

    Its barrier is one of the current stream, too. The hosts leave theirs while the GPUs still do what was
    launched before it, which ends on each at another time: whoever is first would wait inside what is timed.
    An all-reduce of 4 MiB over two H200 read 90 ± 18 µs with a barrier of the hosts alone, 39.0 ± 0.07 with
    both (torch 2.11).
    """

    def __init__(self, kind: str, rank: int, local_rank: int, world_size: int) -> None:
        """Open a way over the hosts beside the default group, whose kernels run on the device."""
        self._token = torch.zeros(1, device="cuda") if kind == "cuda" else None
        self.rank = rank
        self.local_rank = local_rank
        self.world_size = world_size
        self._host: Any = torch.distributed.new_group(backend="gloo", timeout=TIMEOUT)

    def gather(self, said: str | None) -> list[str | None]:
        """What every rank says, in their order; a collective call."""
        found: list[str | None] = [None] * self.world_size
        torch.distributed.all_gather_object(found, said, group=self._host)
        return found

    def barrier(self) -> None:
        """Return when every rank has called it; what is launched next starts on all GPUs together."""
        if self._token is not None:
            torch.distributed.all_reduce(self._token)
        torch.distributed.barrier(group=self._host)

    def max_reduce(self, value: float) -> float:
        """The largest value of all ranks; a collective call."""
        held = torch.tensor([value], dtype=torch.float64)
        torch.distributed.all_reduce(held, torch.distributed.ReduceOp.MAX, group=self._host)
        return float(held)

    def leave(self) -> None:
        """End the process group, when every rank is done."""
        self.barrier()
        torch.distributed.destroy_process_group()


def join(kind: str, environ: Mapping[str, str] = os.environ) -> Ranks:
    """Join the ranks that torchrun has started; a process that it did not start is alone.

    Each rank gets a GPU of its own, that of its number on the host, and the default process group is there
    for the kernels and references of the workload.

    Args:
        kind: `cuda` or `cpu`.
        environ: the environment, in which torchrun says who is who.

    Raises:
        MeasurementError: this host has more ranks than GPUs.
    """
    if not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environ.keys():
        return Ranks()
    rank, local_rank, world_size = (
        int(environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    )
    if kind == "cuda":
        if local_rank >= torch.cuda.device_count():
            raise MeasurementError(
                f"rank {rank} has no GPU of its own: this host has {torch.cuda.device_count()}; "
                "start no more ranks, or --device cpu"
            )
        torch.cuda.set_device(local_rank)
    torch.distributed.init_process_group(_backend(kind), timeout=TIMEOUT)
    return Group(kind, rank, local_rank, world_size)


def join_alone(kind: str) -> None:
    """Have a process group of one, for a ranked case that runs in one process, if there is none."""
    if torch.distributed.is_available() and not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            _backend(kind), store=torch.distributed.HashStore(), rank=0, world_size=1
        )
        atexit.register(_leave)  # NCCL complains about a group that is left to itself


def _leave() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _backend(kind: str) -> str:
    return "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"


def _one_line(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
