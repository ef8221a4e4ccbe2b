"""What a reviewer asks, as compositions of stages: `aot`, `diff`, `report`. Nothing here prints."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench import aot, digest, pipeline, store
from tirbench import diff as comparison
from tirbench.diagnostics import locate
from tirbench.diff import Pins, Side, Task
from tirbench.errors import InputError, UsageError
from tirbench.expand import expand
from tirbench.load import load_all
from tirbench.report.page import Page, Pinned, Spread, spread
from tirbench.store import BaselineError, is_sealed, revisions
from tirbench.store.files import write

if TYPE_CHECKING:
    from tirbench.model import Case, Compilation, CompiledSuite, CompileJob, Diff, Workload
    from tirbench.reading import Reading

MOST_PROCESSES: Final = 8
"""That compile at once: each holds torch and Triton, half a gigabyte."""


def compiled(
    reading: Reading,
    archs: Sequence[str],
    watch: Callable[[Compilation], None] = lambda _: None,
) -> CompiledSuite:
    """Render → aot: every kernel of the chosen cases, with the specialisation that the case gets.

    Args:
        reading: what to compile.
        archs: `sm_90`, …
        watch: is shown every answer.

    Raises:
        UsageError: an architecture is unknown.
    """
    archs = sorted(archs, key=lambda arch: (len(arch), arch))
    usual = {arch: aot.target_of(arch) for arch in archs}  # raises before anything is rendered
    with tempfile.TemporaryDirectory(prefix="tirbench-aot-") as folder:
        asked: list[CompileJob] = []
        for chosen in reading.chosen:
            harness = pipeline.rendered(chosen)
            path = Path(folder) / harness.name
            write(path, harness.text)
            for arch in archs:
                facts, pinned = pinned_device(reading.root, chosen.workload, arch)
                target = aot.target_of(arch, facts) if facts else usual[arch]
                asked += aot.requests(str(path), chosen.cases, (target,), pinned)
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return aot.compile_all(
            asked, root=reading.root, processes=min(cores, MOST_PROCESSES), watch=watch
        )


# --- diff -----------------------------------------------------------------------------------------

WORKING_TREE: Final = "the working tree"

REASON: Final = re.compile(
    r"^Tirbench-Reason:[ \t]*(\S+?):[ \t]+(\S.*)$", re.MULTILINE | re.IGNORECASE
)
"""A trailer of a commit that says why a weakening is right: `Tirbench-Reason: rmsnorm/h4096_*: …`."""


def diff(
    root: Path,
    base: str,
    head: str | None = None,
    *,
    files: Sequence[str] = (),
    facts: tuple[CompiledSuite, CompiledSuite] | None = None,
) -> Diff:
    """Load → expand → diff: two revisions, a revision and the working tree, or two folders.

    Revisions are compared from where they parted: what others did since is not the author's.

    Args:
        root: the project's folder.
        base: a revision, or a folder where `head` is one.
        head: a revision; absent: the working tree.
        files: workload files and folders; absent: `workloads/` where there is one, else everywhere.
        facts: what `aot` says of both sides.

    Raises:
        UsageError: a revision is unknown, or the two have nothing in common.
    """
    if head is not None and Path(base).is_dir() and Path(head).is_dir():
        sides = (_side(Path(base), base, files), _side(Path(head), head, files))
        return comparison.compare(*sides, place=_place, facts=facts)
    parted = revisions.merge_base(root, base, head or "HEAD")
    if parted is None:
        raise UsageError(f"{base} and {head or 'HEAD'} have no commit in common")
    name = f"{base} ({revisions.short(parted)})"
    reasons = REASON.findall(revisions.messages(root, parted, head or "HEAD"))
    with ExitStack() as stack:
        old = _side(stack.enter_context(_tree(root, parted)), name, files)
        if head is None:
            new = _side(root, WORKING_TREE, files)
        else:
            commit = revisions.resolve(root, head)
            new = _side(stack.enter_context(_tree(root, commit)), head, files)
        return comparison.compare(old, new, place=_place, reasons=reasons, facts=facts)


def weakenings_of(found: Diff) -> Callable[[Case, str], tuple[str, ...]]:
    """What a diff says weakens a row, without a reason: case and implementation → sentences."""

    def of_row(case: Case, implementation: str) -> tuple[str, ...]:
        return tuple(
            f"{one.subject}: {one.text}"
            for one in found.weakenings
            if one.workload == case.workload.name
            and not one.reason
            and (not one.cases or case.id in one.cases)
            and one.implementation in (None, implementation)
        )

    return of_row


@contextmanager
def _tree(root: Path, commit: str) -> Iterator[Path]:
    """The project at a commit, marked as a project of its own."""
    with revisions.archived(root, commit) as folder:
        (folder / ".tirbench").mkdir(exist_ok=True)
        yield folder


def _side(root: Path, name: str, files: Sequence[str]) -> Side:
    """Everything that one side's files say."""
    paths = _workload_files(root, files)
    workloads, found = load_all(paths, root)
    unreadable = _by_file(found)
    read = digest.reader(root)
    beside = {one.source.folder: _contents(root / one.source.folder) for one in workloads}
    tasks = {}
    for workload in workloads:
        try:
            cases = {case.id: case for case in expand(workload)}
        except InputError as error:
            unreadable.update(_by_file(error.diagnostics))
            continue
        files_digest = _digest(workload.source.text, beside[workload.source.folder])
        tasks[workload.name] = Task(workload=workload, cases=cases, read=read, files=files_digest)
    folders = {path.parent for path in paths}
    named = {path.stem for path in paths} if files else None
    pins, broken = _pins(root, folders, named)
    return Side(name=name, tasks=tasks, pins=pins, unreadable=unreadable, broken=broken)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _contents(folder: Path) -> str:
    """Digest of every file below a workload's folder that is no TOML: what targets can name."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "__pycache__")) for part in parts)
        if path.suffix != ".toml" and not hidden and path.is_file():
            found.update("/".join(parts).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _by_file(found: Sequence[Any]) -> dict[str, str]:
    """The first fault of every file, and how many there are."""
    grouped: dict[str, list[Any]] = {}
    for one in found:
        grouped.setdefault(one.file, []).append(one)
    return {
        file: f"{ones[0].line}: {ones[0].message}"
        + (f" (and {len(ones) - 1} more: tirbench check)" if len(ones) > 1 else "")
        for file, ones in grouped.items()
    }


def _workload_files(root: Path, files: Sequence[str]) -> list[Path]:
    """The files that are workloads: those named, or all TOML files that say they are."""
    named = [root / name for name in files]
    if not named:
        named = [root / "workloads"] if (root / "workloads").is_dir() else [root]
    found: set[Path] = set()
    for path in named:
        if path.is_dir():
            found |= {one for one in path.rglob("*.toml") if _is_workload(one, root)}
        elif path.is_file():
            found.add(path)
    return sorted(found)


def _is_workload(path: Path, root: Path) -> bool:
    """Whether a file is one of a workload: not a baseline, not another tool's."""
    parts = path.relative_to(root).parts
    if any(part.startswith(".") or part == "baselines" for part in parts):
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.search(r"^schema\s*=\s*\d", text, re.MULTILINE) is not None


def _pins(
    root: Path, folders: set[Path], named: set[str] | None
) -> tuple[dict[str, Pins], dict[str, str]]:
    """The baselines beside these folders, and why some cannot be read."""
    pins: dict[str, Pins] = {}
    broken: dict[str, str] = {}
    for file in sorted(path for folder in folders for path in folder.glob("baselines/*/*.toml")):
        if file.name == "device.toml" or (named is not None and file.stem not in named):
            continue
        path = file.relative_to(root).as_posix()
        try:
            baseline = store.read_baseline(root, path)
        except BaselineError as error:
            broken[path] = str(error)
            continue
        if baseline is not None:
            seals = {(row.case, row.implementation) for row in baseline.rows if not is_sealed(row)}
            pins[path] = Pins(path=path, baseline=baseline, broken=frozenset(seals))
    return pins, broken


def _place(workload: Workload, path: tuple[str | int, ...]) -> str:
    return f"{workload.source.path}:{locate(workload.source.text, path).line}"


# --- Devices --------------------------------------------------------------------------------------


def pinned_device(
    root: Path, workload: Workload, arch: str
) -> tuple[dict[str, Any], dict[aot.RowKey, str]]:
    """Facts of a device of this architecture that a workload is pinned on, and its tuning choices."""
    number = arch.removeprefix("sm_")
    capability = f"{number[:-1]}.{number[-1]}"
    for folder in _hardware(root, workload):
        facts = _toml(folder / "device.toml")
        if str(facts.get("capability")) != capability:
            continue
        choices: dict[aot.RowKey, str] = {}
        with suppress(BaselineError):  # `check` and `diff` say what is wrong with it
            baseline = store.read_baseline(root, store.baseline_path(workload, folder.name))
            rows = baseline.rows if baseline else ()
            choices = {
                (row.case, row.implementation): row.configuration
                for row in rows
                if row.configuration
            }
        return facts, choices
    return {}, {}


def _hardware(root: Path, workload: Workload) -> Iterator[Path]:
    folder = root / store.baseline_path(workload, "x")
    yield from sorted(path for path in folder.parents[1].glob("*") if path.is_dir())


def _toml(path: Path) -> dict[str, Any]:
    """A TOML file; empty where there is none, or none that can be read."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    with suppress(OSError, ValueError):
        data: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
        return data
    return {}


# --- report ---------------------------------------------------------------------------------------


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
                places[outcome.row.key] = _place(workload, one.path)
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
