"""`report` and `summary`: store → report, everything that is shown of a kept run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tirbench import sides, store
from tirbench.load import load_all
from tirbench.report.page import Page, Pinned, Spread, spread
from tirbench.store import BaselineError, revisions

if TYPE_CHECKING:
    from tirbench.model import Workload


def page_of(root: Path, kept: store.KeptRun) -> Page:
    """Store → report: everything that the page of a kept run shows.

    Args:
        root: the project's folder; baselines and their history are looked for there.
        kept: the run.
    """
    pins, places, references = {}, {}, {}
    for workload in _workloads_of(root, kept):
        path = store.baseline_path(workload, kept.run.machine.hardware)
        pins.update(_pinned_rows(root, path, workload.name))
        if workload.gate.reference:
            references[workload.name] = workload.gate.reference
        named = {one.name: one for one in (*workload.kernels, *workload.references)}
        for outcome in kept.run.outcomes:
            one = named.get(outcome.row.implementation)
            if outcome.row.workload == workload.name and one is not None:
                places[outcome.row.key] = sides.place(workload, one.path)
    return Page(
        run=kept.run,
        notes=kept.notes,
        spreads=_spreads(kept),
        pins=pins,
        places=places,
        harnesses=tuple((path.name, path.read_text(encoding="utf-8")) for path in kept.harnesses),
        references=references,
    )


def _workloads_of(root: Path, kept: store.KeptRun) -> tuple[Workload, ...]:
    """The workloads of a run as they are now; one that is gone or broken has no pins to show."""
    paths = [root / path for path in kept.workload_paths if (root / path).is_file()]
    return load_all(paths, root)[0]


def _pinned_rows(root: Path, path: str, workload: str) -> dict[str, Pinned]:
    """The pins of a workload by row, each with what git says of the numbers before it."""
    try:
        baseline = store.read_baseline(root, path)
    except BaselineError:
        return {}
    history: dict[str, list[tuple[str, str, float]]] = {}
    for commit in reversed(revisions.log(root, path)):
        for key, time in _times_at(root, commit.id, path):
            points = history.setdefault(f"{workload}/{key}", [])
            if not points or points[-1][2] != time:
                points.append((commit.date, revisions.short(commit.id), time))
    return {
        (key := f"{workload}/{row.case}/{row.implementation}"): Pinned(
            row=row, history=tuple(history.get(key, ()))
        )
        for row in (baseline.rows if baseline else ())
    }


def _times_at(root: Path, commit: str, path: str) -> Iterator[tuple[str, float]]:
    """The accepted times of a baseline file at a commit, also of one that later versions refuse."""
    text = revisions.show(root, commit, path)
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    with suppress(ValueError):
        for case, rows in toml.loads(text or "").items():
            for implementation, row in rows.items() if isinstance(rows, dict) else ():
                if isinstance(row, dict) and isinstance(row.get("midmean_us"), float):
                    yield f"{case}/{implementation}", row["midmean_us"]


def _spreads(kept: store.KeptRun) -> dict[str, Spread]:
    """The distribution of every row whose raw times were kept."""
    times: dict[str, list[tuple[int, tuple[float, ...]]]] = {}
    for row, placement, _, samples in kept.samples():
        times.setdefault(row, []).append((placement, samples))
    found = {row: spread(samples) for row, samples in times.items()}
    return {row: one for row, one in found.items() if one is not None}
