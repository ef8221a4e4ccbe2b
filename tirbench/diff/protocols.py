"""Which protocol a digest is of: how a row was measured, among all ways that the command line offers."""

from __future__ import annotations

from typing import Final

from tirbench import digest
from tirbench.model import TIMERS, Case, TimerChoice

MOST_PLACEMENTS: Final = 16
MOST_ROUNDS: Final = 8


def placements_of(case: Case, protocol: str) -> int | None:
    """K of a protocol digest; `None` where the case as it is now is not measured in that way at all."""
    return _of_timer(case).get(protocol)


def _of_timer(case: Case) -> dict[str, int]:
    """K by the digest of every protocol that the command line can ask for.

    `[timer]` is all of a case that its protocol depends on, so cases with one such table share the answer.
    """
    choice = case.workload.timer
    if choice not in _BY_TIMER:
        _BY_TIMER[choice] = {
            digest.protocol(case, timer, placements, rounds): placements
            for timer in TIMERS
            for placements in range(1, MOST_PLACEMENTS + 1)
            for rounds in range(1, MOST_ROUNDS + 1)
        }
    return _BY_TIMER[choice]


_BY_TIMER: Final[dict[TimerChoice, dict[str, int]]] = {}
