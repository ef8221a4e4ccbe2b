"""Without a GPU: pins, the source and the problem that stand beside them, what `diff` says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from tirbench.judge import StaticFacts, gate_static
from tirbench.model import PinnedRow

COMMAND = "on nvidia-h200: tirbench exec workloads/rmsnorm.toml --pin"

MakeFacts: TypeAlias = "Callable[..., StaticFacts]"


@pytest.fixture(scope="session")
def facts(pin: PinnedRow) -> MakeFacts:
    def make(**given: Any) -> StaticFacts:
        known: dict[str, Any] = {
            "case": pin.case,
            "implementation": pin.implementation,
            "head": pin,
            "problem": "aa",
            "protocol": "bb",
            "source": "refactored",
            "command": COMMAND,
        }
        return StaticFacts(**{**known, **given})

    return make


def test_a_row_that_need_not_be_measured_keeps_its_pin_though_the_source_changed(
    facts: MakeFacts,
) -> None:
    answer = gate_static(facts())
    assert (answer.exit_code, answer.rule) == (0, "current")


def test_a_pin_of_the_source_of_head_is_current_evidence(facts: MakeFacts, pin: PinnedRow) -> None:
    again = replace(pin, source="refactored", midmean_us=9.5, code="sass:4567")
    answer = gate_static(facts(head=again))
    assert (answer.exit_code, answer.rule) == (0, "remeasured")


def test_what_must_be_measured_is_said_with_the_command_that_does_it(facts: MakeFacts) -> None:
    answer = gate_static(facts(needs="other code than at BASE"))
    assert (answer.exit_code, answer.rule) == (3, "remeasure")
    assert answer.reason == f"other code than at BASE; {COMMAND}"


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"head": None}, "missing"),
        ({"known": False}, "orphan"),
        ({"sealed": False}, "seal"),
        ({"problem": "other"}, "stale"),
        ({"protocol": "other"}, "stale"),
        ({"slower": ("the pinned time rose by 3 %",)}, "slower-row"),
        ({"weakenings": ("rtol 0.001 → 0.01",)}, "weakened"),
    ],
)
@pytest.mark.parametrize("needs", ["", "other code than at BASE"])
def test_what_an_author_can_mend_here_fails_before_anything_is_measured(
    facts: MakeFacts, given: dict[str, Any], rule: str, needs: str
) -> None:
    answer = gate_static(facts(**given, needs=needs))
    assert (answer.exit_code, answer.rule) == (1, rule)


def test_a_slower_row_says_how_it_is_accepted(facts: MakeFacts) -> None:
    answer = gate_static(facts(slower=("the pinned time rose by 3 %: 10 → 10.3 µs",)))
    assert answer.reason == (
        "the pinned time rose by 3 %: 10 → 10.3 µs without a reason; "
        "`tirbench pin --accept … --reason`"
    )
