"""What a reviewer asks, as compositions of stages: `aot`, `diff`, `report`. Nothing here prints."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench import aot, pipeline, store
from tirbench.store import BaselineError
from tirbench.store.files import write

if TYPE_CHECKING:
    from tirbench.model import Compilation, CompiledSuite, CompileJob, Workload
    from tirbench.reading import Reading

MOST_PROCESSES: Final = 8
"""That compile at once: each holds torch and Triton, half a gigabyte."""


def compiled(
    reading: Reading,
    archs: Sequence[str],
    watch: Callable[[Compilation], None] = lambda _: None,
) -> CompiledSuite:
    """render → aot: every kernel of the chosen cases, with the specialisation that the case gets.

    Args:
        reading: what to compile.
        archs: `sm_90`, …
        watch: is shown every answer.

    Raises:
        UsageError: an architecture is unknown.
    """
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
