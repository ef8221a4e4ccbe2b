"""How a problem is shown."""

from __future__ import annotations

import pytest

from tirbench.diagnostics import Diagnostic, Problems, closest, did_you_mean, without_quotes

TEXT = 'schema = 1\nx = "hidden // nope"\ny = "caf\u00e9 \u4e16 bad"\n'


def test_a_problem_shows_its_line_a_caret_and_the_hint() -> None:
    problems = Problems("w.toml", TEXT)
    problems.add("TB021", ("x",), "unknown name 'nope'", hint="did you mean 'node'?", span=(10, 4))
    assert str(problems.diagnostics()[0]) == (
        "w.toml:2:16: error[TB021]: unknown name 'nope'\n"
        "  |\n"
        '2 | x = "hidden // nope"\n'
        "  |                ^^^^\n"
        "help: did you mean 'node'?"
    )


def test_a_caret_stands_below_its_character_where_characters_are_wide() -> None:
    problems = Problems("w.toml", TEXT)
    problems.add("TB021", ("y",), "no", span=(7, 3))
    line, caret = str(problems.diagnostics()[0]).splitlines()[-2:]
    assert line.index("bad") + 1 == caret.index("^"), "one character before it is two columns wide"


def test_problems_are_sorted_by_place_and_kept_once() -> None:
    problems = Problems("w.toml", TEXT)
    problems.add("TB021", ("y",), "second")
    problems.add("TB021", ("x",), "first")
    problems.add("TB021", ("x",), "first")
    assert [d.message for d in problems.diagnostics()] == ["first", "second"]


def test_of_many_problems_twenty_are_shown_and_the_rest_counted() -> None:
    problems = Problems("w.toml", TEXT)
    for index in range(23):
        problems.add("TB010", ("x",), f"problem {index}")
    shown = problems.diagnostics()
    assert len(shown) == 21
    assert shown[-1].code == "TB099"
    assert shown[-1].message == "3 more problems from here on"


def test_a_long_line_is_cut_around_the_fault() -> None:
    text = "a = [" + "1, " * 200 + '"here", ' + "2, " * 200 + "]"
    problems = Problems("w.toml", text)
    problems.add("TB012", ("a", 200), "no")
    line, caret = str(problems.diagnostics()[0]).splitlines()[-2:]
    assert len(line) < 110
    assert line[caret.index("^") : caret.rindex("^") + 1] == '"here"'


def test_what_a_terminal_would_act_on_is_not_printed() -> None:
    shown = str(Diagnostic(code="TB002", file="w.toml", message="no", text="a\x1b[31mb", column=2))
    assert "\x1b" not in shown


def test_an_unknown_code_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        Problems("w.toml").add("TB999", (), "no")


def test_a_misspelt_word_gets_one_suggestion_or_the_list() -> None:
    assert closest("Hiden", ["hidden", "batch"]) == "hidden"
    assert did_you_mean("hiden", ["hidden", "batch"]) == "did you mean 'hidden'?"
    assert did_you_mean("zzz", ["b", "a"], "there are") == "there are: a, b"
    assert did_you_mean("zzz", ["b", "a"]) == ""


def test_of_names_that_differ_in_case_alone_the_one_spelt_alike_is_meant() -> None:
    assert closest("row", ["ROWS", "rows"]) == "rows"
    assert closest("ROW", ["ROWS", "rows"]) == "ROWS"


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("4096", "without quotes: 4096"),
        ("1e-3", "without quotes: 1e-3"),
        ("true", "without quotes: true"),
        ("n", ""),
        ("", ""),
        (3, ""),
    ],
)
def test_what_is_no_text_is_said_to_stand_without_quotes(value: object, hint: str) -> None:
    assert without_quotes(value) == hint
