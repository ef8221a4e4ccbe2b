"""`benchmarks/agreement.py`: what it calls equal, unequal, and not comparable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.agreement import Compared, compare, report
from tirbench.model import CodeFacts, Compilation, CompiledSuite, PinnedRow, Row

HERE = {"triton": "3.6.0", "ptxas": "12.8", "nvrtc": "13.5", "tirx": "0.1"}
PIN = PinnedRow(
    case="c",
    implementation="k",
    midmean_us=4.0,
    band=0.01,
    anchor_us=4.0,
    problem="p",
    protocol="q",
    code="sass:1",
    source="s",
    env="driver 580 · torch 2.11.0 · triton 3.6.0 · tirx 0.1",
    unit="u",
)
ROW = Row(workload="w", case="c", implementation="k", role="kernel")


def compiled(digest: str) -> Compilation:
    return Compilation(row=ROW, arch="sm_90", code=CodeFacts(digest=digest))


@pytest.mark.parametrize(
    ("kind", "digest", "triton", "answer"),
    [
        ("triton", "sass:1", "3.6.0", "equal"),
        ("triton", "sass:1", "3.7.1", "equal"),  # equal is equal, whatever compiled it
        ("triton", "sass:2", "3.6.0", "unequal"),
        ("triton", "sass:2", "3.7.1", "not comparable"),
        ("cuda", "sass:2", "3.6.0", "not comparable"),
        ("cuda", "sass:1", "3.6.0", "equal"),
    ],
)
def test_unequal_digests_mean_something_only_under_one_compiler(
    kind: str, digest: str, triton: str, answer: str
) -> None:
    found, why = compare(PIN, compiled(digest), [kind], {**HERE, "triton": triton})
    assert found == answer
    assert bool(why) == (answer != "equal")


def test_what_a_library_launches_and_what_does_not_compile_say_why() -> None:
    assert compare(PIN, None, [], HERE)[1].startswith("launches what a library compiled")
    broken = Compilation(row=ROW, arch="sm_90", failure="OutOfResources: shared memory")
    assert compare(PIN, broken, ["triton"], HERE) == (
        "not comparable",
        "not compiled here: OutOfResources: shared memory",
    )
    by_source = replace(PIN, code="src:1")
    assert compare(by_source, compiled("sass:2"), ["triton"], HERE)[0] == "not comparable"


def test_the_page_counts_by_launch_kind_and_names_what_is_unequal() -> None:
    found = [
        Compared(kind="Triton", row="w/a/k", answer="equal"),
        Compared(kind="Triton", row="w/b/k", answer="unequal", why="sass:1 there, sass:2 here"),
        Compared(kind="TIRx", row="w/c/k", answer="not comparable", why="tirx 1 there, 2 here"),
    ]
    suite = CompiledSuite(compilers=(("triton", "3.6.0"),), compilations=())
    text = report(found, suite, "nvidia-h200", "sm_90", ["triton 3.6.0"])
    assert "| Triton | 2 | 1 | 1 | 0 |" in text
    assert "| **all** | 3 | 1 | 1 | 1 |" in text
    assert "- `w/b/k`: sass:1 there, sass:2 here" in text
    assert "- 1: tirx 1 there, 2 here" in text
