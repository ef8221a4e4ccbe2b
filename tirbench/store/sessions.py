"""What kept runs showed of sessions, committed beside the baselines: the history that bands are learnt from.

    workloads/baselines/nvidia-h200/sessions/4f0c19a2b7d3.json

holds one session, a line a row: the first time that a row got on one unit on one day, with the code that
is pinned. A file for each session, so that two branches that bring sessions never meet in one, and any can
be reviewed, or deleted, on its own. Its name is a digest of unit, versions and day, so that runs of one
session find the same file wherever they are read; no day stands in it.

Pins are no sessions. A pin moves only when it left its band twice: what git has of earlier ones are the
extremes of many sessions, and says nothing of those in between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tirbench.bands import Session, SessionTime, Taught, learn
from tirbench.model import PinnedRow, Timed
from tirbench.store.baseline import BaselineError, rounded
from tirbench.store.files import write

FOLDER: Final = "sessions"
FORMAT: Final = 1
DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row in a session: its time, how far that repeats (relative), and the digest of what was measured."""

    us: float
    repeat: float
    row: str

    @classmethod
    def of(cls, timed: Timed) -> Entry:
        """What a session keeps of a time."""
        estimate = timed.estimate
        repeat = estimate.within_sd / len(estimate.placements_us) ** 0.5
        return cls(
            us=rounded(estimate.midmean_us), repeat=rounded(repeat), row=digest_of_timed(timed)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    """One file: the unit and versions of a session, and its rows by `workload/case/implementation`."""

    unit: str
    env: str
    rows: Mapping[str, Entry]

    def id(self, day: str) -> str:
        """The name of the file: equal for all runs of a unit on a day, under the same versions."""
        return _digest(self.unit, self.env, day)


def digest_of_pinned(row: PinnedRow) -> str:
    """What a row measures and with which code: times of equal ones differ by session alone."""
    return _digest(row.problem, row.protocol, row.code, row.source, row.configuration)


def digest_of_timed(timed: Timed) -> str:
    """The digest that a row has as soon as this is pinned."""
    code = timed.ran
    return _digest(timed.problem, timed.protocol, code.digest, timed.source, code.configuration)


def _digest(*parts: str | None) -> str:
    text = "\0".join(part or "" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def row_name(key: str, digest: str) -> str:
    """A row as `bands.learn` tells them apart: its key and what it measures."""
    return f"{key} {digest}"


def sessions_path(folder: str, hardware: str) -> str:
    """Where the sessions of a class of hardware lie, relative to the project's root.

    Args:
        folder: of the workloads.
        hardware: folder name of baselines.
    """
    return f"{folder}/baselines/{hardware}/{FOLDER}".lstrip("/")


def read_sessions(root: Path, path: str) -> dict[str, KeptSession]:
    """All sessions of a folder by their names; empty where there is none.

    Raises:
        BaselineError: a file is none that was written here.
    """
    return {
        file.stem: parse_session(file.read_text(encoding="utf-8"), f"{path}/{file.name}")
        for file in sorted((root / path).glob("*.json"))
    }


def taught(root: Path, path: str) -> Taught:
    """What the sessions of a folder teach.

    Raises:
        BaselineError: as `read_sessions`.
    """
    return taught_by(read_sessions(root, path).values())


def taught_by(sessions: Iterable[KeptSession]) -> Taught:
    """What sessions teach; those of one unit are compared as long as its versions stayed."""
    return learn(
        Session(
            machine=f"{one.unit} {one.env}",
            times={
                row_name(key, entry.row): SessionTime(entry.us, entry.repeat)
                for key, entry in one.rows.items()
            },
        )
        for one in sessions
    )


def parse_session(text: str, path: str) -> KeptSession:
    """The session that a text says.

    Raises:
        BaselineError: conflict markers, no JSON, or not of the form that is written here.
    """
    try:
        data = json.loads(text)
        if data["schema"] != FORMAT:
            raise ValueError(f"format {data['schema']}, and this version reads {FORMAT}")
        rows = {
            str(key): Entry(us=float(one["us"]), repeat=float(one["repeat"]), row=str(one["row"]))
            for key, one in data["rows"].items()
        }
        for key, one in rows.items():
            if not (0 < one.us < float("inf") and 0 <= one.repeat < float("inf")):
                raise ValueError(f"{key}: {one.us:g} µs ± {one.repeat:g}")
        return KeptSession(unit=str(data["unit"]), env=str(data["env"]), rows=rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BaselineError(
            f"{path} is no session that was kept here ({type(error).__name__}: {error}). Take one side of "
            "a merge, or delete it: bands are then learnt from the others"
        ) from error


def render_session(session: KeptSession) -> str:
    """The text of a file: a line a row, sorted."""
    lines = [
        f'  {_text(key)}: {{"us": {one.us!r}, "repeat": {one.repeat!r}, "row": {_text(one.row)}}}'
        for key, one in sorted(session.rows.items())
    ]
    head = f'{{"schema": {FORMAT}, "unit": {_text(session.unit)}, "env": {_text(session.env)},'
    return head + '\n "rows": {\n' + ",\n".join(lines) + "\n }}\n"


def write_session(root: Path, path: str, name: str, session: KeptSession) -> bool:
    """Write a session's file; returns whether it has changed."""
    return write(root / path / f"{name}.json", render_session(session))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
