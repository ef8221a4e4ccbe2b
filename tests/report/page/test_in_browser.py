"""The page in a real browser: nothing in the console, filters, sorting, the keyboard, a phone, the dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.page.browser import Browser, browser, program
from tirbench.report.page import Page, render

pytestmark = pytest.mark.skipif(program() is None, reason="needs Chromium")

SHOWN = "[...document.querySelectorAll('tr.row:not([hidden]) .more')].map((one) => one.textContent)"


@pytest.fixture(scope="module")
def file(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(page), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture
def tab(started: Browser, file: Path) -> Iterator[Browser]:
    started.size(1200, 900)
    started.open(file)
    yield started
    assert started.console == []


def choose(tab: Browser, name: str, value: str) -> None:
    tab.run(
        f"{{ const one = document.getElementById('{name}'); one.value = '{value}';"
        " one.dispatchEvent(new Event('input')); }"
    )


def test_all_rows_are_there_at_first(tab: Browser) -> None:
    assert len(tab.run(SHOWN)) == 7
    assert tab.run("document.getElementById('shown').textContent") == "7 of 7 rows"


def test_filters_narrow_the_rows_and_say_how_many_are_left(tab: Browser) -> None:
    choose(tab, "kind", "timed")
    assert tab.run(SHOWN) == ["fast", "slow", "torch", "memory"]
    choose(tab, "role", "kernel")
    choose(tab, "find", "N4096 slower")
    assert tab.run(SHOWN) == ["slow"]
    assert tab.run("document.getElementById('shown').textContent") == "1 of 7 rows"
    choose(tab, "find", "")
    choose(tab, "moved", "same")
    assert tab.run(SHOWN) == ["fast"]


def test_columns_sort_both_ways_with_missing_numbers_last(tab: Browser) -> None:
    head = "document.querySelector('thead [data-key=\"0\"]')"
    tab.run(f"{head}.click()")
    assert tab.run(SHOWN)[:4] == ["fast", "torch", "slow", "memory"]
    tab.run(f"{head}.click()")
    assert tab.run(SHOWN)[:4] == ["memory", "slow", "torch", "fast"]
    assert tab.run(f"{head}.parentElement.ariaSort") == "descending"


def test_a_row_opens_by_the_keyboard_and_keeps_open_while_sorting(tab: Browser) -> None:
    tab.run("document.querySelector('tr.row .more').focus()")
    tab.press("Enter")
    opened = "[...document.querySelectorAll('tr.detail:not([hidden])')].map((one) => one.id)"
    (name,) = tab.run(opened)
    tab.run("document.querySelector('thead [data-key=\"0\"]').click()")
    assert tab.run(opened) == [name]
    assert tab.run(f"document.getElementById('{name}').previousElementSibling.id + '-more'") == name


def test_a_dot_of_the_roofline_leads_to_its_row(tab: Browser) -> None:
    tab.run(
        "document.querySelector('.charts svg a').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    tab.run("location.hash = document.querySelector('.charts svg a').getAttribute('href')")
    tab.run("follow()")
    assert tab.run("document.querySelectorAll('tr.detail:not([hidden])').length") == 1


def test_a_count_on_top_shows_its_rows_and_all_of_them_again(tab: Browser) -> None:
    slower = "document.querySelector('.chip[data-value=slower]')"
    tab.run(f"{slower}.click()")
    assert tab.run(SHOWN) == ["slow"]
    assert tab.run(f"{slower}.getAttribute('aria-pressed')") == "true"
    tab.run(f"{slower}.click()")
    assert len(tab.run(SHOWN)) == 7
    assert tab.run(f"{slower}.getAttribute('aria-pressed')") == "false"


def test_a_name_is_written_once_where_its_rows_stand_together(tab: Browser) -> None:
    seen = (
        "[...document.querySelectorAll('tr.row:not([hidden]) td.case span')]"
        ".filter((one) => one.offsetParent !== null).map((one) => one.textContent)"
    )
    assert tab.run(seen) == ["n4096", "n8192"]
    choose(tab, "find", "n8192")
    assert tab.run(seen) == ["n8192"]
    choose(tab, "find", "")
    tab.run("document.querySelector('thead [data-key=\"0\"]').click()")
    assert tab.run(seen) == [
        "n4096",
        "n8192",
        "n4096",
    ]  # the slowest stands last but those without a time


def test_a_workload_at_a_glance_shows_its_rows_and_a_mark_opens_one(tab: Browser) -> None:
    assert tab.run("document.querySelectorAll('.glance .strip a').length") == 4
    tab.run("document.querySelector('.glance a.name').click()")
    assert tab.run("document.getElementById('workload').value") == "double"
    tab.run("document.querySelector('.glance .strip a.kernel').click()")
    tab.run("follow()")
    assert tab.run("document.querySelectorAll('tr.detail:not([hidden])').length") == 1


def test_every_label_on_a_phone_stands_above_its_value(tab: Browser, file: Path) -> None:
    tab.size(390, 844)
    tab.open(file)
    heights = "[...document.querySelectorAll('tr.row')].map((one) => one.offsetHeight)"
    assert max(tab.run(heights)) < 400
    assert tab.run("getComputedStyle(document.querySelector('tr.row')).display") == "grid"


@pytest.mark.parametrize("width", [375, 390, 800, 1200])
def test_nothing_is_wider_than_the_window(tab: Browser, file: Path, width: int) -> None:
    tab.size(width, 800)
    tab.open(file, "#row-double-n4096-fast")
    assert tab.run("document.documentElement.scrollWidth") <= width


def test_the_dark_page_is_dark(tab: Browser, file: Path) -> None:
    tab.size(1200, 900, dark=True)
    tab.open(file)
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
