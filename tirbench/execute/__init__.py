"""Workers, deadlines, locks and the facts of the machine: everything around a run of a harness.

`execute` runs jobs and yields events; whatever a kernel does, every row gets its outcome and the next
one a sound process.
"""

from tirbench.execute.cores import Division, division
from tirbench.execute.deadlines import Deadlines
from tirbench.execute.events import (
    CaseDone,
    Event,
    Reported,
    RowDone,
    StageStarted,
    WorkerReplaced,
)
from tirbench.execute.jobs import execute
from tirbench.execute.lock import DeviceLock
from tirbench.execute.machine import describe, has_cuda
from tirbench.execute.pool import Workers
from tirbench.execute.spread import execute_over, gpus

__all__ = [
    "CaseDone",
    "Deadlines",
    "DeviceLock",
    "Division",
    "Event",
    "Reported",
    "RowDone",
    "StageStarted",
    "WorkerReplaced",
    "Workers",
    "describe",
    "division",
    "execute",
    "execute_over",
    "gpus",
    "has_cuda",
]
