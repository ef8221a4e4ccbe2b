"""How long each stage may take: the one table of it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tirbench.model import DeadlineChoice, Stage

GRACE_S: Final = 5.0
"""Between the deadline, when a worker is asked to die, and the killing of its process group."""

START_S: Final = 120.0
"""How long the start of a server may take: importing torch from a cold network disk takes a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds a stage may go on without an announcement, and the grace before the process is killed.

    The clock starts anew with each announced stage, so the deadline is of one implementation's build
    or verification, not of a case. At the deadline a worker is aborted, which writes where it stood
    into its log; `grace_s` later its process group is killed.

    Attributes:
        load_s: importing the harness and the kernel files.
        allocate_s: laying out and initialising the tensors, and the oracle where it runs then.
        build_s: compiling and tuning one implementation (torch.compile with autotuning takes minutes).
        verify_s: one implementation against the oracle; Triton's interpreter is slow.
        time_s: all timed calls between two announcements.
        reverify_s: the check after timing.
    """

    load_s: float = 120.0
    allocate_s: float = 60.0
    build_s: float = 600.0
    verify_s: float = 120.0
    time_s: float = 300.0
    reverify_s: float = 120.0
    grace_s: float = GRACE_S

    def of(self, stage: Stage) -> float:
        """The deadline of a stage in seconds."""
        seconds: float = getattr(self, f"{stage}_s")
        return seconds

    def overridden(self, choice: DeadlineChoice) -> Deadlines:
        """These deadlines with what a workload or the command line says of some stages."""
        chosen = {
            f"{stage.name}_s": float(seconds)
            for stage in fields(choice)
            if (seconds := getattr(choice, stage.name)) is not None
        }
        return replace(self, **chosen)
