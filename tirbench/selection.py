"""FILES, `-k` and `--select` → the workload files and the cases that a command is about."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tirbench.errors import UsageError
from tirbench.model import Case, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the command line names.

    Attributes:
        files: paths, globs, folders, or `file::case-glob`.
        keyword: `-k`: only cases whose key contains it, or matches it as a glob.
        select: `--select`: a list of `[select]`; `None` for `default`.
        beside: lists that join `default`: without a GPU, `smoke` and `cpu` are what can be run.
    """

    files: tuple[str, ...]
    keyword: str | None = None
    select: str | None = None
    beside: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A workload and its selected cases; `explicit` where a case glob of the user named them."""

    workload: Workload
    cases: tuple[Case, ...]
    explicit: bool = False


def paths(selection: Selection) -> dict[Path, tuple[str, ...]]:
    """The workload files, each with the case globs given for it, in the order they were named.

    Raises:
        UsageError: an argument names no file.
    """
    found: dict[Path, tuple[str, ...]] = {}
    for argument in selection.files:
        name, _, glob = argument.partition("::")
        matches = _files(name)
        if not matches:
            raise UsageError(f"{name}: no such workload file, folder or glob")
        for path in matches:
            found[path] = found.get(path, ()) + ((glob,) if glob else ())
    return found


def _files(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        return _workloads(path.glob("*.toml"))
    if path.is_file():
        return [path]
    if not any(sign in name for sign in "*?["):
        return []
    anchor = Path(path.anchor) if path.is_absolute() else Path()
    return _workloads(anchor.glob(str(path.relative_to(path.anchor))))


def _workloads(found: Iterable[Path]) -> list[Path]:
    """Those that can be workloads: a folder of workloads may be a project as well."""
    return sorted(p for p in found if p.suffix == ".toml" and p.name != "pyproject.toml")


def choose(
    expanded: Iterable[tuple[Workload, Sequence[Case], tuple[str, ...]]], selection: Selection
) -> tuple[Chosen, ...]:
    """Select cases of each workload.

    Args:
        expanded: workload, all its cases, and the case globs given for its file.
        selection: what the command line names.

    Raises:
        UsageError: a glob, `-k` or `--select` matches nothing at all.
    """
    chosen, lists, ids = [], {"default", "smoke", "cpu", "all"}, []
    for workload, cases, globs in expanded:
        lists |= {name for name, _ in workload.select}
        ids += [case.key for case in cases]
        picked = [case for case in cases if _picked(case, globs, selection)]
        for glob in globs:
            if not any(fnmatch.fnmatchcase(case.id, glob) for case in cases):
                near = _near(glob, [case.id for case in cases])
                raise UsageError(f"{workload.source.path}::{glob} matches no case{near}")
        kept = tuple(case for case in picked if _keyword(case, selection.keyword))
        if kept:
            chosen.append(Chosen(workload=workload, cases=kept, explicit=bool(globs)))
    if selection.select is not None and selection.select not in lists:
        near = _near(selection.select, sorted(lists))
        raise UsageError(f"--select {selection.select}: no workload has such a list{near}")
    if not chosen and selection.keyword is not None:
        raise UsageError(
            f"-k {selection.keyword}: no selected case matches{_near(selection.keyword, ids)}"
        )
    return tuple(chosen)


def _picked(case: Case, globs: tuple[str, ...], selection: Selection) -> bool:
    if globs:
        return any(fnmatch.fnmatchcase(case.id, glob) for glob in globs)
    if selection.select is not None:
        return selection.select == "all" or selection.select in case.selected_by
    return bool(case.selected_by & (selection.beside | {"default"}))


def _keyword(case: Case, keyword: str | None) -> bool:
    return keyword is None or keyword in case.key or fnmatch.fnmatchcase(case.key, keyword)


def _near(text: str, among: Sequence[str]) -> str:
    from difflib import get_close_matches  # only where something was not found

    close = get_close_matches(text, among, n=1)
    return f"; did you mean {close[0]}?" if close else ""
