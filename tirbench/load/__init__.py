"""Workload files: read, held against the schema, checked for meaning, and turned into `Workload`s.

Everything wrong with a file is found in one go. Nothing that a file names is imported or run: the
signatures of kernels are read from the syntax trees of their files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tirbench.diagnostics import Diagnostic, Problems
from tirbench.errors import InputError
from tirbench.load.bounds import within_bounds
from tirbench.load.build import build
from tirbench.load.directive import check_directive, schema_path
from tirbench.load.kinds import register_installed
from tirbench.load.meaning import check_meaning
from tirbench.load.places import leads_outside
from tirbench.load.read import VERSION, find_root, parse, read_text, version_is_read
from tirbench.load.schema import SCHEMA_FILE, validate, warm, workload_schema
from tirbench.model import Source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tirbench.model import Workload

__all__ = [
    "SCHEMA_FILE",
    "VERSION",
    "check_directive",
    "find_root",
    "load",
    "load_all",
    "schema_path",
    "warm",
    "workload_schema",
]


def load(path: str | Path, root: str | Path | None = None) -> Workload:
    """The workload of one file.

    Args:
        path: the TOML file.
        root: the project's folder, which no target may leave; found from `path` if absent.

    Raises:
        InputError: with everything that is wrong with the file.
    """
    workloads, diagnostics = load_all([path], root)
    if diagnostics:
        raise InputError(diagnostics)
    return workloads[0]


def load_all(
    paths: Iterable[str | Path], root: str | Path | None = None
) -> tuple[tuple[Workload, ...], tuple[Diagnostic, ...]]:
    """The workloads of all files that are right, and everything wrong with the others.

    Two files of one stem would name their results alike, so the second is refused.
    """
    workloads: dict[str, Workload] = {}
    diagnostics: list[Diagnostic] = []
    for path in paths:
        workload, problems = _load(Path(path), Path(root) if root else find_root(path))
        if workload is not None and workload.name in workloads:
            other = workloads[workload.name].source.path
            message = f"a workload named '{workload.name}' exists already: {other}"
            problems.add("TB006", (), message, hint="rename one of the files")
        if workload is not None and not problems:
            workloads[workload.name] = workload
        diagnostics.extend(problems.diagnostics())
    return tuple(workloads.values()), tuple(diagnostics)


def _load(path: Path, root: Path) -> tuple[Workload | None, Problems]:
    """One file as far as it goes, with its problems."""
    absolute = path.absolute()
    try:
        name = absolute.relative_to(root.absolute()).as_posix()
    except ValueError:
        name = absolute.name
    problems = Problems(name)
    if leads_outside(path, root):  # its lines would be shown beside their faults
        problems.add("TB001", (), "cannot be read: a link that leads out of the project")
        return None, problems
    text = read_text(path, problems)
    document = None if text is None else parse(text, problems)
    if text is None or document is None or not version_is_read(document, problems):
        return None, problems
    if not within_bounds(document, problems):
        return None, problems
    register_installed(document)
    valid = validate(document, problems)
    if valid is None:
        return None, problems
    source = Source(root=str(root.absolute()), path=name, text=text)
    try:
        workload = build(valid, source, problems)
        check_meaning(workload, valid, problems)
    except RecursionError:
        problems.add("TB025", (), "names are defined through one another too deeply")
        return None, problems
    return workload, problems
