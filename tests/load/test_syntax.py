"""Syntax errors: every one is found in one go, in its own line, and none that is not there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench.diagnostics import Problems
from tirbench.load.read import parse

EXAMPLES = [
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent / "examples").glob("*.toml"))
]
PAIR = re.compile(r"[a-z_]+ = \S.*")
DAMAGE: dict[str, Callable[[str], str]] = {
    "a semicolon": lambda line: f"{line.partition(' #')[0]};",
    "a colon": lambda line: line.replace(" = ", ": ", 1),
    "no value": lambda line: line.partition(" = ")[0] + " =",
    "a bare word": lambda line: line.partition(" = ")[0] + " = oops",
    "an open text": lambda line: line.partition(" = ")[0] + ' = "[oops',
    "a word of Python": lambda line: line.partition(" = ")[0] + " = True # [",
    "no comma": lambda line: line.partition(" = ")[0] + " = [1 2]",
    "no comma in a table": lambda line: line.partition(" = ")[0] + " = { a = 1 b = 2 }",
}


def faults(text: str) -> list[int]:
    """The lines of the syntax errors of a text."""
    problems = Problems("w.toml")
    problems.text = text
    assert (parse(text, problems) is None) == bool(problems)
    return [one.line for one in problems.diagnostics()]


def pairs(text: str) -> list[int]:
    """The lines that hold one key and its whole value, from 0."""
    return [
        index
        for index, line in enumerate(text.split("\n"))
        if PAIR.fullmatch(line) and all(line.count(a) == line.count(b) for a, b in ("[]", "{}"))
    ]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_damaged_line_is_found_and_no_other(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(EXAMPLES))
    lines = text.split("\n")
    chosen = data.draw(st.lists(st.sampled_from(pairs(text)), min_size=1, max_size=6, unique=True))
    for index in chosen:
        lines[index] = DAMAGE[data.draw(st.sampled_from(sorted(DAMAGE)))](lines[index])
    assert faults("\n".join(lines)) == sorted(index + 1 for index in chosen)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a = [\n  1,\n  2\n  3,\n]\nb = oops\n",
            [3, 6],
        ),  # the comma is missing at the end of line 3
        ("a = [\n  1, # one\n  2 # two\n\n  # three\n  3,\n]\n", [3]),
        ("a = [1, 2\nb = 3\nc = oops\n", [1]),  # what follows may be part of the list
        ("a = oops\n[t\nb = oops\n", [1, 2]),  # the keys after a header that is broken are whose?
        ("a = 1\na = 2\na = 3\nb = oops\n", [2, 3, 4]),
        ("a = [\n  oops, [\n  1]\n]\nb = oops\n", [2]),
        ('a = """\nb = oops\n', [1]),
        ("a = 'b\nc = \"d\ne = 1\n", [1, 2]),
        (f"a = oops\n# {'x' * 50_000}\nb = oops\n", [1]),  # too long to be parsed twice
    ],
)
def test_what_comes_after_a_fault_is_said_as_far_as_it_is_sure(
    text: str, expected: list[int]
) -> None:
    assert faults(text) == expected


def test_twenty_are_shown() -> None:
    found = faults("".join(f"k{index} = oops\n" for index in range(40)))
    assert found == list(range(1, 21))
