"""How far a time may lie from a pinned one and still be the same, and what sessions teach of that.

A *session* is what happened on one unit on one day: several runs of a day are not taken for independent.
Two sessions of one unit are held against each other row by row. What all rows have in common is the
session's; what a row has beside it is one draw of that row's own shift. Sessions of two units are never
compared: what a unit adds is `OTHER_UNIT`, which is added where it applies.

Source: MEASURING, section 4; `OTHER_UNIT` is larger than written there.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

SESSION_SD: Final = 0.003
"""s_session: relative standard deviation between sessions, until history teaches it."""

LIMITS: Final = (0.005, 0.05)

OTHER_UNIT: Final = 0.015
"""What another unit of the same product adds to a band, relative.

The suite on another H200 than it was pinned on, twice: 0.65 % slower in the median of 208 rows, one row of
twenty slower by 1.9 % and more. With 1 %, six rows of unchanged code left their band; with this, two.
"""

PRIOR_DRAWS: Final = 10
"""How many draws `SESSION_SD` counts for: after as many of history's, either says half."""

MOST: Final = 3
"""In standard deviations, the most that a draw says: one beyond is of a disturbed session as likely as of a
noisy row. Also, in `SESSION_SD`, the most that can be learnt."""

SCALE_PAIRS: Final = 45
"""Pairs of sessions, those of ten, whose median says by itself how far a row moves: one disturbed session is
in a fifth of them."""

QUARTILE: Final = 0.6745
"""Of the standard normal distribution: half of all draws lie within as many standard deviations."""

COMMON_ROWS: Final = 5
"""Fewer rows that two sessions share do not tell the session's shift from a row's own."""


def band(within_sds: Collection[float], placements: int, session_sd: float = SESSION_SD) -> float:
    """Relative half width within which a time, or a ratio of several, counts as the same.

    Args:
        within_sds: s_w of each time: relative standard deviation of one placement measured again.
        placements: K, the number of placement seeds.
        session_sd: s_session.

    Returns:
        clip(3·√(2·Σs_w²/K + s_session²), 0.5 %, 5 %).
    """
    return _clipped(2 * sum(sd * sd for sd in within_sds) / placements, session_sd)


def with_session(band_: float, old_sd: float, new_sd: float) -> float:
    """A band as it is with another s_session."""
    return _clipped(repeat_variance(band_, old_sd), new_sd)


def repeat_variance(band_: float, session_sd: float) -> float:
    """What a band says of repetition: 2·Σs_w²/K; no less than 0, as a clipped one says less."""
    return max(0.0, (band_ / 3) ** 2 - session_sd * session_sd)


def session_sd_in(row_sd: float | None) -> float:
    """s_session as it is in the band of a pinned row, which says it where history taught it."""
    return SESSION_SD if row_sd is None else row_sd


def _clipped(repeat: float, session_sd: float) -> float:
    return min(max(3 * math.sqrt(repeat + session_sd**2), LIMITS[0]), LIMITS[1])


# --- What sessions teach --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionTime:
    """The time of a row in a session, and its relative standard deviation when taken again there."""

    midmean_us: float
    repeat_sd: float


@dataclass(frozen=True, slots=True)
class Session:
    """One session: its machine, by unit and versions, and times by row.

    A name stands for a row and its code: times of one name are of the same.
    """

    machine: str
    times: Mapping[str, SessionTime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What sessions show of one row beside what they show of all.

    Attributes:
        sessions: how many it was compared in.
        draws: how many draws of the session's shift alone these are worth: one less a machine, and less
            where the row does not repeat.
        variance: mean over draws; repetition is taken off, so that it may be negative.
    """

    sessions: int
    draws: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """s_session of a class of hardware and of its rows.

    Attributes:
        session_sd: of the class, and so of each row at least: `SESSION_SD` where nothing was shown.
        sessions: how many were compared.
        draws: independent ones, one less a machine.
        beside: variance of a row beside what all rows of a session share, pooled over rows.
        own: by row.
    """

    session_sd: float = SESSION_SD
    sessions: int = 0
    draws: int = 0
    beside: float = 0.0
    own: Mapping[str, Own] = field(default_factory=dict)

    def of(self, row: str) -> float:
        """s_session of a row: that of the class, or more where its own draws say so.

        Of what its variance is beyond that of other rows, the share that its draws have beside `PRIOR_DRAWS`.
        """
        own = self.own.get(row)
        beyond = own.variance - self.beside if own is not None else 0.0
        if own is None or beyond <= 0:
            return self.session_sd
        share = own.draws / (PRIOR_DRAWS + own.draws)
        return _limited(self.session_sd**2 + share * beyond)


def learn(sessions: Iterable[Session]) -> Taught:
    """What sessions show, shrunk towards `SESSION_SD`; neither their order nor their names matter.

    Args:
        sessions: of one class of hardware.
    """
    machines: dict[str, list[Session]] = {}
    for session in sessions:
        machines.setdefault(session.machine, []).append(session)
    seen = [one for _, group in sorted(machines.items()) if (one := _compared(group)) is not None]
    draws = sum(one.sessions - 1 for one in seen)
    own = {
        row: _together([one.own[row] for one in seen if row in one.own])
        for row in sorted({row for one in seen for row in one.own})
    }
    worth = math.fsum(one.draws for one in own.values())
    if draws == 0 or worth == 0:
        return Taught()
    common = math.fsum((one.sessions - 1) * one.common for one in seen) / draws
    beside = math.fsum(one.draws * one.variance for one in own.values()) / worth
    # Times are judged as they are: what all rows share is a part of how far one may lie.
    pooled = PRIOR_DRAWS * SESSION_SD**2 + draws * (common + beside)
    return Taught(
        session_sd=_limited(pooled / (PRIOR_DRAWS + draws)),
        sessions=sum(one.sessions for one in seen),
        draws=draws,
        beside=beside,
        own=own,
    )


def _limited(variance: float) -> float:
    """The standard deviation, no more than can be learnt."""
    return min(math.sqrt(max(variance, 0.0)), MOST * SESSION_SD)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """The sessions of one machine, held against each other."""

    sessions: int
    common: float
    own: Mapping[str, Own]


def _compared(sessions: list[Session]) -> _Compared | None:
    """Every two sessions of a machine; `None` where no two share enough rows.

    The mean square over all pairs is twice the variance within, whatever the mean: what a difference has.
    """
    partners: dict[str, set[int]] = {}
    found: dict[str, list[_Pair]] = {}
    compared: set[int] = set()
    commons: list[_Pair] = []
    for (i, one), (j, other) in combinations(enumerate(sessions), 2):
        shared = sorted(one.times.keys() & other.times.keys())
        if len(shared) < COMMON_ROWS:
            continue
        moves = {
            row: math.log(other.times[row].midmean_us) - math.log(one.times[row].midmean_us)
            for row in shared
        }
        common = statistics.median(moves.values())
        commons.append(_Pair(common, 0.0))
        compared |= {i, j}
        for row, move in moves.items():
            noise = one.times[row].repeat_sd ** 2 + other.times[row].repeat_sd ** 2
            found.setdefault(row, []).append(_Pair(move - common, noise))
            partners.setdefault(row, set()).update((i, j))
    if not compared:
        return None
    return _Compared(
        sessions=len(compared),
        common=_shown(len(compared), commons).variance,
        own={row: _shown(len(partners[row]), pairs) for row, pairs in found.items()},
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """A shift between two sessions, and the variance that repetition gives it."""

    move: float
    noise: float

    @property
    def worth(self) -> float:
        """Its square has the variance 2·(s² + noise)²: the larger its noise, the less it says of s."""
        return (SESSION_SD**2 / (SESSION_SD**2 + self.noise)) ** 2

    def variance(self, scale: float) -> float:
        """What it shows of s², where shifts of more than `MOST` scales say no more than that."""
        limit = MOST**2 * max(SESSION_SD**2 + self.noise, scale**2)
        return min(self.move**2, limit) - self.noise


def _shown(sessions: int, pairs: list[_Pair]) -> Own:
    """What all pairs of some sessions show; a row that does move far sets the scale of its shifts itself."""
    scale = 0.0
    if len(pairs) >= SCALE_PAIRS:
        scale = statistics.median(abs(pair.move) for pair in pairs) / QUARTILE
    worth = math.fsum(pair.worth for pair in pairs)
    shown = math.fsum(pair.worth * pair.variance(scale) for pair in pairs)
    return Own(sessions=sessions, draws=(sessions - 1) * worth / len(pairs), variance=shown / worth)


def _together(parts: list[Own]) -> Own:
    """One row on several machines."""
    draws = math.fsum(part.draws for part in parts)
    return Own(
        sessions=sum(part.sessions for part in parts),
        draws=draws,
        variance=math.fsum(part.draws * part.variance for part in parts) / draws,
    )
