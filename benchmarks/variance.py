"""Where the variance of a time comes from: placement, process; state of the L2 cache; company; regime.

    python -m benchmarks.variance --out benchmarks/results --seconds 100

Kernels of the shipped suite, each on 8 placement seeds in 4 forked processes; the three states of the L2
cache on one placement; what runs beside a kernel; a long matrix product and a long addition,
rested and after continuous work. Writes `variance_<hardware>.md` and `.json`; what the time did not allow is
listed. Exit: 0, or 3 if nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from benchmarks.variance_worker import CALLS, Spec
from tirbench import pipeline
from tirbench.averages import midmean
from tirbench.execute import Workers, describe, execute
from tirbench.execute.events import Reported, RowDone
from tirbench.model import CaseJob, Failed, Job, Plan, Row
from tirbench.reading import Reading, read
from tirbench.selection import Selection
from tirbench.store import write

OPENER: Final = "benchmarks.variance_worker:open_variance"

ROWS: Final = (
    "workloads/vector_add.toml::n65536",
    "workloads/rmsnorm.toml::h4096_r32_bfloat16",
    "workloads/rope.toml::t32_h32x8_d128_bfloat16",
    "workloads/layernorm.toml::h768_r1024_bfloat16",
    "workloads/matmul.toml::m512_n512_k512_bfloat16",
    "workloads/rmsnorm.toml::h4096_r2048_bfloat16",
    "workloads/vector_add.toml::n4194304",
    "workloads/softmax.toml::r4096_c4096_bfloat16",
    "workloads/matmul.toml::m2048_n2048_k2048_bfloat16",
    "workloads/silu_and_mul.toml::w14336_r1024_bfloat16",
    "workloads/vector_add.toml::n67108864",
)
"""One kernel and more of every class of duration for which calls are counted in hundreds or tens."""

LONG: Final = (
    "workloads/matmul.toml::m8192_n8192_k8192_bfloat16",
    "workloads/vector_add.toml::n67108864",
)
"""What is held against its own continuous work."""


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "files", nargs="*", default=list(ROWS), help="FILES as `tirbench exec` has them"
    )
    parser.add_argument(
        "--long", action="append", help="FILES of the regimes, one an option; as given here if none"
    )
    parser.add_argument("--implementation", default="triton")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--placements", type=int, default=8)
    parser.add_argument(
        "--seconds", type=float, default=100.0, help="stop starting workers after this"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    study = Study(arguments)
    study.run()
    if not study.said:
        print("variance: nothing was measured", file=sys.stderr)
        return 3
    document = study.document()
    text = markdown(document)
    print(text)
    stem = f"variance_{document['hardware'].removeprefix('nvidia-')}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{stem}.md").write_text(text, encoding="utf-8")
    (arguments.out / f"{stem}.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


class Study:
    """Workers, one after the other, and what they said."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Nothing is measured yet."""
        self.asked = arguments
        self.said: list[dict[str, Any]] = []
        self.missing: list[str] = []
        self.seconds = 0.0

    def run(self) -> None:
        """The first process of everything, then what has one worker, then the other processes."""
        begin = time.monotonic()
        asked = self.asked
        rows, long = self._read(asked.files), self._read(asked.long or list(LONG))
        tasks = [("places", 0, rows), ("l2", 0, rows), ("company", 0, rows), ("regimes", 0, long)]
        tasks += [("places", number, rows) for number in range(1, asked.processes)]
        logs = rows.root / ".tirbench" / "variance"
        logs.mkdir(parents=True, exist_ok=True)
        with Workers(logs) as workers:
            workers.warm(asked.device)
            for task, number, reading in tasks:
                for job in self._jobs(reading, logs, task):
                    if time.monotonic() - begin > asked.seconds:
                        self.missing.append(
                            f"{task}, process {number}, {job.workload}: no time left"
                        )
                    else:
                        self._one(job, workers, logs, number)
        self.seconds = time.monotonic() - begin

    def _read(self, files: Sequence[str]) -> Reading:
        beside = frozenset({"cpu"}) if self.asked.device == "cpu" else frozenset[str]()
        reading = read(Selection(files=tuple(files), beside=beside))
        if reading.problems:
            raise SystemExit("\n".join(map(str, reading.problems)))
        return reading

    def _jobs(self, reading: Reading, folder: Path, task: str) -> Iterator[Job]:
        """One job for each workload."""
        name = self.asked.implementation
        for chosen in reading.chosen:
            made = pipeline.rendered(chosen)
            harness = folder / "harness" / made.name
            write(harness, made.text)
            spec = Spec(harness=str(harness), task=task, placements=self.asked.placements)
            path = folder / f"{chosen.workload.name}-{task}.json"
            write(path, json.dumps(asdict(spec)))
            cases = tuple(
                CaseJob(
                    case=case.id,
                    rows=(
                        Row(
                            workload=chosen.workload.name,
                            case=case.id,
                            implementation=name,
                            role="kernel",
                        ),
                    ),
                )
                for case in chosen.cases
                if any(one.name == name for one in case.implementations)
            )
            if cases:
                yield Job(
                    workload=chosen.workload.name,
                    harness=str(path),
                    plan=Plan(device=self.asked.device),
                    cases=cases,
                )

    def _one(self, job: Job, workers: Workers, logs: Path, number: int) -> None:
        events = execute([job], log_dir=logs, workers=workers, opener=OPENER)
        with closing(events):
            for event in events:
                if isinstance(event, Reported) and event.data.get("event") == "variance":
                    data = dict(event.data)
                    data["row"] = f"{job.workload}/{data['case']}/{data['implementation']}"
                    self.said.append({**data, "process": number})
                elif isinstance(event, RowDone) and isinstance(event.outcome, Failed):
                    self.missing.append(f"{event.outcome.row.key}: {event.outcome.reason}")

    def document(self) -> dict[str, Any]:
        """What was found, with what it was found on."""
        machine = describe(self.asked.device)
        known = {**dict(machine.versions), **dict(machine.facts)}
        places: dict[str, list[list[list[float]]]] = defaultdict(list)
        ticks: dict[str, float] = {}
        for one in self.said:
            if one["task"] == "places":
                places[one["row"]].append(one["midmeans_us"])
                if one["tick_us"] is not None:
                    ticks[one["row"]] = one["tick_us"]
        return {
            "date": datetime.now(timezone.utc).date().isoformat(),
            "command": "python -m benchmarks.variance "
            f"--processes {self.asked.processes} --placements {self.asked.placements} "
            f"--seconds {self.asked.seconds:g}",
            "hardware": machine.hardware,
            "device": machine.device,
            "versions": {
                name: known[name] for name in ("driver", "torch", "triton") if name in known
            },
            "calls": CALLS,
            "seconds": round(self.seconds),
            "places": {
                row: {**components(found), "tick_us": ticks.get(row)}
                for row, found in places.items()
            },
            "l2": {
                one["row"]: {
                    policy: statistics.fmean(values)
                    for policy, values in one["midmeans_us"].items()
                }
                for one in self.said
                if one["task"] == "l2"
            },
            "company": {
                one["row"]: {
                    what: statistics.fmean(values) for what, values in one["midmeans_us"].items()
                }
                for one in self.said
                if one["task"] == "company"
            },
            "regimes": {
                one["row"]: regimes(one["burst_us"], one["continuous_us"])
                for one in self.said
                if one["task"] == "regimes"
            },
            "missing": self.missing,
            "readings": self.said,
        }


def components(processes: Sequence[Sequence[Sequence[float]]]) -> dict[str, Any]:
    """Standard deviations of placement, process and residual, relative, by the analysis of variance.

    Args:
        processes: midmeans in µs by process, placement and round.
    """
    logs = [[[math.log(us) for us in rounds] for rounds in places] for places in processes]
    rounds = len(logs[0][0])
    cells = [[statistics.fmean(found) for found in places] for places in logs]
    repeated = [found for places in logs for found in places if len(found) > 1]
    residual = statistics.fmean(map(statistics.variance, repeated)) if repeated else None
    columns = list(zip(*cells, strict=True))
    process = None
    if len(cells) > 1:
        within = statistics.fmean(map(statistics.variance, columns))
        process = max(0.0, within - (residual or 0.0) / rounds)
    placement = None
    if len(columns) > 1:
        between = statistics.variance([statistics.fmean(column) for column in columns])
        noise = ((process or 0.0) + (residual or 0.0) / rounds) / len(cells)
        placement = max(0.0, between - noise)
    means = [statistics.fmean(column) for column in columns]
    return {
        "midmean_us": math.exp(statistics.fmean(means)),
        "placement_sd": _root(placement),
        "placement_range": math.expm1(max(means) - min(means)),
        "process_sd": _root(process),
        "residual_sd": _root(residual),
        "placements": len(columns),
        "processes": len(cells),
    }


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def regimes(burst_us: Sequence[float], continuous_us: Sequence[float]) -> dict[str, Any]:
    """A rested time, and that after continuous work, with when the second began."""
    rested = midmean(burst_us)
    last = continuous_us[-max(1, len(continuous_us) // 4) :]
    hot = midmean(last)
    border = (rested + hot) / 2
    elapsed, changed = 0.0, None
    for call in continuous_us:
        elapsed += call
        if hot > 1.02 * rested and call > border:
            changed = elapsed / 1e3
            break
    return {
        "burst_us": rested,
        "burst_sd": statistics.stdev(burst_us) / rested if len(burst_us) > 1 else None,
        "sustained_us": hot,
        "ratio": hot / rested,
        "changed_after_ms": changed,
        "continuous_ms": sum(continuous_us) / 1e3,
    }


def markdown(document: Mapping[str, Any]) -> str:
    """The report."""
    versions = ", ".join(f"{name} {number}" for name, number in document["versions"].items())
    parts = [
        f"# Where the variance of a time comes from: {document['device']}",
        "",
        f"{document['date']}, {versions}, `{document['command']}`, {document['seconds']} s.",
        "",
        (
            f"Midmeans of {document['calls']} cold calls (16 where one takes longer than 300 µs), two "
            "of each placement and process, with the timer of the workload. Standard deviations by the "
            "analysis of variance; `range` is from the fastest placement to the slowest; `tick` is the "
            "commonest step "
            "between distinct times of calls."
        ),
        "",
        *table(
            (
                "kernel",
                "µs",
                "placements",
                "range",
                "processes",
                "residual",
                "seeds × processes",
                "tick ns",
            ),
            [
                (
                    row,
                    f"{one['midmean_us']:.4g}",
                    percent(one["placement_sd"]),
                    percent(one["placement_range"]),
                    percent(one["process_sd"]),
                    percent(one["residual_sd"]),
                    f"{one['placements']} × {one['processes']}",
                    "–" if one["tick_us"] is None else f"{1000 * one['tick_us']:.0f}",
                )
                for row, one in document["places"].items()
            ],
        ),
    ]
    if document["l2"]:
        parts += ["", "## State of the L2 cache", "", *against_first(document["l2"])]
    if document["company"]:
        parts += [
            "",
            "## Company",
            "",
            (
                "One placement. `among its case`: interleaved with the implementations of its case that take "
                "about as long. `kept by a reader`: before each flush all tensors are read by a kernel that "
                "asks for their lines to be evicted last."
            ),
            "",
            *against_first(document["company"]),
        ]
    if document["regimes"]:
        parts += [
            "",
            "## Regimes",
            "",
            (
                "`burst`: at most 15 ms of work, then at least 20 ms of rest. `sustained`: the last quarter "
                "of the calls of continuous work, flushes between them."
            ),
            "",
            *table(
                ("kernel", "burst µs", "sd of calls", "sustained µs", "", "changed after", "of"),
                [
                    (
                        row,
                        f"{one['burst_us']:.4g}",
                        percent(one["burst_sd"]),
                        f"{one['sustained_us']:.4g}",
                        f"{100 * (one['ratio'] - 1):+.1f} %",
                        "–"
                        if one["changed_after_ms"] is None
                        else f"{one['changed_after_ms']:.0f} ms",
                        f"{one['continuous_ms']:.0f} ms",
                    )
                    for row, one in document["regimes"].items()
                ],
            ),
        ]
    if document["missing"]:
        parts += ["", "Not measured:", "", *(f"* {line}" for line in document["missing"])]
    return "\n".join(parts) + "\n"


def against_first(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line a kernel, each state against the first."""
    states = list(next(iter(rows.values())))
    lines = []
    for row, found in rows.items():
        first = found[states[0]]
        others = [
            f"{found[one]:.4g} ({100 * (found[one] / first - 1):+.1f} %)" for one in states[1:]
        ]
        lines.append((row, f"{first:.4g}", *others))
    return table(("kernel", *(f"{one} µs" for one in states)), lines)


def table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> list[str]:
    """A table of Markdown, numbers to the right."""
    return [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join(["---", *["---:"] * (len(head) - 1)]) + " |",
        *("| " + " | ".join(map(str, line)) + " |" for line in lines),
    ]


def percent(share: float | None) -> str:
    """`0.52 %`; a dash for what is not known."""
    return "–" if share is None else f"{100 * share:.2f} %"


if __name__ == "__main__":
    raise SystemExit(main())
