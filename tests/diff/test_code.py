"""What the compilers say of both sides: believed of the rows that it is of, and said in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.diff import compiled
from tests.diff.compiled import add_scale, both, edit_body, facts, suite
from tests.diff.conftest import Project
from tirbench import reviewing
from tirbench.aot.request import COMPILED_KINDS
from tirbench.diff.code import ASSUMED, COMPILED, UNITS
from tirbench.model import CodeFacts, CompiledSides, Diff
from tirbench.report import diffs


@pytest.fixture
def scaled(project: Project) -> Project:
    add_scale(project)
    return project


def compare(project: Project, given: CompiledSides | None = None) -> Diff:
    return reviewing.diff(project.root, "main", facts=given)


def measured(project: Project, given: CompiledSides | None = None) -> set[str]:
    return {one.key.removeprefix("scale/") for one in compare(project, given).measure}


def test_another_source_is_another_code_where_no_compiler_says_more(scaled: Project) -> None:
    edit_body(scaled)
    assert measured(scaled) == set(compiled.KEYS)


def test_a_row_with_another_source_and_the_same_code_need_not_be_measured(scaled: Project) -> None:
    before = suite(scaled, facts())
    edit_body(scaled)
    after = suite(scaled, facts(), n2048_plain=facts("sass:2"))
    assert measured(scaled, both(before, after)) == {"n2048/plain"}


def test_a_step_in_python_is_no_machine_code_and_counts_by_its_text(scaled: Project) -> None:
    before = suite(scaled, facts())
    scaled.replace("y.zero_()", "y.fill_(0)", "workloads/kernels/scale.py")
    given = both(before, suite(scaled, facts()))
    assert measured(scaled, given) == {"n1024/cleared", "n2048/cleared"}


def test_a_row_that_is_launched_otherwise_is_measured_whatever_its_code(scaled: Project) -> None:
    before = suite(scaled, facts())
    alone = "BLOCK = 256 }\n\n[[kernels.cleared"
    scaled.replace(alone, alone.replace("256", "512"), "workloads/scale.toml")
    given = both(before, suite(scaled, facts()))
    assert measured(scaled, given) == {"n1024/plain", "n2048/plain"}


def test_facts_of_another_revision_say_nothing(scaled: Project) -> None:
    before = suite(scaled, facts())
    edit_body(scaled)
    stale = suite(scaled, facts())
    scaled.replace("* 2.0", "* 2.00", "workloads/kernels/scale.py")
    diff = compare(scaled, both(before, stale))
    assert {one.cause for one in diff.measure} == {"code"}
    assert len(diff.measure) == 4
    assert any("facts of 4 rows are of another revision" in one for one in diff.notices)
    assert diff.code == ()


def test_code_of_two_compilers_is_not_compared(scaled: Project) -> None:
    before = suite(scaled, facts())
    edit_body(scaled)
    diff = compare(scaled, both(before, suite(scaled, facts("sass:2"), triton="3.7.1")))
    assert diff.code == ()
    assert any("code is not compared" in one for one in diff.notices)
    assert len(diff.measure) == 4


def test_code_that_assumes_a_choice_which_is_not_pinned_is_not_called_the_same(
    scaled: Project,
) -> None:
    notes = (f"{ASSUMED}2 configurations: none is pinned",)
    before = suite(scaled, facts(), notes=notes)
    edit_body(scaled)
    assert len(measured(scaled, both(before, suite(scaled, facts(), notes=notes)))) == 4


def test_only_the_architecture_of_the_pins_decides_where_it_was_compiled_for(
    scaled: Project,
) -> None:
    before = [suite(scaled, facts()), suite(scaled, facts(), arch="sm_100")]
    edit_body(scaled)
    after = [suite(scaled, facts()), suite(scaled, facts("sass:2"), arch="sm_100")]
    joined = [
        replace(one, compilations=one.compilations + other.compilations)
        for one, other in (before, after)
    ]
    assert measured(scaled, both(*joined)) == set()
    assert len(measured(scaled, both(before[1], after[1]))) == 4


def test_a_row_that_compiles_on_neither_side_must_be_measured(scaled: Project) -> None:
    before = suite(scaled, "OutOfResources: shared memory")
    edit_body(scaled)
    assert len(measured(scaled, both(before, suite(scaled, "OutOfResources: shared memory")))) == 4


def test_resources_that_moved_are_said_in_words(scaled: Project) -> None:
    before = suite(scaled, facts(stack_bytes=0, instructions=100, occupancy=0.5))
    edit_body(scaled)
    after = CodeFacts(
        digest="sass:2",
        registers=128,
        spills=6,
        shared_bytes=0,
        stack_bytes=24,
        instructions=140,
        occupancy=0.25,
    )
    diff = compare(scaled, both(before, suite(scaled, facts(), n1024_plain=after)))
    text = diffs.render(diff, "text", code=0)
    assert (
        "scale/n1024/plain on sm_90: registers 96 → 128, spills 0 → 24 bytes, stack 0 → 24 bytes, "
        "instructions 100 → 140, occupancy 50 → 25 %, code sass:1 → sass:2"
    ) in text
    assert "machine code by triton 3.6.0: 3 of 4 rows unchanged" in text


def test_a_kernel_that_compiles_no_more_is_said_to(scaled: Project) -> None:
    before = suite(scaled, facts())
    edit_body(scaled)
    diff = compare(scaled, both(before, suite(scaled, "CompilationError: at 3:4")))
    assert "compiles yes → no: CompilationError: at 3:4" in diffs.render(diff, "text", code=0)


def test_rows_alone_say_what_their_resources_were_and_are(scaled: Project) -> None:
    edit_body(scaled)
    compiled.pin(
        scaled,
        "n1024/plain",
        code="sass:2",
        resources=(("instructions", 140), ("registers", 128), ("shared_bytes", 0), ("spills", 6)),
    )
    text = diffs.render(compare(scaled), "text", code=0)
    assert (
        "scale/n1024/plain on nvidia-h200, as pinned: registers 96 → 128, spills 0 → 24 bytes\n"
        in text
    )


def test_a_row_that_only_says_more_of_its_code_than_before_is_no_change_of_code(
    scaled: Project,
) -> None:
    compiled.pin(
        scaled,
        resources=(("instructions", 9), ("registers", 96), ("shared_bytes", 0), ("spills", 0)),
    )
    diff = compare(scaled)
    assert all(one.resources == () for one in diff.pins)
    assert diff.measure == ()
    assert "4 rows with the number they had and other evidence" in diffs.render(
        diff, "text", code=0
    )


def test_every_resource_of_a_baseline_has_a_word() -> None:
    whole = facts(stack_bytes=1, instructions=1, occupancy=1.0)
    assert {name for name, _ in whole.resources} == set(UNITS)


def test_the_kinds_that_are_compiled_are_those_of_aot() -> None:
    assert COMPILED == COMPILED_KINDS
    text = (Path(reviewing.__file__).parent / "aot" / "worker.py").read_text(encoding="utf-8")
    assert f'f"{ASSUMED}{{' in text
