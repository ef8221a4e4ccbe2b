"""Pinned numbers that mean something else by now: what `check` says of baselines.

`gate` fails on such rows and `exec --pin` measures them again; who edits a workload hears of it first.
Digesting takes longer than all else that `check` does, so what was found of a workload is kept below
`.tirbench/stale`, with size and time of every file that it depends on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tirbench.diagnostics import CODES, Diagnostic

if TYPE_CHECKING:
    from tirbench.model import Case
    from tirbench.selection import Chosen

FORMAT: Final = 1

SHOWN: Final = 3
"""Cases and rows that are named."""

State: TypeAlias = "tuple[int, int]"
"""Size and time of change of a file in ns; -1 and 0 of one that is not there."""

OWN: Final = tuple(
    str(Path(__file__).parent / name)
    for name in ("stale.py", "digest/__init__.py", "digest/closure.py", "diff/protocols.py")
)
"""What says how digests are made."""

_PLACE: Final = re.compile(r"^[^:\n]+:(?:(\d+):)? ")


def found(chosen: Iterable[Chosen], root: Path) -> Iterator[Diagnostic]:
    """What is wrong with the baselines of workloads, of each file once; all cases must be chosen."""
    folders: dict[str, tuple[str, ...]] = {}
    for one in chosen:
        folder = one.workload.source.folder
        if folder not in folders:
            folders[folder] = _hardware(root, folder)
        paths = [
            path
            for hardware in folders[folder]
            if (root / (path := f"{hardware}/{one.workload.name}.toml")).is_file()
        ]
        if paths:
            yield from _of_workload(one, root, paths)


def _hardware(root: Path, folder: str) -> tuple[str, ...]:
    """The folders of baselines beside a workload, relative to the project."""
    baselines = "/".join(filter(None, (folder, "baselines")))
    try:
        with os.scandir(root / baselines) as entries:
            return tuple(sorted(f"{baselines}/{entry.name}" for entry in entries if entry.is_dir()))
    except OSError:
        return ()


def _of_workload(chosen: Chosen, root: Path, paths: Sequence[str]) -> tuple[Diagnostic, ...]:
    """What is kept of it, or what is found now."""
    file = root / ".tirbench" / "stale" / f"{chosen.workload.name}.json"
    named = [chosen.workload.source.path, *paths]
    kept = _Kept.read(file)
    if kept is not None and kept.holds(root, named):
        return kept.found
    read = _Noting(root)
    result = tuple(one for path in paths for one in _look(chosen, read, root, path))
    _Kept.of(root, (*named, *read.paths), result).write(root, file)
    return result


# --- Looking ----------------------------------------------------------------------------------------


class _Noting:
    """Reads files of the project and notes which."""

    def __init__(self, root: Path) -> None:
        from tirbench import digest

        self._read = digest.reader(root)
        self.paths: dict[str, None] = {}

    def __call__(self, path: str) -> bytes | None:
        self.paths[path] = None
        return self._read(path)


def _look(chosen: Chosen, read: _Noting, root: Path, path: str) -> Iterator[Diagnostic]:
    """What is wrong with one baseline file."""
    from tirbench import digest
    from tirbench.diff.protocols import placements_of
    from tirbench.store.baseline import BaselineError, parse_baseline

    try:
        text = _text(root, path)
        baseline = parse_baseline(text, path)
    except BaselineError as error:
        yield _unreadable(path, str(error))
        return
    cases = {case.id: case for case in chosen.cases}
    problems: dict[str, str] = {}
    stale, orphans = [], []
    for row in baseline.rows:
        case = cases.get(row.case)
        if case is None or not _has(case, row.implementation):
            orphans.append(f"{row.case}/{row.implementation}")
            continue
        if row.case not in problems:
            problems[row.case] = digest.problem(case, read)
        if row.problem != problems[row.case] or placements_of(case, row.protocol) is None:
            stale.append(f"{row.case}/{row.implementation}")
    if stale:
        names = list(dict.fromkeys(key.partition("/")[0] for key in stale))
        yield _at_row(
            *("TB070", path, text, stale[0]),
            message=f"{_of(stale, baseline.rows)} mean{'s' * (len(stale) == 1)} something else by now: "
            f"{_some(names)}",
            hint=f"on {baseline.hardware}: tirbench exec {chosen.workload.source.path} --pin",
        )
    if orphans:
        yield _at_row(
            *("TB071", path, text, orphans[0]),
            message=f"{_of(orphans, baseline.rows)} {'is' if len(orphans) == 1 else 'are'} of no kernel or "
            f"reference of a case: {_some(orphans)}",
            hint=f"`tirbench pin --prune` drops {'it' if len(orphans) == 1 else 'them'}",
        )


def _text(root: Path, path: str) -> str:
    """The text of a baseline file, which a stranger may have written.

    Raises:
        BaselineError: it is no text of this project that can be read in a moment.
    """
    from tirbench.load.bounds import key_too_deep, read_source
    from tirbench.load.places import leads_outside
    from tirbench.store import BaselineError

    data, why = (b"", "outside of the project")
    if not leads_outside(root / path, root):
        data, why = read_source(root / path)
    if why:
        raise BaselineError(f"{path}: {why}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BaselineError(f"{path}: not UTF-8 text") from error
    if key_too_deep(text) is not None:
        raise BaselineError(f"{path}: a key of too many parts")
    return text


def _has(case: Case, implementation: str) -> bool:
    return any(one.name == implementation for one in case.implementations)


def _of(some: Sequence[str], rows: Sequence[object]) -> str:
    return f"{len(some)} of {len(rows)} row{'s' * (len(rows) > 1)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _at_row(code: str, path: str, text: str, key: str, *, message: str, hint: str) -> Diagnostic:
    """A warning below the header of a row."""
    case, _, implementation = key.rpartition("/")
    lines = text.splitlines()
    header = re.compile(rf'\["?{re.escape(case)}"?\."?{re.escape(implementation)}"?\]')
    number = next((n for n, line in enumerate(lines, 1) if header.match(line)), 1)
    line = lines[number - 1] if lines else ""
    return Diagnostic(
        severity="warning",
        code=code,
        file=path,
        message=message,
        hint=hint,
        line=number,
        length=max(1, len(line)),
        text=line,
    )


def _unreadable(path: str, error: str) -> Diagnostic:
    """An error, with the line that it names, and with what it says to do as the help."""
    place = _PLACE.match(error)
    said = error[place.end() if place else 0 :].replace(f"\n{path}: ", "\n")
    message, _, hint = said.partition("\n")
    return Diagnostic(
        code="TB072",
        file=path,
        message=message,
        hint=hint,
        line=int(place[1]) if place and place[1] else 1,
    )


# --- Keeping ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was found of a workload, and the state of all that it was found by."""

    states: dict[str, State]
    found: tuple[Diagnostic, ...]

    @classmethod
    def of(cls, root: Path, paths: Iterable[str], found: tuple[Diagnostic, ...]) -> _Kept:
        """By these files, relative to the project, and by our own."""
        return cls({path: _state(root, path) for path in (*OWN, *paths)}, found)

    def holds(self, root: Path, named: Iterable[str]) -> bool:
        """Whether it was found by these baselines and nothing has changed since."""
        baselines = {path for path in self.states if "/baselines/" in f"/{path}"}
        if not baselines <= {*named} or not {*named, *OWN} <= self.states.keys():
            return False
        return all(_state(root, path) == state for path, state in self.states.items())

    @classmethod
    def read(cls, file: Path) -> _Kept | None:
        """What a file says; `None` where there is none, or it is damaged or of another version."""
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                return None
            states = {
                str(path): (int(size), int(ns)) for path, (size, ns) in data["states"].items()
            }
            found = tuple(_diagnostic(one) for one in data["found"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return cls(states, found)

    def write(self, root: Path, file: Path) -> None:
        """Keep it, where the project can be written, and never behind a link of a stranger."""
        from tirbench.store import write

        if file.parent.resolve() != root.resolve() / ".tirbench" / "stale":
            return
        data = {
            "format": FORMAT,
            "states": self.states,
            "found": [asdict(one) for one in self.found],
        }
        with suppress(OSError):
            write(file, json.dumps(data, ensure_ascii=False) + "\n")
            ignored = file.parent.parent / ".gitignore"
            if not ignored.exists():  # whoever only checks has nothing to commit by it
                write(ignored, "*\n")


def _diagnostic(data: dict[str, object]) -> Diagnostic:
    """A diagnostic of a file, each of its fields of the type that it has here."""
    kinds = {"path": list, "line": int, "column": int, "length": int}
    for one in fields(Diagnostic):
        if not isinstance(data[one.name], kinds.get(one.name, str)):
            raise TypeError(one.name)
    if data["code"] not in CODES or data["severity"] not in {"error", "warning"}:
        raise ValueError("not one of ours")
    return Diagnostic(**{**data, "path": ()})  # type: ignore[arg-type]  # as was just seen


def _state(root: Path, path: str) -> State:
    try:
        seen = os.stat(root / path)  # noqa: PTH116 - a third of the time of Path.stat
    except OSError:
        return -1, 0
    return seen.st_size, seen.st_mtime_ns
