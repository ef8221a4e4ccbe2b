"""Every path of a document is found where it is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench.diagnostics import locate, locations, lost_at, newer_syntax, written_twice

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]  # only there before 3.11

EXAMPLES = sorted((Path(__file__).parent.parent / "load" / "examples").glob("*.toml"))

AWKWARD = '''
a.b."c d".e = 1 # comment = 3
'lit.eral' = [ 1,
  [2, { x = 1, y.z = [3] }], # ]
  "]", \'\'\'
multi ] line\'\'\',
]
"\\b\\t\\n\\f\\r\\"\\\\\\u00e9\\U0001F600" = 1
text = """
[not.a.table]
key = "no"
"""
date = 1979-05-27 07:32:00
[t]
inline = { a = { b = [1, 2] }, "q" = \'v\' }
[[t.list]]
n = 1
[t.list.sub]
m = 2
[[t.list]]
[[t.list.deep]]
k = +inf
[other . "dotted" . key]
v = -0.5e-3
'''


def paths(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    found = {path} if path else set()
    if isinstance(value, dict):
        for key, item in value.items():
            found |= paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found |= paths(item, (*path, index))
    return found


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_path_of_an_awkward_document_has_a_position(newline: str) -> None:
    text = AWKWARD.replace("\n", newline)
    assert set(locations(text)) == paths(tomllib.loads(text))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_path_of_an_example_has_a_position(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(locations(text)) == paths(tomllib.loads(text))


def test_a_position_is_that_of_the_value_and_knows_its_key() -> None:
    text = 'schema = 1\n[tensors]\nx = { shape = ["batch", "hidden"] }\n'
    position = locate(text, ("tensors", "x", "shape", 1))
    assert (position.line, position.column, position.length) == (3, 25, len('"hidden"'))
    position = locate(text, ("tensors", "x", "shape"))
    assert (position.key_column, position.key_length) == (7, 5)


def test_what_is_not_in_the_text_is_placed_at_what_encloses_it() -> None:
    text = "schema = 1\n[tensors]\nx = {}\n"
    assert locate(text, ("tensors", "x", "shape", 3)).line == 3
    assert locate(text, ("nothing",)).line == 1


def test_newer_syntax_is_told_from_what_only_looks_like_it() -> None:
    assert not newer_syntax('a = [\n1,\n]\nb = "{ \\n, }"\nc = { d = """\n""" }\n')
    assert [newer.offset for newer in newer_syntax("a = {\n b = 1,\n}\n")] == [4, 12]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab.=[]{}\"',# \n1-\\", max_size=80))
def test_a_scan_of_anything_ends_and_finds_every_path_of_a_document(text: str) -> None:
    found = locations(text)
    try:
        document = tomllib.loads(text)
    except ValueError:
        return
    if not newer_syntax(text):
        assert set(found) == paths(document)


@pytest.mark.parametrize("text", [AWKWARD, *(path.read_text("utf-8") for path in EXAMPLES)])
def test_nothing_is_twice_in_a_document_that_is_right_and_nobody_is_lost_in_it(text: str) -> None:
    assert written_twice(text) is None
    assert lost_at(text) == len(text)


@pytest.mark.parametrize(
    ("text", "path", "line", "column", "first"),
    [
        ("a = 1\nb = 2\n a = 3\n", ("a",), 3, 2, 1),
        ("[t]\na.b = 1\n[t.a]\nb = 2\n", ("t", "a", "b"), 4, 1, 2),
        ("[t]\n[u]\n[t]\n", ("t",), 3, 1, 1),
        ("[[t]]\na = 1\n[[t]]\na = 1\na = 2\n", ("t", 1, "a"), 5, 1, 4),
        ("t = { a = 1, b = 2, 'a' = 3 }\n", ("t", "a"), 1, 21, 1),
        ("t = 1\n[t]\n", ("t",), 2, 1, 1),
        ('a = 1\n"\\u0061" = 2\n', ("a",), 2, 1, 1),
    ],
)
def test_what_is_written_twice_is_found_with_its_first_place(
    text: str, path: tuple[str | int, ...], line: int, column: int, first: int
) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    twice = written_twice(text)
    assert twice is not None
    assert (twice.path, twice.line, twice.column, twice.first_line) == (path, line, column, first)


@pytest.mark.parametrize("text", ["a = 'b\n", 'a = "b\nc = "d"\n', 'a = """b"\n', "a = [1, 'b]\n"])
def test_a_text_that_never_ends_is_where_one_gets_lost(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    assert lost_at(text) == min(at for at in map(text.find, ("'", '"')) if at >= 0)
