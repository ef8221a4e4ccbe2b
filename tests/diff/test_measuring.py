"""Which rows must be measured: one answer for `diff`, `exec --changed` and `gate --static`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.diff import compiled
from tests.diff.compiled import add_scale, both, edit_body, facts, suite
from tests.diff.conftest import BASELINE, HARDWARE, Project
from tirbench import gating_static, reviewing
from tirbench.diff.seconds import START_S, row_seconds
from tirbench.model import CompiledSides, Row, ToMeasure
from tirbench.reading import read
from tirbench.report import diffs
from tirbench.selection import Selection
from tirbench.store.baseline import sealed


def needed(project: Project, base: str = "main") -> dict[str, str]:
    return {
        one.key.removeprefix("double/"): one.cause
        for one in reviewing.diff(project.root, base).measure
    }


OPS = "workloads/kernels/ops.py"

EDITS: dict[str, tuple[Callable[[Project], None], dict[str, str]]] = {
    "nothing": (lambda _: None, {}),
    "a comment": (lambda p: p.replace("[matrix]", "[matrix] # sizes"), {}),
    "a description": (lambda p: p.replace("y = 2 x", "twice"), {}),
    "a tolerance": (lambda p: p.replace("rtol = 1e-4", "rtol = 1e-5"), {}),
    "the oracle": (lambda p: p.replace("2 * x", "x + x", "workloads/kernels/right.py"), {}),
    "a body": (
        lambda p: p.replace("y.copy_(x + x)", "y.copy_(x.add(x))", OPS),
        {f"n{n}/{one}": "code" for n in (1024, 2048, 4096) for one in ("fast", "slow")},
    ),
    "arguments of one implementation": (
        lambda p: p.replace('args = ["x", 2]', 'args = ["x", 2.0]'),
        {f"n{n}/torch": "code" for n in (1024, 2048, 4096)},
    ),
    "the input": (
        lambda p: p.replace("low = -2.0", "low = -4.0"),
        {f"n{n}/{o}": "problem" for n in (1024, 2048, 4096) for o in ("fast", "torch", "slow")},
    ),
    "how it is timed": (
        lambda p: p.replace('"cold-dirty"', '"warm"'),
        {f"n{n}/{o}": "protocol" for n in (1024, 2048, 4096) for o in ("fast", "torch", "slow")},
    ),
    "a case more": (
        lambda p: p.replace("[1024, 2048, 4096]", "[1024, 2048, 4096, 8192]"),
        {"n8192/fast": "new", "n8192/torch": "new"},
    ),
    "ids": (
        lambda p: p.replace('id = "n{n}"', 'id = "size{n}"'),
        {f"size{n}/{one}": "new" for n in (1024, 2048, 4096) for one in ("fast", "torch")},
    ),
    "a case less": (lambda p: p.replace("[1024, 2048, 4096]", "[1024, 2048]"), {}),
}


@pytest.mark.parametrize("name", EDITS)
def test_exactly_the_rows_whose_problem_protocol_or_code_differs_are_needed(
    project: Project, name: str
) -> None:
    edit, rows = EDITS[name]
    edit(project)
    assert needed(project) == rows


def test_a_row_that_was_pinned_again_as_it_is_now_is_needed_no_more(project: Project) -> None:
    project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", OPS)
    project.pin(only=(("n1024", "fast"), ("n2048", "fast")))
    assert set(needed(project)) == {"n4096/fast", "n1024/slow", "n2048/slow", "n4096/slow"}


def test_what_was_stale_before_is_not_the_branchs_doing(project: Project) -> None:
    project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", OPS)
    project.commit("merged without measuring")
    project.replace("[1024, 2048, 4096]", "[1024, 2048, 4096, 8192]")
    assert needed(project) == {"n8192/fast": "new", "n8192/torch": "new"}


def test_a_pin_that_was_left_behind_between_the_revisions_is_of_neither(project: Project) -> None:
    project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", OPS)
    project.pin(only=(("n1024", "fast"),))
    project.replace("y.copy_(x.add(x))", "y.copy_(x + x)", OPS)
    assert needed(project) == {"n1024/fast": "pin"}


def test_a_library_that_was_pinned_in_another_version_than_is_here_is_current(
    project: Project,
) -> None:
    project.replace(
        'target = "torch.mul"\nargs = ["x", 2]', 'target = "nowhere.mul"\nargs = ["x", 2]'
    )
    project.commit("a library that is not installed")
    there = "0123456789abcdef"  # with the version of the machine that measured
    project.pin(source=there, only=(("n1024", "torch"), ("n2048", "torch"), ("n4096", "torch")))
    assert needed(project) == {}
    project.commit("measured where it is")
    project.replace('args = ["x", 2]', 'args = ["x", 2.0]')
    assert set(needed(project)) == {"n1024/torch", "n2048/torch", "n4096/torch"}
    project.pin(source="f" * 16, only=(("n1024", "torch"),))
    assert set(needed(project)) == {"n2048/torch", "n4096/torch"}


def test_a_row_without_its_pin_or_with_a_broken_one_is_needed(project: Project) -> None:
    rows = project.rows
    del rows["n1024", "fast"]
    rows["n2048", "fast"] = replace(rows["n2048", "fast"], midmean_us=3.0)
    project.keep(rows)
    assert needed(project) == {"n1024/fast": "pin", "n2048/fast": "pin"}


def test_a_skipped_row_is_never_needed(project: Project) -> None:
    project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", OPS)
    project.replace("[tensors]", '[[skip]]\nwhen = "n > 1024"\nreason = "r"\n\n[tensors]')
    assert set(needed(project)) == {"n1024/fast", "n1024/slow"}


def test_a_case_that_enters_the_default_is_needed_for_the_first_time(project: Project) -> None:
    project.replace("[tensors]", '[select]\ndefault = ["n1024", "n2048"]\n\n[tensors]')
    project.keep({key: row for key, row in project.rows.items() if key[0] != "n4096"})
    project.commit("two by default")
    project.replace('default = ["n1024", "n2048"]', 'default = ["*"]')
    assert needed(project) == {"n4096/fast": "new", "n4096/torch": "new"}


def test_a_project_that_pins_nothing_needs_what_was_written_otherwise(project: Project) -> None:
    (project.root / BASELINE).unlink()
    project.commit("no pins")
    project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", OPS)
    assert set(needed(project)) == {
        f"n{n}/{o}" for n in (1024, 2048, 4096) for o in ("fast", "slow")
    }


# --- Three commands, one answer -------------------------------------------------------------------


def three_answers(project: Project, given: CompiledSides | None) -> list[set[str]]:
    """What each of the commands would measure."""
    diff = reviewing.diff(project.root, "main", facts=given)
    reading = read(Selection(files=(str(project.root / "workloads"),), select="all"))
    ran = {
        f"{case.key}/{one.name}"
        for item in reviewing.changed(reading, "main", given).reading.chosen
        for case in item.cases
        for one in case.implementations
    }
    gate = gating_static.gate_revisions(project.root, "main", compile_=lambda _: given)
    asked = {
        f"{row.workload}/{row.decision.case}/{row.decision.implementation}"
        for row in gate.rows
        if row.decision.rule == "remeasure"
    }
    return [{one.key for one in diff.measure}, ran, asked]


@pytest.mark.parametrize("with_facts", [False, True])
def test_diff_exec_and_gate_select_the_same_rows(project: Project, with_facts: bool) -> None:
    add_scale(project)
    before = suite(project, facts())
    edit_body(project)
    given = both(before, suite(project, facts(), n1024_plain=facts("sass:2")))
    first, *others = three_answers(project, given if with_facts else None)
    wanted = {"scale/n1024/plain"} if with_facts else {f"scale/{key}" for key in compiled.KEYS}
    assert first == wanted
    assert others == [first, first]


# --- How long -------------------------------------------------------------------------------------


def test_the_answer_counts_kernels_rows_and_seconds(project: Project) -> None:
    add_scale(project)
    project.replace("[1024, 2048, 4096]", "[1024, 2048, 4096, 8192]")
    diff = reviewing.diff(project.root, "main")
    known = [row_seconds(4.0), row_seconds(5.0)]  # as the other cases of the same implementation
    assert [one.seconds for one in diff.measure] == pytest.approx(known)
    assert diffs.selected(diff) == (
        f"2 of 3 kernels unchanged; measure 2 rows, about {round(START_S + sum(known), -1):.0f} s"
    )
    assert all(one.hardware == (HARDWARE,) for one in diff.measure)


def test_a_row_whose_like_was_never_timed_is_counted_without_seconds(project: Project) -> None:
    (project.root / BASELINE).unlink()
    project.commit("no pins")
    project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", OPS)
    diff = reviewing.diff(project.root, "main")
    assert diffs.selected(diff) == "0 of 1 kernel unchanged; measure 6 rows"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (3.6, "4 s"), (37.0, "40 s"), (94.0, "90 s"), (400.0, "7 min")],
)
def test_seconds_are_said_no_more_exactly_than_they_are_known(
    project: Project, seconds: float, said: str
) -> None:
    diff = reviewing.diff(project.root, "main")
    row = ToMeasure(row=_row(project), cause="code")
    found = replace(diff, measure=(row,), seconds=seconds)
    assert diffs.selected(found).endswith(f"measure 1 row, about {said}")


def _row(project: Project) -> Row:
    project.replace("[1024, 2048, 4096]", "[1024, 2048, 4096, 8192]")
    return reviewing.diff(project.root, "main").measure[0].row


def test_a_row_takes_seconds_and_less_where_nothing_is_flushed() -> None:
    times = [row_seconds(time_us) for time_us in (2.0, 50.0, 500.0, 5000.0, 50_000.0)]
    assert all(1 < one < 10 for one in times)
    assert row_seconds(4.0, on_cpu=True) < row_seconds(4.0)


def test_what_comes_next_is_the_command_that_measures_just_these(project: Project) -> None:
    project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", OPS)
    text = diffs.render(reviewing.diff(project.root, "main"), "text", code=0)
    assert f"on {HARDWARE}: `tirbench exec --changed main --pin`" in text
    assert "double/n1024/fast: other code than at BASE, and not pinned since" in text


def test_the_gate_of_a_row_with_the_same_code_says_that_it_is_current(project: Project) -> None:
    add_scale(project)
    before = suite(project, facts())
    edit_body(project)
    given = both(before, suite(project, facts()))
    gate = gating_static.gate_revisions(project.root, "main", compile_=lambda _: given)
    rules = {one.decision.rule for one in gate.rows if one.workload == "scale"}
    assert rules == {"current"}
    assert any("4 of 4 rows unchanged" in note for note in gate.notes)


def test_a_gate_without_a_compiler_says_that_nothing_was_compiled(project: Project) -> None:
    add_scale(project)
    edit_body(project)
    gate = gating_static.gate_revisions(project.root, "main")
    reasons = {
        one.decision.reason.partition(";")[0] for one in gate.rows if one.workload == "scale"
    }
    assert reasons == {"its source changed, and nothing says what that compiles to"}


def test_an_accepted_pin_of_other_numbers_alone_needs_no_measuring(project: Project) -> None:
    rows = project.rows
    key = ("n1024", "fast")
    project.keep({**rows, key: sealed(replace(rows[key], midmean_us=4.2, reason="r"))})
    assert needed(project) == {}
