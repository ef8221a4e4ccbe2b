"""What the files of a command say: load → expand → select, without what running needs.

`check` is started at every keystroke and every commit, so this module imports nothing of the stages that
measure, keep or render.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tirbench import selection
from tirbench.errors import InputError, UsageError
from tirbench.expand import expand
from tirbench.load import find_root, load_all
from tirbench.selection import Chosen, Selection

if TYPE_CHECKING:
    from tirbench.diagnostics import Diagnostic
    from tirbench.model import Case, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the files say: what was chosen of those that are right, and what is wrong with the others."""

    chosen: tuple[Chosen, ...]
    problems: tuple[Diagnostic, ...]
    root: Path


def read(asked: Selection) -> Reading:
    """Load → expand → select: every file is read, also where others are wrong.

    Raises:
        UsageError: a file, glob, list or keyword names nothing, or files of two projects are mixed.
    """
    files = {path.absolute(): globs for path, globs in selection.paths(asked).items()}
    roots = {find_root(path) for path in files}
    if len(roots) != 1:
        raise UsageError("name at least one workload, and workloads of one project only")
    root = roots.pop()
    with _without_collection():
        workloads, found = load_all(files, root)
        problems = list(found)
        expanded = [
            (workload, cases, files[root / workload.source.path])
            for workload in workloads
            if (cases := _cases(workload, problems)) is not None
        ]
        chosen = selection.choose(expanded, asked)
    return Reading(chosen=chosen, problems=tuple(problems), root=root)


def _cases(workload: Workload, problems: list[Diagnostic]) -> tuple[Case, ...] | None:
    """The cases of a workload; `None` where it does not expand, with what is wrong noted."""
    try:
        return expand(workload)
    except InputError as error:
        problems.extend(error.diagnostics)  # type: ignore[arg-type]
        return None


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
