"""Does tirbench time what it says it times? Its timers against Triton's, the public protocol, and each other.

    python -m benchmarks.fidelity --out benchmarks/results

Twelve closures from 1 µs to 2 ms, at least 60 alternating pairs each, in three worker processes with one
profiler family each and their tensors at the same places of an arena. Prints a table of ratios with
intervals and pass or fail, and writes `fidelity.json` and `fidelity.md`. Ends in time: what could not be
measured is listed as such. Exit: 0 all passed, 1 something failed, 3 nothing or too little was measured.

    python -m benchmarks.fidelity --onto benchmarks/results/fidelity_h200.json --without cudagraph_proton ...

adds to an earlier run what it lacks, and measures again a reading whose code has changed since.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

from benchmarks import fidelity_readings

PAIRS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two readings of one closure.

    With a target they must agree: within `share` from `border_us` up, within `floor_us` below. Without
    one the line only informs, and `why` says what differs between the two by their nature.
    """

    ours: str
    theirs: str
    share: float = math.inf
    floor_us: float = math.inf
    border_us: float = math.inf
    why: str = ""


COMPARISONS: Final = (
    Comparison(ours="event", theirs="do_bench", share=0.01, floor_us=0.3, border_us=50),
    Comparison(ours="proton", theirs="public_proton", share=0.005, floor_us=0.2, border_us=20),
    Comparison(
        ours="cudagraph_proton",
        theirs="public_cudagraph_proton",
        share=0.005,
        floor_us=0.2,
        border_us=20,
    ),
    Comparison(ours="kineto_sum", theirs="proton", share=0.005, floor_us=0.2, border_us=20),
    Comparison(
        ours="cudagraph_proton",
        theirs="proton",
        why="in a graph the kernel starts right behind the flush, a launch comes later",
    ),
    Comparison(
        ours="event_beside",
        theirs="kineto_span",
        why="the span is given the cost of an event pair that the empty kernel shows, which a busy GPU "
        "partly hides",
    ),
)
EVENT_OVER_SPAN: Final = COMPARISONS[-1]

# The most that an empty kernel may read.
EMPTY_US: Final = {"event": 8.0, "proton": 2.0, "kineto_span": 2.0}

# Joining a stream takes time after the last activity, which events see and a span does not.
JOINED: Final = frozenset({"side_stream"})

# A closure that a reading refused so often is not asked again.
REFUSALS: Final = 3

# A worker that answers nothing for so long is given up.
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table."""

    closure: str
    ours: str
    theirs: str
    pairs: int
    ours_us: float
    theirs_us: float
    ratio: float
    low: float
    high: float
    difference_us: float
    verdict: str


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the two files")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--seconds", type=float, default=300.0, help="stop measuring after this")
    parser.add_argument("--readings", type=Path, help="a fidelity.json: write its table again")
    parser.add_argument("--onto", type=Path, help="a fidelity.json: measure what it lacks")
    parser.add_argument(
        "--without", action="append", default=[], help="a reading of it to be measured again"
    )
    arguments = parser.parse_args()
    earlier = arguments.readings or arguments.onto
    kept = json.loads(earlier.read_text(encoding="utf-8")) if earlier else {}
    facts, readings = kept.get("facts", {}), kept.get("readings", {})
    if arguments.readings is None:
        if not _has_gpu():
            print("fidelity: torch finds no CUDA device", file=sys.stderr)
            return 3
        began, before = time.monotonic(), facts
        facts = measure(arguments.pairs, arguments.seconds, forgotten(readings, arguments.without))
        facts["seconds"] = round(time.monotonic() - began)
        facts["date"] = datetime.now(timezone.utc).date().isoformat()
        facts["command"] = "python3 -m benchmarks.fidelity " + " ".join(sys.argv[1:])
        if before:
            facts["added to"] = "; ".join(f"{name} {before[name]}" for name in ("date", "command"))
    lines = compare(readings)
    text = markdown(facts, lines, claims(readings), refusals(readings))
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "fidelity.md").write_text(text, encoding="utf-8")
    document = {"facts": facts, "lines": [asdict(line) for line in lines], "readings": readings}
    (arguments.out / "fidelity.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    if not lines or min(line.pairs for line in lines) < arguments.pairs:
        return 3
    failed = [line for line in lines if line.verdict == "FAIL"]
    return 1 if failed or any("FAIL" in line for line in claims(readings)) else 0


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


Readings: TypeAlias = dict[str, dict[str, list[float | str | None]]]
"""By closure and reading: µs, why there is none, or nothing where it was forgotten."""
Channels: TypeAlias = dict[str, tuple[Any, Any]]


def forgotten(readings: Readings, names: list[str]) -> Readings:
    """The same with nothing in the place of these readings, so that the others stay side by side."""
    for found in readings.values():
        for name in names:
            found[name] = [None] * len(found.get(name, []))
    return readings


def lacks(found: dict[str, list[float | str | None]], family: str, pairs: int) -> bool:
    """Whether a closure has fewer than so many numbers of a family; one refused three times has none."""
    for name in fidelity_readings.READINGS[family]:
        values = found.get(name, [])
        if sum(isinstance(value, str) for value in values) < REFUSALS and (
            sum(isinstance(value, float) for value in values) < pairs
        ):
            return True
    return False


def measure(pairs: int, seconds: float, readings: Readings) -> dict[str, Any]:
    """Add every reading that a closure lacks, pair after pair; workers take turns, none disturbs another.

    Returns:
        What it was measured on.
    """
    begin = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    channels: Channels = {}
    workers = []
    for family in fidelity_readings.READINGS:
        asked, requests = spawn.Pipe(duplex=False)
        answers, answered = spawn.Pipe(duplex=False)
        process = spawn.Process(
            target=fidelity_readings.worker, args=(family, asked, answered), daemon=True
        )
        process.start()
        workers.append(process)
        asked.close()  # held by the worker alone, so that its death ends our waiting
        answered.close()
        channels[family] = (requests, answers)
    greetings = {family: _greeting(family, answers) for family, (_, answers) in channels.items()}
    facts = dict(next(iter(greetings.values())))
    addresses = {greeting["address"] for greeting in greetings.values()}
    lengths_us = facts.pop("lengths_us")
    facts["arena"] = "one address" if len(addresses) == 1 else f"{len(addresses)} addresses"
    del facts["address"]
    for number in range(pairs):
        for name in lengths_us:
            found = readings.setdefault(name, {})
            if time.monotonic() - begin > seconds:
                break
            backwards = number % 2 == 1
            for family in sorted(channels, reverse=backwards):
                if lacks(found, family, pairs):
                    for reading, value in _ask(channels, family, name, backwards).items():
                        found.setdefault(reading, []).append(value)
    for requests, _ in channels.values():
        with suppress(OSError):  # it is dead already
            requests.send(None)
    for process in workers:
        process.join(10)
        process.kill()
    return facts


def _greeting(family: str, answers: Any) -> dict[str, Any]:
    """What a worker says when it is ready."""
    try:
        if answers.poll(2 * PATIENCE_S):
            greeting: dict[str, Any] = answers.recv()
            return greeting
    except EOFError:
        pass
    raise SystemExit(f"fidelity: the {family} worker did not start; its error is above")


def _ask(channels: Channels, family: str, name: str, backwards: bool) -> dict[str, float | str]:
    """The readings of one family; a worker that is dead or silent is given up, once and for all."""
    requests, answers = channels[family]
    try:
        requests.send((name, backwards))
        if answers.poll(PATIENCE_S):
            found: dict[str, float | str] = answers.recv()
            return found
        reason = f"silent for {PATIENCE_S:g} s"
    except (EOFError, OSError) as error:
        reason = f"dead: {type(error).__name__}"
    del channels[family]
    return {next(iter(fidelity_readings.READINGS[family])): f"worker {family} is {reason}"}


def compare(readings: Readings) -> list[Line]:
    """All comparisons of all closures that both sides can time."""
    event_cost_us = _event_cost_us(readings)
    return [
        line
        for comparison in COMPARISONS
        for name, found in readings.items()
        if not (comparison is EVENT_OVER_SPAN and name in JOINED)
        and (line := _line(name, comparison, found, event_cost_us)) is not None
    ]


def _event_cost_us(readings: Readings) -> float:
    """What a pair of events reads beyond the span of an empty kernel."""
    found = readings["empty"]
    pairs = _numbers(found, EVENT_OVER_SPAN.ours, EVENT_OVER_SPAN.theirs)
    return median(ours - theirs for ours, theirs in pairs) if pairs else 0.0


def _numbers(
    found: dict[str, list[float | str | None]], ours: str, theirs: str
) -> list[tuple[float, float]]:
    return [
        (a, b)
        for a, b in zip(found.get(ours, []), found.get(theirs, []), strict=False)
        if isinstance(a, float) and isinstance(b, float)
    ]


def _line(
    name: str,
    comparison: Comparison,
    found: dict[str, list[float | str | None]],
    event_cost_us: float,
) -> Line | None:
    pairs = _numbers(found, comparison.ours, comparison.theirs)
    if not pairs:
        return None
    if comparison is EVENT_OVER_SPAN:
        pairs = [(ours, theirs + event_cost_us) for ours, theirs in pairs]
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    low, high = median_interval(ratios)
    theirs_us = median(theirs for _, theirs in pairs)
    difference_us = median(ours - theirs for ours, theirs in pairs)
    if comparison.why:
        verdict = "–"
    elif theirs_us >= comparison.border_us:
        verdict = "pass" if abs(median(ratios) - 1) <= comparison.share else "FAIL"
    else:
        verdict = "pass" if abs(difference_us) <= comparison.floor_us else "FAIL"
    return Line(
        closure=name,
        ours=comparison.ours,
        theirs=comparison.theirs,
        pairs=len(pairs),
        ours_us=median(ours for ours, _ in pairs),
        theirs_us=theirs_us,
        ratio=median(ratios),
        low=low,
        high=high,
        difference_us=difference_us,
        verdict=verdict,
    )


def median_interval(ordered: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics (binomial, normal approximation)."""
    count = len(ordered)
    reach = 1.96 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return ordered[low], ordered[high]


def claims(readings: Readings) -> list[str]:
    """What an empty kernel reads, against the most it may; and that nobody invents a number for a copy."""
    found = []
    for reading, limit_us in EMPTY_US.items():
        values = [value for value in readings["empty"].get(reading, []) if isinstance(value, float)]
        if values:
            verdict = "pass" if median(values) < limit_us else "FAIL"
            found.append(
                f"empty kernel by {reading}: {median(values):.2f} µs (< {limit_us:g}) {verdict}"
            )
    copy = fidelity_readings.INVISIBLE_TO_PROTON
    numbers = [value for value in readings[copy].get("proton", []) if isinstance(value, float)]
    verdict = "FAIL" if numbers else "pass"
    return [*found, f"a copy by proton: {len(numbers)} numbers (0: it cannot see copies) {verdict}"]


def refusals(readings: Readings) -> list[str]:
    """Readings that were refused, with the reason once and how often."""
    found = []
    for name, by_reading in readings.items():
        for reading, values in by_reading.items():
            errors = [value for value in values if isinstance(value, str)]
            if errors:
                found.append(f"{name} by {reading}: refused {len(errors)} times: {errors[0]}")
    return found


def markdown(
    facts: dict[str, Any], lines: list[Line], limits: list[str], refused: list[str]
) -> str:
    """The report."""
    judged = [line for line in lines if line.verdict != "–"]
    failed = sum(line.verdict == "FAIL" for line in judged)
    parts = [
        "# Fidelity of the timers",
        "",
        ", ".join(f"{key} {value}" for key, value in facts.items()),
        "",
        f"{len(judged) - failed} of {len(judged)} comparisons with a target pass.",
        "`ratio` is ours / theirs, the median over alternating pairs with its 95 % interval;",
        "below the border of a comparison the difference counts.",
        "",
        "| ours | theirs | closure | pairs | ours µs | theirs µs | ratio | interval | diff µs | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    parts += [
        f"| {line.ours} | {line.theirs} | {line.closure} | {line.pairs} | {line.ours_us:.3f} "
        f"| {line.theirs_us:.3f} | {line.ratio:.4f} | {line.low:.4f} – {line.high:.4f} "
        f"| {line.difference_us:+.3f} | {line.verdict} |"
        for line in lines
    ]
    informs = [f"{one.ours} and {one.theirs}: {one.why}" for one in COMPARISONS if one.why]
    for title, items in (("Without a target", informs), ("Limits", limits), ("Refused", refused)):
        if items:
            parts += ["", f"## {title}", "", *(f"* {item}" for item in items)]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
