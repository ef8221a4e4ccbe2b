"""In which order the arms of a comparison are handed to the timer."""

from __future__ import annotations

from tirbench.harness.pairs import in_turn


def test_arms_take_turns_in_being_the_first_from_one_placement_seed_to_the_next() -> None:
    arms = ["base", "head", "twin"]
    assert [in_turn(arms, placement)[0] for placement in range(4)] == ["base", "twin"] * 2
    assert in_turn(arms, 1) == ["twin", "head", "base"]
    assert arms == ["base", "head", "twin"]
