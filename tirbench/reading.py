"""What the files of a command say: load → expand → select, without what running needs.

`check` is started at every commit and by editors, so this module imports nothing of the stages that
measure, keep or render.
"""

from __future__ import annotations

import gc
import marshal
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench import selection
from tirbench.diagnostics import Diagnostic
from tirbench.errors import InputError, UsageError
from tirbench.expand import expand
from tirbench.load import check_directive, find_root, load_all, warm
from tirbench.selection import Chosen, Selection

if TYPE_CHECKING:
    from tirbench.model import Case, Workload

FILES_A_PROCESS: Final = 8
"""Fewer files are read sooner than a second process has started, a few milliseconds."""
MOST_PROCESSES: Final = 8
_FIELDS: Final = tuple(field.name for field in fields(Diagnostic))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the files say: what was chosen of those that are right, and what is wrong with the others.

    `warnings` are of files that are right.
    """

    chosen: tuple[Chosen, ...]
    problems: tuple[Diagnostic, ...]
    root: Path
    warnings: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How much is right, and what is not; `found` are errors and warnings in the order of the files."""

    found: tuple[Diagnostic, ...]
    workloads: int
    cases: int

    @property
    def right(self) -> bool:
        """Whether no file has an error."""
        return all(one.severity != "error" for one in self.found)


def read(asked: Selection) -> Reading:
    """Load → expand → select: every file is read, also where others are wrong.

    Raises:
        UsageError: a file, glob, list or keyword names nothing, or files of two projects are mixed.
    """
    return _read(asked, *_files(asked))


def check(asked: Selection) -> Checked:
    """Read every file for what is wrong with it; many files in several processes.

    Raises:
        UsageError: as `read`.
    """
    files, root = _files(asked)
    shares = _shares(list(files)) if _by_file(asked, files) else []
    if len(shares) < 2:
        parts = [_checked(_read(asked, files, root), whole=_whole(asked, files))]
    else:
        warm()  # once for all
        gc.freeze()  # or a search for garbage would copy every page that the processes share
        parts = _in_processes(asked, shares, root)
    order = {_name(path, root): index for index, path in enumerate(files)}
    found = [one for part in parts for one in part.found]
    found.sort(key=lambda one: order.get(one.file, -1))
    return Checked(
        found=tuple(found),
        workloads=sum(part.workloads for part in parts),
        cases=sum(part.cases for part in parts),
    )


def _files(asked: Selection) -> tuple[dict[Path, tuple[str, ...]], Path]:
    """The files with the globs of their cases, and the folder of their project."""
    files = {path.absolute(): globs for path, globs in selection.paths(asked).items()}
    roots = {folder: find_root(folder / "x.toml") for folder in {path.parent for path in files}}
    if len(set(roots.values())) != 1:
        raise UsageError("name at least one workload, and workloads of one project only")
    return files, next(iter(roots.values()))


def _read(asked: Selection, files: dict[Path, tuple[str, ...]], root: Path) -> Reading:
    with _without_collection():
        workloads, found = load_all(files, root)
        problems = list(found)
        expanded = [
            (workload, cases, files[root / workload.source.path])
            for workload in workloads
            if (cases := _cases(workload, problems)) is not None
        ]
        chosen = selection.choose(expanded, asked)
        warnings = [one for workload, _, _ in expanded for one in check_directive(workload.source)]
    return Reading(chosen=chosen, problems=tuple(problems), root=root, warnings=tuple(warnings))


def _cases(workload: Workload, problems: list[Diagnostic]) -> tuple[Case, ...] | None:
    """The cases of a workload; `None` where it does not expand, with what is wrong noted."""
    try:
        return expand(workload)
    except InputError as error:
        problems.extend(error.diagnostics)  # type: ignore[arg-type]
        return None


def _checked(reading: Reading, *, whole: bool = True) -> Checked:
    """What was found; `whole` tells whether all cases were asked for, so that none of a pin is missing."""
    from tirbench import stale

    pins = tuple(stale.found(reading.chosen, reading.root)) if whole else ()
    return Checked(
        found=(*reading.problems, *reading.warnings, *pins),
        workloads=len(reading.chosen),
        cases=sum(len(chosen.cases) for chosen in reading.chosen),
    )


def _name(path: Path, root: Path) -> str:
    with suppress(ValueError):
        return path.relative_to(root).as_posix()
    return path.name


# --- Many files -----------------------------------------------------------------------------------


def _by_file(asked: Selection, files: dict[Path, tuple[str, ...]]) -> bool:
    """Whether each file can be judged without the others: nothing asks for cases by name."""
    return _whole(asked, files) and sys.platform == "linux"  # elsewhere a fork is slow or unsafe


def _whole(asked: Selection, files: dict[Path, tuple[str, ...]]) -> bool:
    """Whether all cases of the files are asked for."""
    return asked.keyword is None and asked.select == "all" and not any(files.values())


def _shares(files: list[Path]) -> list[dict[Path, tuple[str, ...]]]:
    """The files dealt out to processes; those of one stem together, since they exclude each other."""
    number = min(len(os.sched_getaffinity(0)), len(files) // FILES_A_PROCESS, MOST_PROCESSES)
    if number < 2:
        return []
    stems: dict[str, list[Path]] = {}
    for path in files:
        stems.setdefault(path.stem, []).append(path)
    sizes = {stem: sum(map(_size, paths)) for stem, paths in stems.items()}
    shares: list[dict[Path, tuple[str, ...]]] = [{} for _ in range(number)]
    dealt = [0] * number
    for stem in sorted(sizes, key=sizes.__getitem__, reverse=True):  # the largest first
        least = dealt.index(min(dealt))
        dealt[least] += sizes[stem]
        shares[least].update(dict.fromkeys(stems[stem], ()))
    return [share for share in shares if share]


def _size(path: Path) -> int:
    """What a file costs, in bytes: its own, and about as many for what it names."""
    with suppress(OSError):
        return os.stat(path).st_size + 3_000  # noqa: PTH116 - a third of the time, a thousand times
    return 0


def _in_processes(
    asked: Selection, shares: Sequence[dict[Path, tuple[str, ...]]], root: Path
) -> list[Checked]:
    """Each share but the first in a process of its own; what fails there is done again here, and fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    started = [_start(asked, share, root) for share in shares[1:]]
    parts: list[Checked | None] = [_checked(_read(asked, shares[0], root))]
    parts += [_result(process, end) for process, end in started]
    return [
        part or _checked(_read(asked, share, root))
        for part, share in zip(parts, shares, strict=True)
    ]


def _start(asked: Selection, share: dict[Path, tuple[str, ...]], root: Path) -> tuple[int, int]:
    """Fork a process that checks a share; the answer is its id and the pipe that it writes to."""
    end, begin = os.pipe()
    process = os.fork()
    if process:
        os.close(begin)
        return process, end
    code = 1
    try:
        os.close(end)
        data = _packed(_checked(_read(asked, share, root)))
        with os.fdopen(begin, "wb") as pipe:
            pipe.write(data)
        code = 0
    finally:
        os._exit(code)  # whatever happened: two processes must not return from here


def _result(process: int, end: int) -> Checked | None:
    """What a process found; `None` where it failed."""
    with os.fdopen(end, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(process, 0)
    return None if status else _unpacked(data)


def _packed(checked: Checked) -> bytes:
    """What was found as bytes, through `marshal`: it is there at once, `pickle` takes 3 ms to import."""
    found = [tuple(getattr(one, name) for name in _FIELDS) for one in checked.found]
    return marshal.dumps((found, checked.workloads, checked.cases))


def _unpacked(data: bytes) -> Checked:
    found, workloads, cases = marshal.loads(data)  # noqa: S302 - written by our own fork
    diagnostics = tuple(Diagnostic(**dict(zip(_FIELDS, one, strict=True))) for one in found)
    return Checked(found=diagnostics, workloads=workloads, cases=cases)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Look for no garbage meanwhile: nearly everything that is made is kept, and a search costs a tenth."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
