"""A run against its pins, in a terminal of any width, with and without colours."""

from __future__ import annotations

import pytest

from tests.report.page.conftest import page
from tirbench.report import brief
from tirbench.report.page import Page

__all__ = ["page"]  # the page's fixture


def test_the_verdict_stands_first_and_every_row_has_a_line(page: Page) -> None:
    first, *rest = brief.render(page, width=120, color=False).splitlines()
    assert first.startswith("1 wrong · 1 failed · 1 slower · 1 same")
    for name in ("fast", "slow", "torch", "memory", "bad", "absent"):
        assert any(line.startswith(f"  {name}") for line in rest)


def test_without_colours_there_is_no_escape_and_the_bars_stay(page: Page) -> None:
    text = brief.render(page, width=120, color=False)
    assert "\x1b" not in text
    assert "█████" in text


def test_nothing_is_wider_than_the_terminal(page: Page) -> None:
    for width in (60, 100):
        text = brief.render(page, width=width, color=False)
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0, " " * 10), (0.5, "█████     "), (0.0125, "▏" + " " * 9), (1.4, "█" * 10)],
)
def test_a_bar_is_drawn_in_eighths_and_never_overflows(share: float, shown: str) -> None:
    assert brief.bar(share) == shown
