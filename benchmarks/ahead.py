"""What building ahead saves, and that it changes no number: cases from cold caches, without it and with.

    python -m benchmarks.ahead workloads/*.toml --limit-s 560 --out benchmarks/results/ahead_h200.md

Each run has empty caches of Triton and of torch.compile. Besides the times of the rows, the machine code of
every row must be the same. Needs a CUDA device and four cores; `--device cpu` goes the same way and builds
nothing ahead.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.runs import ENDING_S, Ran, compared, executed
from tirbench import store
from tirbench.ahead import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S: Final = 560.0


def cold(files: list[str], options: list[str], limit_s: float, *, ahead: bool) -> Ran:
    """A run that finds nothing compiled."""
    with tempfile.TemporaryDirectory() as caches:
        environ = {
            VARIABLE: str(int(ahead)),
            "TRITON_CACHE_DIR": f"{caches}/triton",
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        }
        return executed(files, options, limit_s, environ)


def page(without: Ran, with_: Ran | None) -> Iterator[str]:
    """Both, and every row that is not the same."""
    yield "# Building ahead, from cold caches"
    yield ""
    yield "| | seconds | rows | not reached | built ahead | found by workers | compiled by workers |"
    yield "|---|---:|---:|---:|---|---:|---|"
    for name, ran in (("without", without), ("with", with_)):
        if ran is None:
            continue
        built = ran.ahead
        cells = ["nothing", "–", "–"]
        if built is not None:
            what = f"{built.compiled} kernels of {built.cases} cases in {built.seconds:.1f} s"
            cells = [
                f"{what}, {built.failed} failed, {built.replaced} replaced",
                str(built.found),
                f"{built.late} in {built.late_seconds:.1f} s",
            ]
        counts = [f"{ran.seconds:.0f}", str(len(ran.rows)), str(len(ran.missing))]
        yield f"| {name} | {' | '.join(counts + cells)} |"
    if with_ is None:
        return
    timed = {
        key: (row, without.rows[key])
        for key, row in with_.rows.items()
        if row["type"] == "timed" and without.rows.get(key, {}).get("type") == "timed"
    }
    verdicts = {key: compared(*pair) for key, pair in timed.items()}
    codes = {
        key: [(one["code"] or {}).get("digest") for one in pair] for key, pair in timed.items()
    }
    known = {key: pair for key, pair in codes.items() if all(pair)}
    other = [key for key, (new, old) in known.items() if new != old]
    ratios = [
        row["estimate"]["midmean_us"] / was["estimate"]["midmean_us"] for row, was in timed.values()
    ]
    yield ""
    yield (
        f"{len(timed)} rows were timed in both: "
        f"{sum(kind == 'same' for kind, _ in verdicts.values())} are the same; "
        f"median ratio {statistics.median(ratios or [1.0]):.4f}. Machine code is known of {len(known)}, "
        f"and other in {len(other)}."
    )
    yield ""
    for key, (kind, said) in verdicts.items():
        if kind != "same" or key in other:
            yield f"- {key}: {kind}, {said}{', other machine code' if key in other else ''}"


def main() -> int:
    """Run both and print; 1 where machine code differs, 3 where the time was up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="for both runs together")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    end = time.monotonic() + asked.limit_s - 2 * ENDING_S
    options = ["--device", asked.device]

    def show(without: Ran, with_: Ran | None) -> str:
        text = "\n".join(page(without, with_)) + "\n"
        if asked.out is not None:
            store.write(asked.out, text)
        return text

    without = cold(asked.files, options, asked.limit_s * 0.52, ahead=False)
    show(without, None)
    with_ = cold(asked.files, options, end - time.monotonic(), ahead=True)
    text = show(without, with_)
    print(text, end="")
    if "other machine code" in text:
        return 1
    return 3 if without.missing or with_.missing else 0


if __name__ == "__main__":
    sys.exit(main())
