"""Run good kernels with four bad ones among them, and hold every good row against a run without.

    python -m benchmarks.planted --out benchmarks/results/planted_h200.md
    python -m benchmarks.planted --whole --limit-s 900 --out benchmarks/results/planted_suite_h200.md

Bad: an illegal address, a device assert, an endless kernel, and one that asks for more memory than there
is. The good rows stand before and after each of them in one case, and in workloads before and after theirs:
in two of the suite, or with `--whole` in all of it. Two minutes at most without `--whole`: what is then
not measured is interrupted, and the page says what was not reached. Needs a CUDA device; `--device cpu`
goes the same way with rows that are verified or skipped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.runs import ENDING_S, ROOT, Ran, compared, executed, kept
from tirbench import store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PLANTED: Final = "benchmarks/planted/planted.toml"
BEFORE: Final = ("workloads/vector_add.toml",)
AFTER: Final = ("workloads/softmax.toml",)
EXPECTED: Final = {
    "illegal_address": ("verify", "raised", "illegal memory access"),
    "device_assert": ("verify", "raised", "device-side assert"),
    "endless": ("verify", "hung", "hung: no progress in 10 s"),
    "out_of_memory": ("verify", "out_of_memory", "out of memory"),
}
"""Stage, cause and words of the row of each planted kernel."""

LIMIT_S: Final = 115.0
CLEAN_SHARE: Final = 0.5
"""Of the time for the run without faults; the other waits for a deadline and replaces workers."""


def clean_of(key: str, clean: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The row of the clean run that measured the same: the faults change nothing of good kernels."""
    workload, case, implementation = key.split("/")
    if workload == "planted" and case not in {"none_before", "none_after"}:
        case = "none_before"
    return clean.get(f"{workload}/{case}/{implementation}")


def judged(key: str, row: dict[str, Any], clean: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """`same`, `bad` (as expected), without a time in both runs, or what must not be; and why."""
    workload, case, implementation = key.split("/")
    if (workload, implementation) == ("planted", "planted") and case in EXPECTED:
        stage, cause, words = EXPECTED[case]
        said = f"{row.get('cause')} in {row.get('stage')}: {row.get('reason', row['type'])}"
        right = row["type"] == "failed" and (row["stage"], row["cause"]) == (stage, cause)
        return ("bad" if right and words in row["reason"] else "NOT AS EXPECTED"), said
    was = clean_of(key, clean)
    if was is None:
        return "NOT COMPARED", "not reached in the clean run"
    if row["type"] != "timed" or was["type"] != "timed":
        equal = was["type"] == row["type"]
        said = str(row.get("reason", row.get("untimed", row["type"])))
        return (row["type"] if equal else "LOST"), said  # skipped or failed in both runs
    return compared(row, was)


def confirmed(key: str, planted: Ran, clean: Ran, again: Sequence[Ran]) -> tuple[str, str]:
    """What a row is; one that differs, as fresh workers saw it where they measured it again."""
    kind, said = judged(key, planted.rows[key], clean.rows)
    if kind == "DIFFERENT":
        for run in again:
            if key in run.rows:
                second, after = judged(key, run.rows[key], clean.rows)
                return second, f"{said}; by fresh workers: {after}"
    return kind, said


def page(
    planted: Ran, clean: Ran, again: Sequence[Ran], made_by: str, limit_s: float
) -> Iterator[str]:
    """Every row, and the counts."""
    verdicts = {key: confirmed(key, planted, clean, again) for key in planted.rows}
    yield "# Four bad kernels among good ones"
    yield ""
    kinds = [kind for kind, _ in verdicts.values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "none yet"
    yield f"{planted.facts or clean.facts}. {made_by}"
    yield ""
    yield f"{len(verdicts)} rows: {counts}."
    if clean.seconds and planted.seconds:
        yield (
            f"The run without faults took {clean.seconds:.0f} s, the other {planted.seconds:.0f} s."
        )
    missing = [("clean", key) for key in clean.missing] + [("faults", k) for k in planted.missing]
    if missing:
        shown = ", ".join(f"{key} ({run})" for run, key in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        yield ""
        yield f"NOT REACHED within {limit_s:.0f} s: {shown}{more}."
    yield ""
    yield "| row | verdict | |"
    yield "|---|---|---|"
    for key, (kind, said) in verdicts.items():
        yield f"| {key} | {kind} | {said.replace('|', '/')} |"


def around(*, whole: bool) -> tuple[Sequence[str], Sequence[str]]:
    """The files before and after the planted one."""
    if not whole:
        return BEFORE, AFTER
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "workloads").glob("*.toml"))
    return files[: len(files) // 2], files[len(files) // 2 :]


def main() -> int:
    """Run both and print; 1 where a good row is another or a bad one not as expected, 3 if time ran out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--whole", action="store_true", help="among every workload of the suite")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="for both runs together")
    parser.add_argument(
        "--runs",
        nargs="+",
        metavar="RUN",
        help="judge runs that are kept: the clean one, the other, and what measured its rows again",
    )
    parser.add_argument(
        "--made-by",
        default=f"Made by `python -m benchmarks.planted {' '.join(sys.argv[1:])}`.",
        help="of kept runs: what made them",
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("options", nargs="*", help="of `tirbench exec`, after --")
    asked = parser.parse_args()
    end = time.monotonic() + asked.limit_s - ENDING_S
    before, after = around(whole=asked.whole)
    options = ["--device", asked.device, *asked.options]

    again: list[Ran] = []

    def show(planted: Ran, clean: Ran) -> str:
        text = "\n".join(page(planted, clean, again, asked.made_by, asked.limit_s)) + "\n"
        if asked.out is not None:
            store.write(asked.out, text)
        return text

    if asked.runs:
        clean, planted, *again = map(kept, asked.runs)
    else:
        share_s = CLEAN_SHARE * asked.limit_s
        clean = executed([*before, f"{PLANTED}::none_*", *after], options, share_s)
        show(Ran({}, (), 0.0), clean)
        planted = executed([*before, PLANTED, *after], options, end - time.monotonic())
    print(show(planted, clean), end="")
    verdicts = {confirmed(key, planted, clean, again)[0] for key in planted.rows}
    if verdicts - {"same", "bad", "skipped", "verified", "NOT COMPARED"}:
        return 1
    return 3 if clean.missing or planted.missing else 0


if __name__ == "__main__":
    sys.exit(main())
