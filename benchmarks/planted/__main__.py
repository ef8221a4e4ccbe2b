"""Run good kernels with four bad ones among them, and hold every good row against a run without.

    python -m benchmarks.planted --out benchmarks/results/planted_h200.md

Bad: an illegal address, a device assert, an endless kernel, and one that asks for more memory than there
is. The good rows stand before and after each of them in one case, and in workloads before and after theirs.
Needs a CUDA device; two minutes at most.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench import store

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
PLANTED: Final = "benchmarks/planted/planted.toml"
BEFORE: Final = "workloads/vector_add.toml"
AFTER: Final = "workloads/softmax.toml"
EXPECTED: Final = {
    "illegal_address": ("verify", "raised", "illegal memory access"),
    "device_assert": ("verify", "raised", "device-side assert"),
    "endless": ("verify", "hung", "hung: no progress in 10 s"),
    "out_of_memory": ("verify", "out_of_memory", "out of memory"),
}
"""Stage, cause and words of the row of each planted kernel."""

SAME: Final = 0.01
"""T of the gate: a row that is nearer than this, or than its own intervals, is the same."""

GOOD: Final = ("before", "after", "torch")


def executed(files: list[str], options: list[str]) -> dict[str, dict[str, Any]]:
    """Outcomes of a run by row."""
    command = [sys.executable, "-m", "tirbench", "exec", *files, "--require", "cuda", *options]
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [*command, "--format", "json"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if not done.stdout.startswith("{"):
        raise SystemExit(f"exit {done.returncode}: no result")
    return {
        f"{o['row']['workload']}/{o['row']['case']}/{o['row']['implementation']}": o
        for o in json.loads(done.stdout)["outcomes"]
    }


def clean_of(key: str, clean: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The row of the clean run that measured the same: the faults change nothing of good kernels."""
    workload, case, implementation = key.split("/")
    if workload == "planted" and case not in {"none_before", "none_after"}:
        case = "none_before"
    return clean.get(f"{workload}/{case}/{implementation}")


def judged(key: str, row: dict[str, Any], clean: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """`same`, `bad` (as expected), or what is not as it must be; and what the row says."""
    _, case, implementation = key.split("/")
    if implementation == "planted" and case in EXPECTED:
        stage, cause, words = EXPECTED[case]
        said = f"{row.get('cause')} in {row.get('stage')}: {row.get('reason', row['type'])}"
        right = row["type"] == "failed" and (row["stage"], row["cause"]) == (stage, cause)
        return ("bad" if right and words in row["reason"] else "NOT AS EXPECTED"), said
    was = clean_of(key, clean)
    if row["type"] != "timed" or was is None or was["type"] != "timed":
        equal = was is not None and was["type"] == row["type"]
        said = str(row.get("reason", row.get("untimed", row["type"])))
        return ("same" if equal else "LOST"), said
    new, old = row["estimate"], was["estimate"]
    ratio = new["midmean_us"] / old["midmean_us"]
    noise = (new["half_width_us"] + old["half_width_us"]) / old["midmean_us"]
    same = abs(ratio - 1) <= max(SAME, noise)
    notes = "; ".join(row["notes"])
    said = f"{new['midmean_us']:.3f} µs, clean {old['midmean_us']:.3f}, ratio {ratio:.4f}"
    return ("same" if same else "DIFFERENT"), said + (f" ({notes})" if notes else "")


def page(
    planted: dict[str, dict[str, Any]], clean: dict[str, dict[str, Any]], seconds: float
) -> Iterator[str]:
    """Every row, and the counts."""
    verdicts = {key: judged(key, row, clean) for key, row in planted.items()}
    yield "# Four bad kernels among good ones"
    yield ""
    kinds = [kind for kind, _ in verdicts.values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    yield f"{len(verdicts)} rows: {counts}. Both runs together took {seconds:.0f} s."
    yield ""
    yield "| row | verdict | |"
    yield "|---|---|---|"
    for key, (kind, said) in verdicts.items():
        yield f"| {key} | {kind} | {said.replace('|', '/')} |"


def main() -> int:
    """Run both and print; 1 where a good row was lost or is another, or a bad one is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("options", nargs="*", help="of `tirbench exec`, after --")
    asked = parser.parse_args()
    start = time.perf_counter()
    clean = executed([BEFORE, f"{PLANTED}::none_*", AFTER], asked.options)
    planted = executed([BEFORE, PLANTED, AFTER], asked.options)
    text = "\n".join(page(planted, clean, time.perf_counter() - start)) + "\n"
    if asked.out is not None:
        store.write(asked.out, text)
    print(text, end="")
    verdicts = [judged(key, row, clean)[0] for key, row in planted.items()]
    return 1 if set(verdicts) - {"same", "bad"} else 0


if __name__ == "__main__":
    sys.exit(main())
