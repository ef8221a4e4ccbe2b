"""What sessions show of the rows that are pinned: kept beside the baselines when asked to, read ever after.

Kept runs lie in one person's `.tirbench/`, and no baseline may depend on that. So `pin --learn` copies out of
them what says something of sessions, as files to be committed and reviewed (`store.sessions`); bands are
learnt from these alone. Then it widens the bands that are narrower than what was shown. Nothing else writes
a committed file for the sake of learning: a row whose number stays keeps its band, and gets the learnt one
when it is written anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tirbench import digest, store
from tirbench.bands import Taught, session_sd_in, with_session
from tirbench.diff.pins import BAND_SLACK
from tirbench.model import Baseline, Lesson, PinnedRow, SessionReport, SessionRow, Timed, Widened
from tirbench.store.baseline import is_sealed, sealed
from tirbench.store.sessions import (
    Entry,
    KeptSession,
    digest_of_pinned,
    read_sessions,
    row_name,
    sessions_path,
    taught_by,
    write_session,
)

PATTERNS: Final = ("baselines/*", "*/baselines/*")
"""Where baselines lie in a project; those of kept runs may lie deeper."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The baselines of one class of hardware beside the workloads of one folder."""

    folder: str
    hardware: str

    @property
    def path(self) -> str:
        """Relative to the project's root."""
        return f"{self.folder}/baselines/{self.hardware}".lstrip("/")


@dataclass(slots=True)
class _Kept:
    """The pinned rows and sessions of a place, and what is new in it.

    Attributes:
        baselines: by path.
        digests: of the rows that are sealed, by key.
        sessions: by name.
        before: the names of those that were there.
        changed: of those that have got a time.
        new_times: how many.
    """

    baselines: dict[str, Baseline]
    digests: dict[str, str]
    sessions: dict[str, KeptSession]
    before: frozenset[str]
    changed: set[str] = field(default_factory=set)
    new_times: int = 0


# --- Reading --------------------------------------------------------------------------------------


def reports(root: Path) -> tuple[SessionReport, ...]:
    """What the kept sessions show, by class of hardware; classes without a pin are left out.

    Raises:
        BaselineError: a baseline or a session cannot be read.
    """
    found = ((place, _read(root, place)) for place in _places(root))
    return tuple(_report(place, kept) for place, kept in found if kept.baselines)


def _places(root: Path) -> tuple[Place, ...]:
    folders = sorted(path for pattern in PATTERNS for path in root.glob(pattern) if path.is_dir())
    return tuple(_place(folder.relative_to(root).as_posix()) for folder in folders)


def _place(path: str) -> Place:
    *folder, _, hardware = path.split("/")
    return Place(folder="/".join(folder), hardware=hardware)


def _read(root: Path, place: Place) -> _Kept:
    baselines: dict[str, Baseline] = {}
    for file in sorted((root / place.path).glob("*.toml")):
        if file.name != "device.toml":
            path = f"{place.path}/{file.name}"
            found = store.read_baseline(root, path)
            if found is not None:
                baselines[path] = found
    digests = {
        _key(baseline, row): digest_of_pinned(row)
        for baseline in baselines.values()
        for row in baseline.rows
        if is_sealed(row)
    }
    sessions = read_sessions(root, sessions_path(place.folder, place.hardware))
    return _Kept(baselines, digests, sessions, before=frozenset(sessions))


def _report(place: Place, kept: _Kept) -> SessionReport:
    taught = taught_by(kept.sessions.values())
    return SessionReport(
        hardware=place.hardware,
        folder=place.path,
        session_sd=taught.session_sd,
        sessions=taught.sessions,
        draws=taught.draws,
        rows=tuple(
            _row(baseline, row, taught)
            for _, baseline in sorted(kept.baselines.items())
            for row in baseline.rows
        ),
    )


def _row(baseline: Baseline, row: PinnedRow, taught: Taught) -> SessionRow:
    name = _name(baseline, row)
    own = taught.own.get(name)
    return SessionRow(
        key=_key(baseline, row),
        session_sd=taught.of(name),
        sessions=own.sessions if own else 0,
        draws=own.draws if own else 0.0,
        band=row.band,
        in_band=session_sd_in(row.session_sd),
    )


def _key(baseline: Baseline, row: PinnedRow) -> str:
    return f"{baseline.workload}/{row.case}/{row.implementation}"


def _name(baseline: Baseline, row: PinnedRow) -> str:
    return row_name(_key(baseline, row), digest_of_pinned(row))


# --- Learning -------------------------------------------------------------------------------------


def learn(root: Path, reason: str = "") -> tuple[tuple[Lesson, ...], tuple[str, ...]]:
    """Keep what all kept runs show of sessions, then widen the bands that are narrower than that.

    Running it again changes nothing, and no number is ever touched.

    Args:
        root: the project's folder.
        reason: goes into the rows whose bands become wider.

    Returns:
        What was learnt by class of hardware, and which runs could not be read.

    Raises:
        BaselineError: a baseline or a session cannot be read; nothing is written.
    """
    places = {place: _read(root, place) for place in _places(root)}
    notes = tuple(_gather(root, places))
    lessons = []
    for place, kept in sorted(places.items()):
        if not kept.baselines:
            continue
        path = sessions_path(place.folder, place.hardware)
        for name in sorted(kept.changed):
            write_session(root, path, name, kept.sessions[name])
        widened = tuple(_widen(root, kept, reason))
        lessons.append(
            Lesson(
                known=_report(place, kept),
                new_sessions=len(kept.changed - kept.before),
                new_times=kept.new_times,
                widened=widened,
            )
        )
    return tuple(lessons), notes


def _gather(root: Path, places: dict[Place, _Kept]) -> Iterator[str]:
    """Take the times of pinned code out of the kept runs, oldest first; say which cannot be read."""
    for run_id in store.run_ids(root):
        try:
            kept = store.read_run(root, run_id)
        except store.RunError as error:
            yield str(error)
            continue
        folders = {Path(path).stem: _folder_of(path) for path in kept.workload_paths}
        for outcome in kept.run.outcomes:
            folder = folders.get(outcome.row.workload)
            if not isinstance(outcome, Timed) or folder is None:
                continue
            place = Place(folder=folder, hardware=kept.run.machine.hardware)
            if place not in places:
                places[place] = _read(root, place)
            _take(places[place], outcome, kept)


def _folder_of(path: str) -> str:
    folder = Path(path).parent.as_posix()
    return "" if folder == "." else folder


def _take(place: _Kept, timed: Timed, run: store.KeptRun) -> None:
    """Keep a time where its row is pinned with this very code and has none in this session yet.

    The first of a day counts: what is measured again is measured because of what the first said.
    """
    entry = Entry.of(timed)
    if entry.row != place.digests.get(timed.row.key):
        return
    machine = run.run.machine
    session = KeptSession(
        unit=timed.unit or machine.unit or "none", env=digest.environment(machine), rows={}
    )
    name = session.id(run.run.id.partition("-")[0])
    session = place.sessions.get(name, session)
    if timed.row.key in session.rows and session.rows[timed.row.key].row == entry.row:
        return
    place.sessions[name] = replace(session, rows={**session.rows, timed.row.key: entry})
    place.changed.add(name)
    place.new_times += 1


def _widen(root: Path, kept: _Kept, reason: str) -> Iterator[Widened]:
    """Rewrite the bands that what was shown makes wider by as much as `diff` would say."""
    taught = taught_by(kept.sessions.values())
    if not taught.draws:
        return
    for path, baseline in sorted(kept.baselines.items()):
        rows: list[PinnedRow] = []
        for row in baseline.rows:
            sd = taught.of(_name(baseline, row))
            band = with_session(row.band, session_sd_in(row.session_sd), sd)
            if not is_sealed(row) or band <= BAND_SLACK * row.band:
                rows.append(row)
                continue
            told = _with(row.reason, reason)
            rows.append(sealed(replace(row, band=band, session_sd=sd, reason=told)))
            yield Widened(
                key=_key(baseline, row), old_band=row.band, band=rows[-1].band, session_sd=sd
            )
        if tuple(rows) != baseline.rows:
            kept.baselines[path] = replace(baseline, rows=tuple(rows))
            store.write_baseline(root, path, kept.baselines[path])


def _with(old: str | None, new: str) -> str | None:
    parts = [part for part in (old, new.strip()) if part]
    return "; ".join(parts) or None
