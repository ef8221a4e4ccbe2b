"""How long does a person wait for what runs nothing? Whole processes, beside a bare interpreter.

    python -m benchmarks.cli --out benchmarks/results

Starts every command anew, in turns with `python -c pass`, so that a busy machine slows both. Prints the table
and writes `cli.md`, and every start into `cli.json`. Milliseconds are of this machine; the ratio to a bare
start travels. Two minutes on quiet cores; what others ran before is said. Exit: 0 targets met, 1 missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).parents[1]
LARGE: Final = "stable_topk"
"""The workload with several hundred cases, which is measured by itself."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is measured; `target_ms` is what the issue asks of it, `times` how often it is started.

    `without` is a folder that is removed before each start.
    """

    name: str
    arguments: Sequence[str]
    target_ms: float | None = None
    times: int = 31
    without: str = ""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One start of a process, in milliseconds."""

    wall_ms: float
    cpu_ms: float


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="folder for cli.md and cli.json")
    parser.add_argument("--quick", action="store_true", help="three starts of each command")
    given = parser.parse_args()
    before = busy()
    with corpus() as folder:
        found = [(one, *measured(one, folder, quick=given.quick)) for one in commands(folder)]
    text = report(found, before)
    print(text)
    if given.out:
        (given.out / "cli.md").write_text(text, encoding="utf-8")
        (given.out / "cli.json").write_text(document(found, before), encoding="utf-8")
    return 0 if all(met(command, readings) for command, readings, _ in found) else 1


@contextmanager
def corpus() -> Iterator[Path]:
    """A project with the suite, copies of one of its files, and a thousand copies of all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").touch()
        shutil.copytree(ROOT / "tirbench" / "schema", folder / "tirbench" / "schema")
        suite = [path for path in sorted((ROOT / "workloads").glob("*.toml")) if path.stem != LARGE]
        for kind in ("suite", "copies", "thousand"):
            shutil.copytree(ROOT / "workloads" / "kernels", folder / kind / "kernels")
        shutil.copytree(ROOT / "workloads" / "baselines", folder / "suite" / "baselines")
        for path in suite[:20]:
            shutil.copy(path, folder / "suite" / path.name)
        for index in range(20):
            shutil.copy(ROOT / "workloads" / "rmsnorm.toml", folder / "copies" / f"r{index}.toml")
        for index in range(1000):
            path = suite[index % len(suite)]
            shutil.copy(path, folder / "thousand" / f"{path.stem}_{index}.toml")
        (folder / "large").mkdir()
        shutil.copytree(ROOT / "workloads" / "kernels", folder / "large" / "kernels")
        shutil.copy(ROOT / "workloads" / f"{LARGE}.toml", folder / "large")
        yield folder


def commands(folder: Path) -> tuple[Command, ...]:
    """What is measured on the corpus."""

    def check(kind: str, **more: float) -> Command:
        number = len(list((folder / kind).glob("*.toml")))
        names = {"suite": "files of the suite, pinned", "copies": "copies of rmsnorm.toml"}
        what = names.get(kind, "files")
        name = f"check of {number:,} {what}" if number > 1 else f"check of {LARGE}.toml"
        return Command(name=name, arguments=("check", kind), **more)  # type: ignore[arg-type]  # times is a whole number

    return (
        Command(name="--help", arguments=("--help",), target_ms=80),
        Command(name="check of one file", arguments=("check", "suite/rmsnorm.toml")),
        check("large"),
        check("copies", target_ms=150),
        check("suite", target_ms=150),
        Command(
            name="the same, its pins looked at anew",
            arguments=("check", "suite"),
            times=11,
            without=".tirbench/stale",
        ),
        check("thousand", target_ms=2000, times=11),
    )


def measured(command: Command, folder: Path, *, quick: bool) -> tuple[list[Reading], list[Reading]]:
    """Starts of the command and of a bare interpreter, in turns; the first fills the caches of modules."""
    start([*tirbench(), *command.arguments], folder)
    own, bare = [], []
    for _ in range(3 if quick else command.times):
        bare.append(start([sys.executable, "-c", "pass"], folder))
        if command.without:
            shutil.rmtree(folder / command.without)
        own.append(start([*tirbench(), *command.arguments], folder))
    return own, bare


def tirbench() -> list[str]:
    """The command line as the installed script starts it: without the cost of `-m`."""
    return [sys.executable, "-c", "from tirbench.cli import main; main()"]


def start(arguments: Sequence[str], folder: Path) -> Reading:
    """One process from start to end.

    Raises:
        RuntimeError: it did not end well.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    began = time.perf_counter_ns()
    process = subprocess.Popen(  # noqa: S603 - our own command
        arguments, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall_ms = (time.perf_counter_ns() - began) / 1e6
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}")
    return Reading(wall_ms=wall_ms, cpu_ms=(usage.ru_utime + usage.ru_stime) * 1e3)


def least(readings: Sequence[Reading]) -> Reading:
    """The least of each: what others on the machine did is only ever added."""
    return Reading(
        wall_ms=min(one.wall_ms for one in readings), cpu_ms=min(one.cpu_ms for one in readings)
    )


def met(command: Command, readings: Sequence[Reading]) -> bool:
    """Whether the target is met by the least time."""
    return command.target_ms is None or least(readings).wall_ms <= command.target_ms


def busy() -> float:
    """How many processes wanted to run in the minute before, ours not among them; 0 where nobody knows."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


Found: TypeAlias = "Sequence[tuple[Command, list[Reading], list[Reading]]]"
"""Each command with its own starts and those of a bare interpreter."""


def document(found: Found, before: float) -> str:
    """Every start, for programs."""
    rows = [
        {
            "command": command.name,
            "target_ms": command.target_ms,
            "wall_ms": [round(one.wall_ms, 2) for one in own],
            "cpu_ms": [round(one.cpu_ms, 2) for one in own],
            "bare_ms": [round(one.wall_ms, 2) for one in bare],
        }
        for command, own, bare in found
    ]
    head = {"python": platform.python_version(), "machine": machine(), "cores": os.cpu_count()}
    return json.dumps({"schema": 1, **head, "load_before": before, "rows": rows}, indent=1) + "\n"


def report(found: Found, before: float) -> str:
    """The table and what it was measured on, as Markdown."""
    starts = [len(own) for _, own, _ in found]
    most, fewest = max(starts), min(starts)
    today = datetime.now(timezone.utc).date().isoformat()
    head = f"{today}, `python -m benchmarks.cli`, Python {platform.python_version()}, {machine()}"
    rows = [
        f"# The command line\n\n{head}, {os.cpu_count()} cores.\n",
        "Whole processes from start to end, the bytecode of modules in place. *least* and *median* are of",
        f"{most} starts ({fewest} of the longest), *bare* is `python -c pass` in turns with them, *ratio* is",
        "of the leasts, *CPU* user and system time. Targets hold for the least: others use the machine too,",
        f"and what they do is only ever added ({before:.1f} processes wanted to run in the minute before).",
        "`check` of many files uses as many processes as there are cores, eight at most. `cli.json` has",
        "every start.\n",
        "| command | least ms | median ms | CPU ms | bare ms | ratio | target ms | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for command, own, bare in found:
        best, idle = least(own), least(bare)
        middle = statistics.median(one.wall_ms for one in own)
        target = "" if command.target_ms is None else f"{command.target_ms:.0f}"
        verdict = "" if command.target_ms is None else "met" if met(command, own) else "missed"
        rows.append(
            f"| {command.name} | {best.wall_ms:.0f} | {middle:.0f} | {best.cpu_ms:.0f} | {idle.wall_ms:.0f} "
            f"| {best.wall_ms / idle.wall_ms:.1f} | {target} | {verdict} |"
        )
    return "\n".join(rows) + "\n"


def machine() -> str:
    """The processor by its family; no name of a host."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
