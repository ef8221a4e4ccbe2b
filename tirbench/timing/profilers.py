"""One profiler family per process: who has subscribed to CUPTI, and what its refusal means."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from tirbench.errors import TimerUnavailable

Family: TypeAlias = Literal["proton", "kineto"]

# Filled by the sessions of this process, in order of first use.
USED: Final[list[Family]] = []

ANOTHER_PROCESS: Final = (
    "CUPTI has one subscriber per process: measure in another process, without a second profiler "
    "(Nsight, torch.profiler, Proton) around it"
)


def note(family: Family) -> None:
    """Remember that this process has opened a session of the family."""
    if family not in USED:
        USED.append(family)


def other_family(family: Family) -> str:
    """A clause that blames the other family if this process has used it, else the empty text.

    On an H200 with torch 2.11 and Triton 3.6, Proton after Kineto fails with `cuptiSubscribe … error 39`.
    """
    others = [other for other in USED if other != family]
    return f" {others[0].capitalize()} has been used in this process." if others else ""


def refused(family: Family, error: BaseException) -> TimerUnavailable:
    """The error to raise when a session of the family could not be opened."""
    text = str(error)
    if "cupti" in text.lower() or "subscrib" in text.lower():
        return TimerUnavailable(
            f"{family} could not subscribe to CUPTI ({text.strip()})."
            f"{other_family(family)} {ANOTHER_PROCESS}"
        )
    return TimerUnavailable(f"{family} could not start ({type(error).__name__}: {text.strip()})")
