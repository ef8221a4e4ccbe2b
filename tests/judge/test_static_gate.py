"""The gate of a row without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from tirbench.judge import StaticFacts, gate_static
from tirbench.model import PinnedRow

MakeFacts: TypeAlias = "Callable[..., StaticFacts]"
COMMAND = "tirbench exec workloads/rmsnorm.toml --pin"


@pytest.fixture(scope="session")
def facts(pin: PinnedRow) -> MakeFacts:
    def make(**given: Any) -> StaticFacts:
        known: dict[str, Any] = {
            "case": pin.case,
            "implementation": pin.implementation,
            "base": pin,
            "head": pin,
            "problem": "aa",
            "protocol": "bb",
            "base_problem": "aa",
            "base_protocol": "bb",
            "source": "refactored",
            "base_code": "sass:99",
            "code": "sass:99",
            "command": COMMAND,
        }
        return StaticFacts(**{**known, **given})

    return make


def test_the_same_code_keeps_its_pin_though_the_source_changed(facts: MakeFacts) -> None:
    answer = gate_static(facts())
    assert (answer.exit_code, answer.rule) == (0, "current")


def test_a_pin_of_the_source_of_head_is_current_evidence(facts: MakeFacts, pin: PinnedRow) -> None:
    again = replace(pin, source="refactored", midmean_us=9.5, code="sass:4567")
    answer = gate_static(facts(head=again, code="sass:11"))
    assert (answer.exit_code, answer.rule) == (0, "remeasured")


def test_changed_code_must_be_measured_with_the_command_that_does_it(facts: MakeFacts) -> None:
    answer = gate_static(facts(code="sass:11"))
    assert (answer.exit_code, answer.rule) == (3, "remeasure")
    assert answer.reason == f"the code is not what was pinned; {COMMAND}"


def test_code_that_cannot_be_compiled_here_is_not_called_the_same(facts: MakeFacts) -> None:
    answer = gate_static(facts(code=None, base_code=None))
    assert (answer.exit_code, answer.rule) == (3, "remeasure")
    assert answer.reason.startswith("nothing could be compiled here")


def test_a_pin_left_behind_between_the_revisions_is_no_evidence(
    facts: MakeFacts, pin: PinnedRow
) -> None:
    between = replace(pin, code="sass:4567", source="in between")
    assert gate_static(facts(head=between)).rule == "remeasure"
    assert gate_static(facts(base=None, head=between)).rule == "remeasure"


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"head": None}, "missing"),
        ({"known": False}, "orphan"),
        ({"sealed": False}, "seal"),
        ({"problem": "other"}, "stale"),
        ({"protocol": "other"}, "stale"),
        ({"weakenings": ("rtol 0.001 → 0.01",)}, "weakened"),
    ],
)
def test_what_an_author_can_mend_here_fails(
    facts: MakeFacts, given: dict[str, Any], rule: str
) -> None:
    answer = gate_static(facts(**given))
    assert (answer.exit_code, answer.rule) == (1, rule)


@pytest.mark.parametrize("name", ["midmean_us", "anchor_us"])
def test_a_slower_row_needs_a_reason_that_it_did_not_have_before(
    facts: MakeFacts, pin: PinnedRow, name: str
) -> None:
    slower = replace(pin, source="refactored", **{name: 10.3})  # type: ignore[arg-type]
    answer = gate_static(facts(head=slower))
    assert (answer.exit_code, answer.rule) == (1, "slower-row")
    assert "rose by 3 % without a reason" in answer.reason
    told = replace(slower, reason="fewer registers for the fused path")
    assert gate_static(facts(head=told)).exit_code == 0
    known = replace(pin, reason=told.reason)
    assert gate_static(facts(base=known, head=told)).rule == "slower-row"


def test_a_number_of_another_problem_is_not_slower(facts: MakeFacts, pin: PinnedRow) -> None:
    other = replace(pin, problem="larger", midmean_us=20.0, source="refactored")
    answer = gate_static(facts(head=other, problem="larger"))
    assert (answer.exit_code, answer.rule) == (0, "remeasured")
