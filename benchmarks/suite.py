"""The suite's numbers for readers: a page of every row, and the table in the README.

    tirbench exec workloads/*.toml --pin
    python -m benchmarks.suite latest

Writes `benchmarks/results/suite_<hardware>.md` and puts the kernels of a few workloads between the marks of
the README. What it prints was measured by that run; nothing here measures.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.runs import ROOT
from tirbench import digest, report, store
from tirbench.model import Timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tirbench.model import Run

BEGIN: Final = "<!-- suite: written by benchmarks/suite.py -->"
END: Final = "<!-- end of suite -->"

SHOWN: Final = (
    "vector_add",
    "rmsnorm",
    "fused_add_rmsnorm",
    "softmax",
    "layernorm",
    "silu_and_mul",
    "rope",
    "cross_entropy",
    "matmul",
    "flash_attention",
)
"""The workloads of the README's table."""

AGAINST: Final = ("torch", "compiled")


def table(run: Run) -> Iterator[str]:
    """The kernels of the workloads that the README shows."""
    timed = {one.row.key: one for one in run.outcomes if isinstance(one, Timed)}
    yield "| workload | case | kernel | µs | / torch | / compiled | rate | of roof |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    seen: tuple[str, str] = ("", "")
    for name in SHOWN:
        for one in timed.values():
            row = one.row
            if row.workload != name or row.role != "kernel":
                continue
            us = one.estimate.midmean_us
            beside = [timed.get(f"{name}/{row.case}/{other}") for other in AGAINST]
            ratios = [
                "–" if other is None else f"{us / other.estimate.midmean_us:.3g}"
                for other in beside
            ]
            workload = "" if seen[0] == name else name
            case = "" if seen == (name, row.case) else row.case
            seen = (name, row.case)
            yield (
                f"| {workload} | {case} | {row.implementation} | {us:.4g} | {' | '.join(ratios)} "
                f"| {_rate(one)} | {_share(one)} |"
            )


def _rate(one: Timed) -> str:
    """In the unit of the roof that binds."""
    rates = one.rates
    if rates.roof_by == "compute" and rates.tflops is not None:
        return f"{rates.tflops:.0f} TFLOP/s"
    return "–" if rates.gbytes_per_s is None else f"{rates.gbytes_per_s:.0f} GB/s"


def _share(one: Timed) -> str:
    return "–" if one.rates.roof is None else f"{100 * one.rates.roof:.0f} %"


def facts(run: Run) -> str:
    """Date, device and versions."""
    day = datetime.strptime(run.id[:8], "%Y%m%d").date()  # noqa: DTZ007 - the day alone
    return f"{day}, {run.machine.device}, {digest.environment(run.machine)}, clocks not locked"


def main() -> int:
    """Write the page and the README's table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", help="id of a kept run, or latest")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--command", default="tirbench exec workloads/*.toml --pin")
    asked = parser.parse_args()
    kept = store.read_run(ROOT, asked.run)
    ours = {path.stem for path in (ROOT / "workloads").glob("*.toml")}
    outcomes = [one for one in kept.run.outcomes if one.row.workload in ours]
    run = replace(kept.run, outcomes=tuple(sorted(outcomes, key=lambda one: one.row.workload)))
    page = report.render(run, "markdown", folder=f".tirbench/runs/{run.id}", notes=kept.notes)
    hardware = run.machine.hardware.rpartition("-")[2]
    text = f"# The suite on an {run.machine.device}\n\n{facts(run)}.\nCommand: `{asked.command}`.\n\n{page}"
    store.write(asked.out / f"suite_{hardware}.md", text)
    readme = ROOT / "README.md"
    head, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    shown = "\n".join(table(run))
    store.write(readme, f"{head}{BEGIN}\n{facts(run)}:\n\n{shown}\n{END}{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
