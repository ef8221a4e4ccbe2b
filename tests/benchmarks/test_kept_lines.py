"""The page of `benchmarks/kept_lines.py`, from times made by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.kept_lines import FIRST, markdown


def document(**changed: Any) -> dict[str, Any]:
    return {
        "date": "2026-11-30",
        "command": "python -m benchmarks.kept_lines",
        "device": "NVIDIA H200",
        "versions": {"torch": "2.11.0"},
        "l2_mib": 60.0,
        "calls": 300,
        "midmean_us": {"4": {FIRST: 3.2, "kept; flush": 2.2}},
        **changed,
    }


def test_every_state_is_compared_with_the_first() -> None:
    text = markdown(document())
    assert "| before the call | 4 MiB |" in text
    assert "| kept; flush | 2.2 (-31.2 %) |" in text
    assert "What flushing takes" not in text  # of a version that did not measure it


def test_what_flushing_takes_stands_below_before_during_and_after_a_profiler() -> None:
    text = markdown(document(costs_us={"zero": [58.04, 5.0, 61.0, 11.0, 60.1, 9.0]}))
    assert "| zero | 58.0 | 5.0 | 61.0 | 11.0 | 60.1 | 9.0 |" in text
