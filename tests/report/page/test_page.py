"""The page as text: whole, escaped, the same every time."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.report.page.conftest import HOSTILE
from tirbench.model import Roofs
from tirbench.report.page import Page, chips, glance, render, rooflines, spread, verdict
from tirbench.report.page.rows import lines

VOID = {"meta", "input", "br", "link"}


class Balance(HTMLParser):
    """Every element is closed, every id there once, and what is linked to is there."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append((tag, given))
        if tag not in VOID:
            self.open.append(tag)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if (given.get("href") or "").startswith("#"):
            self.links.append(str(given["href"])[1:])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html(page: Page) -> str:
    return render(page)


@pytest.fixture(scope="module")
def parsed(html: str) -> Balance:
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    return parser


def test_ids_are_unique_and_every_link_leads_somewhere(parsed: Balance) -> None:
    assert len(parsed.ids) == len(set(parsed.ids))
    assert set(parsed.links) <= set(parsed.ids)


def test_no_name_becomes_an_element(parsed: Balance, html: str) -> None:
    assert not [tag for tag, _ in parsed.elements if tag == "img"]
    assert not [name for _, given in parsed.elements for name in given if name.startswith("on")]
    assert html.count("<script>") == html.count("</script>") == 1
    assert HOSTILE not in html


def test_nothing_is_fetched_from_anywhere(parsed: Balance, html: str) -> None:
    sources = [
        given[name] or ""
        for _, given in parsed.elements
        for name in ("src", "href", "xlink:href")
        if name in given
    ]
    assert all(source.startswith("#") for source in sources)
    assert "url(" not in html
    assert "default-src 'none'" in html


def test_the_verdict_counts_what_is_wrong_and_what_moved(page: Page) -> None:
    assert verdict(page) == (
        "1 wrong · 1 failed · 1 slower · 1 same · 2 without a pin to compare with"
    )


def test_what_is_wrong_is_counted_before_what_moved_and_before_what_is_as_it_was(
    page: Page,
) -> None:
    counts = [(one.word, one.count) for one in chips(lines(page))]
    assert counts == [("wrong", 1), ("failed", 1), ("slower", 1), ("same", 1), ("skipped", 1)]


def test_a_glance_holds_every_row_that_has_a_roof_with_kernels_drawn_last(page: Page) -> None:
    (one,) = glance(page, lines(page))
    assert [mark.role for mark in one.marks] == ["reference", "kernel", "kernel", "kernel"]
    assert one.best == "50 %"
    assert all(0 <= mark.left <= 100 for mark in one.marks)


def test_a_row_says_how_far_it_is_from_its_pin_in_what_that_allows(page: Page) -> None:
    deviations = {line.implementation: line.deviation for line in lines(page)}
    assert deviations["fast"] == pytest.approx((10 / 10.05 - 1) / 0.01)
    assert deviations["slow"] == pytest.approx(10.0)
    assert deviations["torch"] is None


def test_the_same_run_gives_the_same_bytes(page: Page, html: str) -> None:
    assert render(page) == html


def test_every_outcome_has_a_row(parsed: Balance, page: Page) -> None:
    rows = [given for tag, given in parsed.elements if tag == "tr" and "data-kind" in given]
    assert len(rows) == len(page.run.outcomes)


def test_each_dtype_is_held_to_its_own_ceiling(page: Page) -> None:
    titles = [one.title for one in rooflines(page)]
    assert titles == [
        "bfloat16 matrix products (3 rows)",
        "bandwidth alone: no compute roof is named (1 rows)",
    ]
    assert all(one.chart.startswith("<svg") for one in rooflines(page))


def test_a_run_without_measured_ceilings_has_no_roofline(page: Page) -> None:
    bare = replace(page, run=replace(page.run, roofs=Roofs()))
    assert list(rooflines(bare)) == []
    assert "Rooflines" not in render(bare)


def test_a_ceiling_that_was_not_measured_is_said_to_be_missing(page: Page) -> None:
    run = replace(page.run, roofs=Roofs(copy_gbytes_per_s=4280.0))
    first, _ = rooflines(replace(page, run=run))
    assert "was not measured" in first.note


def test_charts_hold_no_number_that_is_none(html: str) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert not re.search(r"\b(nan|inf|None)\b", drawn)


def test_rare_long_calls_are_counted_and_do_not_press_the_others_together(page: Page) -> None:
    (found,) = page.spreads.values()
    assert found.high_us < 12
    assert found.beyond >= 1
    assert sum(found.counts) + found.beyond == 1001


def test_a_row_without_calls_has_no_distribution() -> None:
    assert spread([]) is None


def test_a_long_harness_is_cut_and_says_where_the_rest_is(page: Page) -> None:
    long = replace(page, harnesses=(("double.py", "x = 1\n" * 20_000),))
    assert (
        "Cut here: the whole lies in .tirbench/runs/20250131-142503-7f3a1c/harness/double.py"
        in (render(long))
    )
