"""A run as it is kept while it happens: one folder, one line for each finished row.

    .tirbench/runs/latest                            the id of the run started last
    .tirbench/runs/20250131-142503-7f3a1c/
        run.json          what was asked, of which commit, on which machine; written first. Its jobs
                          are the plan of every case, from which a run is continued or a case replayed
        outcomes.jsonl    one outcome a line, on the disk before the next row starts
        samples.jsonl     µs of every call: {"row": …, "placement": 0, "round": 1, "samples_us": […]}
        harness/          the programs that ran
        logs/             what workers printed

A run that is killed leaves what it has finished; whoever reads it is told that it is incomplete, and
`resume_run` goes on in the same folder. One process at a time writes a run (`flock`, which no death
outlives). Nothing in the folder names a host, a user or a path of the machine.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Final

import tirbench
from tirbench import codec
from tirbench.errors import StorageError, UsageError
from tirbench.model import BuiltAhead, Job, Machine, Outcome, Roofs, Row, Spent
from tirbench.store.files import Scrub, scrubber, sync_folder, write
from tirbench.store.kept import FORMAT, KeptRun, read_metadata
from tirbench.store.lines import RunError, read_lines, whole_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tirbench.store.git import Tree

FILES: Final = ("outcomes.jsonl", "samples.jsonl")


@dataclass(slots=True, kw_only=True)
class RunWriter:
    """An open run: takes outcomes as they come; made by `open_run`, which also closes it."""

    id: str
    folder: Path
    rows: tuple[Row, ...]
    _metadata: dict[str, codec.Json]
    _scrub: Scrub
    _outcomes: IO[bytes]
    _samples: IO[bytes]
    _asked: frozenset[Row]
    _answered: set[str] = field(default_factory=set)

    @property
    def log_folder(self) -> Path:
        """Where workers' logs go."""
        return self.folder / "logs"

    @property
    def harness_folder(self) -> Path:
        """Where the generated programs go."""
        return self.folder / "harness"

    def harness(self, name: str, text: str) -> Path:
        """Keep a generated program under its file name; the path is what a worker runs."""
        path = self.harness_folder / name
        write(path, text)
        return path

    def outcome(self, *outcomes: Outcome) -> None:
        """Keep what became of a row, or of several; it is on the disk when this returns.

        Raises:
            ValueError: a row was not asked for, or has an outcome already.
            StorageError: the disk is full.
        """
        for outcome in outcomes:
            self._keep(outcome)
        try:
            for file in (self._samples, self._outcomes):  # never an outcome without its samples
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritten(error) from error

    def _keep(self, outcome: Outcome) -> None:
        key = outcome.row.key
        if outcome.row not in self._asked:
            raise ValueError(f"{key} was not asked of this run")
        if key in self._answered:
            raise ValueError(f"{key} has an outcome already")
        self._append(self._outcomes, codec.dump(outcome))
        self._answered.add(key)

    def jobs(self, jobs: Iterable[Job], explicit: Iterable[str], inputs: str) -> None:
        """Keep the plan, before anything of it is run.

        Args:
            jobs: everything that is to be run; their harnesses are those kept with `harness`.
            explicit: the workloads whose cases were named one by one.
            inputs: digest of everything that the rows depend on and a person can edit.
        """
        self._metadata["jobs"] = [
            codec.dump(replace(job, harness=f"harness/{job.harness.rpartition('/')[2]}"))
            for job in jobs
        ]
        self._metadata["explicit"] = [*sorted(explicit)]
        self._metadata["inputs"] = inputs
        self._write_metadata()

    def samples(
        self, row: Row, placement: int, round_index: int, samples_us: Sequence[float]
    ) -> None:
        """Keep the times of single calls, to a tenth of a nanosecond, in the order they were taken."""
        line: dict[str, codec.Json] = {
            "row": row.key,
            "placement": placement,
            "round": round_index,
            "samples_us": [round(sample, 4) for sample in samples_us],
        }
        self._append(self._samples, line)

    def roofs(self, roofs: Roofs) -> None:
        """Keep the measured ceilings of the device."""
        self._metadata["roofs"] = codec.dump(roofs)
        self._write_metadata()

    def built_ahead(self, built: BuiltAhead) -> None:
        """Keep how much was built ahead; it is on the disk when the run is closed."""
        self._metadata["ahead"] = codec.dump(built)

    def spent(self, spent: Spent) -> None:
        """Keep where its time went, beside what an earlier part took; on the disk when the run is closed."""
        before = self._metadata.get("spent")
        whole = codec.load(Spent, before).plus(spent) if before else spent
        self._metadata["spent"] = codec.dump(whole)

    def machine(self, machine: Machine) -> None:
        """Replace the facts of the machine by those a worker could add to."""
        self._metadata["machine"] = codec.dump(machine)
        self._write_metadata()

    @property
    def unanswered(self) -> tuple[Row, ...]:
        """The rows that were asked for and have no outcome yet."""
        return tuple(row for row in self.rows if row.key not in self._answered)

    def _append(self, file: IO[bytes], data: codec.Json) -> None:
        """Write one line, or nothing of it.

        Raises:
            StorageError: the disk is full.
        """
        text = json.dumps(_scrubbed(data, self._scrub), ensure_ascii=False, allow_nan=False)
        line = memoryview(text.encode("utf-8", errors="backslashreplace") + b"\n")
        end = file.seek(0, os.SEEK_END)
        try:
            while line:  # the file is unbuffered, and a nearly full disk takes a part
                line = line[file.write(line) :]
        except OSError as error:
            file.truncate(end)
            raise _unwritten(error) from error

    def _write_metadata(self) -> None:
        data = _scrubbed(self._metadata, self._scrub)
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, indent=2)
        try:
            write(self.folder / "run.json", text + "\n")
        except OSError as error:
            raise _unwritten(error) from error

    def _close(self, *, finished: bool) -> None:
        try:
            for log in sorted(self.log_folder.rglob("*")):
                if log.is_file():
                    write(log, self._scrub(log.read_text(encoding="utf-8", errors="replace")))
            self._metadata["complete"] = finished and not self.unanswered
            self._write_metadata()
        except (OSError, StorageError):
            if finished:
                raise
            # What ended the run is said instead; without this it reads as one that was cut short.


def _unwritten(error: OSError) -> StorageError:
    return StorageError(
        f"the run cannot be written any more: {error.strerror or error}. What was finished is kept; "
        "`tirbench exec --resume latest` goes on once there is space"
    )


@contextmanager
def open_run(
    root: Path,
    *,
    machine: Machine,
    rows: Iterable[Row],
    tree: Tree,
    suite: str = "",
    workload_paths: Iterable[str] = (),
    now: Callable[[], float] = time.time,
    token: Callable[[], str] = lambda: secrets.token_hex(3),
) -> Iterator[RunWriter]:
    """Start to keep a run; what it has finished stays, whatever ends it.

    Args:
        root: the project's folder; the run goes below its `.tirbench/`.
        machine: the facts of the machine.
        rows: every row that must get an outcome.
        tree: what git said before anything was measured.
        suite: digest of the workload files.
        workload_paths: of the files, relative to `root`, so that `pin` can find them again.
        now: seconds since 1970, for the id.
        token: random text, for the id: two runs that start together have two folders.
    """
    runs = root / ".tirbench" / "runs"
    run_id, folder = _new_folder(runs, now, token)
    for name in ("logs", "harness"):
        (folder / name).mkdir()
    asked = tuple(rows)
    metadata: dict[str, codec.Json] = {
        "schema": FORMAT,
        "tirbench": tirbench.__version__,
        "id": run_id,
        "commit": tree.commit,
        "dirty": list(tree.dirty),
        "suite": suite,
        "workload_paths": list(workload_paths),
        "machine": codec.dump(machine),
        "roofs": codec.dump(Roofs()),
        "rows": [codec.dump(row) for row in asked],
        "complete": False,
    }
    for name in FILES:
        (folder / name).touch(exist_ok=False)
    with _writing(root, folder, asked, metadata) as writer:
        yield writer


@contextmanager
def resume_run(root: Path, kept: KeptRun) -> Iterator[RunWriter]:
    """Go on with a run that was cut short, in its folder; its answered rows stay as they are.

    Args:
        root: the project's folder.
        kept: the run, as it was read.

    Raises:
        UsageError: another process is writing it.
    """
    for name in FILES:
        path = kept.folder / name
        path.touch()
    metadata: dict[str, codec.Json] = read_metadata(kept.folder)
    with _writing(root, kept.folder, kept.rows, metadata) as writer:
        yield writer


@contextmanager
def _writing(
    root: Path, folder: Path, rows: tuple[Row, ...], metadata: dict[str, codec.Json]
) -> Iterator[RunWriter]:
    """The writer of a folder, alone with it."""
    import fcntl  # not on Windows, where workloads can be checked but nothing runs

    with (
        (folder / "outcomes.jsonl").open("r+b", buffering=0) as outcomes,
        (folder / "samples.jsonl").open("r+b", buffering=0) as samples,
    ):
        try:
            fcntl.flock(outcomes, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"run {folder.name} is being written by another tirbench") from error
        for file in (outcomes, samples):
            file.truncate(whole_bytes(file))
        answered = {
            codec.load(Outcome, line).row.key for line in read_lines(folder / "outcomes.jsonl")[0]
        }
        writer = RunWriter(
            id=folder.name,
            folder=folder,
            rows=rows,
            _asked=frozenset(rows),
            _metadata=metadata,
            _scrub=scrubber(root),
            _outcomes=outcomes,
            _samples=samples,
            _answered=answered,
        )
        writer._write_metadata()  # noqa: SLF001 - the writer's other half
        write(folder.parent / "latest", folder.name + "\n")
        for place in (folder, *folder.parents[:3]):  # up to the project's root: each may be new
            sync_folder(place)
        finished = False
        try:
            yield writer
            finished = True
        finally:
            writer._close(finished=finished)  # noqa: SLF001 - the writer's other half


def _new_folder(runs: Path, now: Callable[[], float], token: Callable[[], str]) -> tuple[str, Path]:
    runs.mkdir(parents=True, exist_ok=True)
    for _ in range(100):
        run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now()))}-{token()}"
        try:
            (runs / run_id).mkdir()
        except FileExistsError:
            continue
        return run_id, runs / run_id
    raise RunError(f"no free name for a run in {runs.name}")


@contextmanager
def keeping_latest(root: Path) -> Iterator[None]:
    """The latest run stays what it is, whatever is kept meanwhile: rows of it that are measured again."""
    pointer = root / ".tirbench" / "runs" / "latest"
    before = pointer.read_text(encoding="utf-8") if pointer.is_file() else None
    try:
        yield
    finally:
        if before is not None:
            write(pointer, before)


def _scrubbed(data: codec.Json, scrub: Scrub) -> codec.Json:
    if isinstance(data, str):
        return scrub(data)
    if isinstance(data, list):
        return [_scrubbed(item, scrub) for item in data]
    if isinstance(data, dict):
        return {key: _scrubbed(item, scrub) for key, item in data.items()}
    return data
