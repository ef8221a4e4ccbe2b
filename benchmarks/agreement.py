"""Is the code that a machine without a GPU compiles the code that the GPU ran? Digests against the pins.

    python -m benchmarks.agreement --out benchmarks/results

Compiles every pinned row with the compilers that are installed (`tirbench aot`) and holds its digest against
the one that was recorded where the row was measured. Equal digests are equal code, whatever compiled it;
unequal ones mean something only under one compiler, so a row that another version compiled is not compared.
Prints the table and writes `aot_agreement.md`. A minute on two cores. Exit: 0 nothing unequal, 1 otherwise.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tirbench import compiling, store
from tirbench.aot.request import COMPILED_KINDS
from tirbench.model import Compilation, CompiledSuite, PinnedRow
from tirbench.reading import Reading, read
from tirbench.selection import Selection

ROOT: Final = Path(__file__).parents[1]

NAMED: Final = {"triton": "Triton", "cuda": "CUDA C++", "tirx": "TIRx"}
NOT_COMPILED: Final = "torch and libraries"

RECORDED: Final = {"triton": "triton", "tirx": "tirx"}
"""What a row's `env` calls the compiler of a launch kind; that of a `.cu` file is not in it."""

Answer: TypeAlias = Literal["equal", "unequal", "not comparable"]
ANSWERS: Final[tuple[Answer, ...]] = ("equal", "unequal", "not comparable")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One pinned row beside what was compiled here."""

    kind: str
    row: str
    answer: Answer
    why: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--hardware", default="nvidia-h200", help="whose baselines")
    parser.add_argument("--out", type=Path, help="folder for aot_agreement.md")
    given = parser.parse_args(arguments)
    reading = read(Selection(files=(str(ROOT / "workloads"),), select="all"))
    pins = pinned(reading, given.hardware)
    arch = arch_of(given.hardware)
    suite = compiling.compiled(pinned_cases(reading, pins), (arch,), show)
    found = list(compared(reading, pins, suite))
    text = report(found, suite, given.hardware, arch, environments(pins))
    print(text)
    if given.out:
        (given.out / "aot_agreement.md").write_text(text, encoding="utf-8")
    return 1 if any(one.answer == "unequal" for one in found) else 0


def show(one: Compilation) -> None:
    """A line on stderr for a row that could not be compiled."""
    if one.code is None:
        print(f"{one.row.key}: {one.failure}", file=sys.stderr)


Pins: TypeAlias = "Mapping[tuple[str, str, str], PinnedRow]"
"""By workload, case and implementation."""


def pinned(reading: Reading, hardware: str) -> Pins:
    """Every accepted row of a class of hardware."""
    found = {}
    for chosen in reading.chosen:
        path = store.baseline_path(chosen.workload, hardware)
        baseline = store.read_baseline(reading.root, path)
        for row in baseline.rows if baseline else ():
            found[chosen.workload.name, row.case, row.implementation] = row
    return found


def arch_of(hardware: str) -> str:
    """`sm_90`, from the facts of the device that lie beside its baselines."""
    text = (ROOT / "workloads/baselines" / hardware / "device.toml").read_text(encoding="utf-8")
    major, minor = re.findall(r'^capability = "(\d+)\.(\d+)"$', text, re.MULTILINE)[0]
    return f"sm_{major}{minor}"


def pinned_cases(reading: Reading, pins: Pins) -> Reading:
    """The cases that have a pin."""
    from dataclasses import replace

    cases = {(workload, case) for workload, case, _ in pins}
    chosen = [
        replace(one, cases=tuple(c for c in one.cases if (one.workload.name, c.id) in cases))
        for one in reading.chosen
    ]
    return replace(reading, chosen=tuple(one for one in chosen if one.cases))


def compared(reading: Reading, pins: Pins, suite: CompiledSuite) -> Iterator[Compared]:
    """Every pinned row, in the order of the workloads."""
    kinds = {
        (chosen.workload.name, case.id, one.name): [step.kind for step in one.steps]
        for chosen in reading.chosen
        for case in chosen.cases
        for one in case.implementations
    }
    here = {
        (one.row.workload, one.row.case, one.row.implementation): one for one in suite.compilations
    }
    for key, row in pins.items():
        compiled = [kind for kind in kinds.get(key, ()) if kind in COMPILED_KINDS]
        name = NAMED[compiled[0]] if compiled else NOT_COMPILED
        answer, why = compare(row, here.get(key), compiled, dict(suite.compilers))
        yield Compared(kind=name, row="/".join(key), answer=answer, why=why)


def compare(
    row: PinnedRow, one: Compilation | None, kinds: Sequence[str], compilers: Mapping[str, str]
) -> tuple[Answer, str]:
    """What one row says, and why it says nothing where it does not."""
    if not kinds:
        return "not comparable", "launches what a library compiled: pinned by its source"
    if one is None or one.code is None:
        return "not comparable", f"not compiled here: {one.failure if one else 'not asked for'}"
    if one.code.digest == row.code:
        return "equal", ""
    if not row.code.startswith(("sass:", one.code.digest.partition(":")[0])):
        return "not comparable", "pinned by its source: its code could not be collected"
    recorded = dict(part.split(" ", 1) for part in row.env.split(" · ") if " " in part)
    for kind in dict.fromkeys(kinds):
        name = RECORDED.get(kind)
        if name is None:
            version = compilers.get("nvrtc", "?")
            return "not comparable", f"NVRTC {version} here; rows do not say which one theirs was"
        if recorded.get(name) != compilers.get(name):
            other = f"{name} {recorded.get(name, '?')} there, {compilers.get(name, 'none')} here"
            return "not comparable", other
    return "unequal", f"{row.code} there, {one.code.digest} here"


def environments(pins: Pins) -> list[str]:
    """What surrounded the rows when they were measured."""
    return sorted({row.env for row in pins.values()})


# --- The page -------------------------------------------------------------------------------------


def report(
    found: Sequence[Compared],
    suite: CompiledSuite,
    hardware: str,
    arch: str,
    measured_with: Iterable[str],
) -> str:
    """The table by launch kind, then each reason and each unequal row."""
    counts = Counter((one.kind, one.answer) for one in found)
    here = ", ".join(f"{name} {version}" for name, version in suite.compilers)
    lines = [
        f"# Code compiled without a GPU beside the code that {hardware} ran",
        "",
        f"`python -m benchmarks.agreement`: {len(found)} pinned rows, compiled for {arch} by {here}.",
        "",
        *(f"Measured with {env}." for env in measured_with),
        "",
        "| launch kind | rows | equal | unequal | not comparable |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind in [*NAMED.values(), NOT_COMPILED]:
        row = [counts[kind, answer] for answer in ANSWERS]
        if sum(row):
            lines.append(f"| {kind} | {sum(row)} | {' | '.join(map(str, row))} |")
    total = [
        sum(counts[kind, answer] for kind in [*NAMED.values(), NOT_COMPILED]) for answer in ANSWERS
    ]
    lines.append(f"| **all** | {sum(total)} | {' | '.join(map(str, total))} |")
    reasons: dict[str, list[str]] = defaultdict(list)
    for one in found:
        if one.answer == "not comparable":
            reasons[one.why].append(one.row)
    if reasons:
        lines += ["", "Not comparable:", ""]
        lines += [f"- {len(rows)}: {why}" for why, rows in sorted(reasons.items())]
    unequal = [one for one in found if one.answer == "unequal"]
    if unequal:
        lines += ["", "Unequal under one compiler:", ""]
        lines += [f"- `{one.row}`: {one.why}" for one in unequal]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
