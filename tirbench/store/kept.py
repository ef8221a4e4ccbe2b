"""Runs read back: also those that were cut short, whose notes say what is missing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from tirbench import codec
from tirbench.errors import UsageError
from tirbench.model import BuiltAhead, Job, Machine, Outcome, Roofs, Row, Run, Spent
from tirbench.store.lines import RunError, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT: Final = 1
"""Of run.json and the lines beside it; raised when a reader of the old form would misread the new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run read back: what it says, where it lies, and what is missing from it.

    Attributes:
        jobs: the plan of every case that was to be run, with the kept harnesses.
        explicit: the workloads whose cases were named one by one.
        inputs: digest of everything that its rows depend on and a person can edit.
        tirbench: the version that made it.
    """

    run: Run
    folder: Path
    rows: tuple[Row, ...]
    suite: str
    workload_paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    jobs: tuple[Job, ...] = ()
    explicit: frozenset[str] = frozenset()
    inputs: str = ""
    tirbench: str = ""

    @property
    def unanswered(self) -> tuple[Row, ...]:
        """The rows that were asked for and have no outcome."""
        answered = {outcome.row.key for outcome in self.run.outcomes}
        return tuple(row for row in self.rows if row.key not in answered)

    @property
    def harnesses(self) -> tuple[Path, ...]:
        """The generated programs, by name."""
        return tuple(sorted((self.folder / "harness").glob("*.py")))

    def samples(self) -> Iterator[tuple[str, int, int, tuple[float, ...]]]:
        """Row key, placement, round and µs of each call, as they were taken.

        Of times that were taken again (after an interruption, a crash or a disturbance) the last ones.
        """
        last: dict[tuple[str, int, int], tuple[float, ...]] = {}
        for line in read_lines(self.folder / "samples.jsonl")[0]:
            place = (str(line["row"]), int(line["placement"]), int(line["round"]))
            last.pop(place, None)
            last[place] = tuple(cast("list[float]", line["samples_us"]))
        for (row, placement, round_index), times in last.items():
            yield row, placement, round_index, times


def read_run(root: Path, run_id: str = "latest") -> KeptRun:
    """Read a kept run, also one that was cut short: what is missing stands in its notes.

    Args:
        root: the project's folder.
        run_id: an id, the beginning of one, or `latest`.

    Raises:
        RunError: there is no such run, or its files do not have the form that this version writes.
    """
    folder = _find(root / ".tirbench" / "runs", run_id)
    metadata = read_metadata(folder)
    lines, torn = read_lines(folder / "outcomes.jsonl")
    try:
        outcomes = tuple(cast("Outcome", codec.load(Outcome, line)) for line in lines)
        rows = tuple(codec.load(Row, row) for row in metadata["rows"])
        jobs = tuple(codec.load(Job, job) for job in metadata.get("jobs", ()))
        run = Run(
            id=str(metadata["id"]),
            machine=codec.load(Machine, metadata["machine"]),
            commit=metadata["commit"],
            dirty=tuple(metadata["dirty"]),
            outcomes=outcomes,
            roofs=codec.load(Roofs, metadata["roofs"]),
            complete=bool(metadata["complete"]) and not torn and len(outcomes) == len(rows),
            ahead=codec.load(BuiltAhead, built) if (built := metadata.get("ahead")) else None,
            spent=codec.load(Spent, spent) if (spent := metadata.get("spent")) else None,
        )
    except (codec.CodecError, KeyError) as error:
        raise RunError(f"run {folder.name} cannot be read: {error}") from error
    return KeptRun(
        run=run,
        folder=folder,
        rows=rows,
        suite=str(metadata["suite"]),
        workload_paths=tuple(metadata["workload_paths"]),
        notes=_notes(run, rows, torn=torn),
        jobs=tuple(replace(job, harness=str(folder / job.harness)) for job in jobs),
        explicit=frozenset(metadata.get("explicit", ())),
        inputs=str(metadata.get("inputs", "")),
        tirbench=str(metadata["tirbench"]),
    )


def run_ids(root: Path) -> tuple[str, ...]:
    """The ids of all kept runs, oldest first."""
    runs = root / ".tirbench" / "runs"
    return tuple(sorted(path.parent.name for path in runs.glob("*/run.json")))


def _find(runs: Path, run_id: str) -> Path:
    if run_id == "latest":
        pointer = runs / "latest"
        if not pointer.is_file():
            raise RunError("no run is kept here yet; `tirbench exec` makes one")
        run_id = pointer.read_text(encoding="utf-8").strip()
    found = [path for path in sorted(runs.glob("*/")) if path.name.startswith(run_id)]
    exact = [path for path in found if path.name == run_id]
    if len(exact or found) != 1 or not run_id:
        known = ", ".join(path.name for path in (found or sorted(runs.glob("*/")))[-5:]) or "none"
        which = "is ambiguous" if found else "is not kept"
        raise UsageError(f"run {run_id!r} {which} here; the latest are: {known}")
    return (exact or found)[0]


def read_metadata(folder: Path) -> dict[str, Any]:
    """What run.json of a run says.

    Raises:
        RunError: it cannot be read, or is of another format.
    """
    try:
        data = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"run {folder.name} has no readable run.json: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != FORMAT:
        found = data.get("schema") if isinstance(data, dict) else None
        raise RunError(
            f"run {folder.name} is in format {found}, this version reads {FORMAT}; run it again"
        )
    return data


def _notes(run: Run, rows: tuple[Row, ...], *, torn: bool) -> tuple[str, ...]:
    answered = Counter(outcome.row.key for outcome in run.outcomes)
    doubled = sorted(key for key, count in answered.items() if count > 1)
    if doubled:
        raise RunError(f"run {run.id} answers twice for {', '.join(doubled)}")
    notes = []
    if torn:
        notes.append("the last line of outcomes.jsonl is cut off and left out")
    missing = [row.key for row in rows if row.key not in answered]
    if missing:
        shown = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        notes.append(f"incomplete: {len(missing)} of {len(rows)} rows have no outcome ({shown})")
    elif not run.complete and not torn:
        notes.append("incomplete: the run was ended before it was closed")
    return tuple(notes)
