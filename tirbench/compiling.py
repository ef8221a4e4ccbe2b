"""`aot` as compositions of stages: every kernel of a reading, or what two revisions write otherwise."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench import aot, digest, pipeline, sides, store
from tirbench.diff.hardware import capability_of
from tirbench.model import Compilation, CompiledSides, CompiledSuite, CompileJob, Row
from tirbench.reading import Reading
from tirbench.selection import Chosen
from tirbench.store import BaselineError
from tirbench.store.files import write

if TYPE_CHECKING:
    from tirbench.diff import Side
    from tirbench.model import Workload

MOST_PROCESSES: Final = 8
"""That compile at once: each holds torch and Triton, half a gigabyte."""

USUAL_ARCH: Final = "sm_90"
"""What is compiled for where no baseline names a device."""


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
        suite = aot.compile_all(
            asked, root=reading.root, processes=min(cores, MOST_PROCESSES), watch=watch
        )
    return _named(reading, suite)


def _named(reading: Reading, suite: CompiledSuite) -> CompiledSuite:
    """The suite with the digests of the rows that it is of."""
    read = digest.reader(reading.root)
    cases = {case.key: case for chosen in reading.chosen for case in chosen.cases}

    def with_digests(one: Compilation) -> Compilation:
        case = cases[f"{one.row.workload}/{one.row.case}"]
        source = digest.source(case, one.row.implementation, read)
        return replace(one, problem=digest.problem(case, read), source=source)

    return replace(suite, compilations=tuple(map(with_digests, suite.compilations)))


def compiled_sides(
    found: sides.Sides,
    archs: Sequence[str] = (),
    watch: Callable[[Compilation], None] = lambda _: None,
) -> CompiledSides:
    """Render → aot on both sides, of the rows that are written otherwise, by the same compilers.

    Args:
        found: both sides; their kernel files are imported.
        archs: what to compile for; absent: the devices that are pinned on.
        watch: is shown every answer.

    Raises:
        UsageError: an architecture is unknown.
    """
    archs = archs or _archs({**found.base.capabilities, **found.head.capabilities}.values())
    rows = tuple(_written_otherwise(found))

    def of_side(side: Side, root: Path) -> CompiledSuite:
        there = [row for row in rows if _has(side, row)]
        return compiled(pipeline.only(_reading_of(side, root), there), archs, watch)

    return CompiledSides(
        base=of_side(found.base, found.base_root), head=of_side(found.head, found.head_root)
    )


def _written_otherwise(found: sides.Sides) -> Iterator[Row]:
    """Rows of HEAD whose problem or source is not that of BASE."""
    for name, new in sorted(found.head.tasks.items()):
        old = found.base.tasks.get(name)
        if new.is_untouched(old):
            continue
        for case, implementation in new.keys:
            key = (case, implementation)
            one = new.implementation(key)
            assert one is not None  # noqa: S101 - the key is from there
            there = old is not None and old.implementation(key) is not None
            if (
                old is None
                or not there
                or (old.problem(case), old.source(key)) != (new.problem(case), new.source(key))
            ):
                yield Row(workload=name, case=case, implementation=implementation, role=one.role)


def _has(side: Side, row: Row) -> bool:
    task = side.tasks.get(row.workload)
    return task is not None and task.implementation((row.case, row.implementation)) is not None


def _reading_of(side: Side, root: Path) -> Reading:
    """Every case of a side, as if its files had been named."""
    chosen = [
        Chosen(workload=task.workload, cases=tuple(task.cases.values()))
        for _, task in sorted(side.tasks.items())
    ]
    return Reading(chosen=tuple(chosen), problems=(), root=root)


def pinned_archs(reading: Reading) -> list[str]:
    """The architectures that `aot` knows among those of the devices that a reading is pinned on."""
    folders = {folder for one in reading.chosen for folder in _hardware(reading.root, one.workload)}
    return _archs(capability_of(_text(folder / "device.toml")) for folder in folders)


def _archs(capabilities: Iterable[float | None]) -> list[str]:
    archs = {f"sm_{round(10 * capability)}" for capability in capabilities if capability}
    return sorted(archs & aot.PRODUCTS.keys()) or [USUAL_ARCH]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def completed(reading: Reading, suite: CompiledSuite) -> Iterator[tuple[str, int]]:
    """Add to pinned rows what the compilers say of the code that was measured, and nothing else.

    Only of a row whose machine code is the one that was compiled here, on the architecture of its device,
    and whose seal holds: numbers, digests and environment stay, so nothing that was measured changes.

    Args:
        reading: what was compiled.
        suite: the answers.

    Yields:
        The path of every baseline that changed, and how many of its rows did.
    """
    found = {(one.row.key, one.arch): one for one in suite.compilations}
    for chosen in reading.chosen:
        for folder in _hardware(reading.root, chosen.workload):
            path = store.baseline_path(chosen.workload, folder.name)
            baseline = store.read_baseline(reading.root, path)
            capability = capability_of(_text(folder / "device.toml"))
            if baseline is None or capability is None:
                continue
            arch = f"sm_{round(10 * capability)}"
            rows = []
            for row in baseline.rows:
                key = f"{chosen.workload.name}/{row.case}/{row.implementation}"
                rows.append(store.with_resources(row, found.get((key, arch))))
            changed = sum(new != old for new, old in zip(rows, baseline.rows, strict=True))
            if changed:
                store.write_baseline(reading.root, path, replace(baseline, rows=tuple(rows)))
                yield path, changed


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
