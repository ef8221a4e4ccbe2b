"""A comparison in every format: cut where a host cuts, and never in silence; escaped; facts in words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.diff.conftest import Project
from tirbench import reviewing
from tirbench.diff import exit_code
from tirbench.model import (
    Change,
    Diff,
    PinChange,
    PinnedRow,
    Weakening,
)
from tirbench.report import diffs

HOSTILE = "<script>@everyone | `x` ::error::%0A"


def pinned(time_us: float, **changes: Any) -> PinnedRow:
    row = PinnedRow(
        case="c",
        implementation="k",
        midmean_us=time_us,
        band=0.01,
        anchor_us=time_us,
        problem="p",
        protocol="q",
        code="sass:1",
        source="s",
        env="e",
        unit="u",
    )
    return replace(row, **changes)


def large(count: int) -> Diff:
    """So many weakenings, changes and moved rows."""
    return Diff(
        base="main",
        head="work",
        weakenings=tuple(
            Weakening(
                workload=f"w{i}", subject="output y", text=f"rtol up {HOSTILE}", place="w.toml:3"
            )
            for i in range(count)
        ),
        changes=tuple(
            Change(
                workload=f"w{i}", kind="contract", subject="output y", what="rtol", old="1", new="2"
            )
            for i in range(count)
        ),
        pins=tuple(
            PinChange(
                workload=f"w{i}",
                hardware="nvidia-h200",
                path="b.toml",
                case=f"c{i}",
                implementation="k",
                old=pinned(4.0),
                new=pinned(4.0 + i / count),
                verdict="slower",
            )
            for i in range(1, count)
        ),
        rows=count,
    )


@pytest.mark.parametrize(("form", "limit"), [("markdown", 65_536), ("summary", 1_048_576)])
@pytest.mark.parametrize("count", [3, 500, 6000])
def test_markdown_fits_its_place_and_counts_the_rest(form: str, limit: int, count: int) -> None:
    text = diffs.render(large(count), form, code=1)
    assert len(text.encode()) <= limit
    assert text.startswith(f"{diffs.MARKER}\n### ❌ {count} weakenings without a reason")
    shown = text.count("rtol up") + text.count("1 → 2") + text.count("| w")
    left = re.search(r"\*(\d+) more lines? did not fit", text)
    whole = 3 * count - 1
    assert shown + (int(left[1]) if left else 0) == whole
    assert text.count("<details>") == text.count("</details>")


def test_nothing_that_a_name_holds_is_markdown_or_a_command() -> None:
    text = diffs.render(large(2), "markdown", code=1)
    assert "<script>" not in text
    assert "@everyone" not in text.replace("\\@everyone", "")
    lines = diffs.annotate(large(2))
    assert all(line.startswith("::error file=w.toml,line=3,title=weakening::") for line in lines)
    assert all("%250A" in line for line in lines)


def test_annotations_stay_below_the_limit_and_say_how_many_are_left() -> None:
    lines = diffs.annotate(large(50))
    assert len(lines) == 10
    assert lines[-1] == "::error::41 more findings in the summary"


def test_the_row_that_left_its_band_the_furthest_stands_first() -> None:
    text = diffs.render(large(5), "text", code=1)
    rows = re.findall(r"w(\d)/c\d/k", text)
    assert rows == ["4", "3", "2", "1"]


def test_a_comparison_without_a_difference_is_a_count(project: Project) -> None:
    diff = reviewing.diff(project.root, "main")
    text = diffs.render(diff, "text", code=exit_code(diff))
    assert text.splitlines()[0] == "9 of 9 rows unchanged"
    assert text.splitlines()[2] == "next: nothing"
    assert len(text.splitlines()) == 3
