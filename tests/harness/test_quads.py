"""From samples to quads."""

from __future__ import annotations

from typing import Any

import pytest

from tirbench.harness.quads import blocks_of, quads_of, rounds_for


def result(rejected: int = 0, schedule: str = "interleaved") -> dict[str, Any]:
    """Two rounds of two sub-blocks with two kept calls each, of base and of head."""
    return {
        "samples": {
            "base": [[1.0, 1.1, 1.2, 1.3], [2.0, 2.1, 2.2, 2.3]],
            "head": [[3.0, 3.1, 3.2, 3.3], [4.0, 4.1, 4.2, 4.3]],
        },
        "benchmark_protocol": {
            "schedule": schedule,
            "sub_blocks": {"base": (1, 2), "head": (1, 2)},
            "rejected_samples": {"base": [0, 0], "head": [rejected, 0]},
        },
    }


def test_a_quad_has_two_neighbouring_sub_blocks_of_each_side() -> None:
    base, head = (blocks_of(result(), name, ("base", "head")) for name in ("base", "head"))
    assert quads_of(base, head) == [
        ([[1.0, 1.1], [1.2, 1.3]], [[3.0, 3.1], [3.2, 3.3]]),
        ([[2.0, 2.1], [2.2, 2.3]], [[4.0, 4.1], [4.2, 4.3]]),
    ]


def test_a_round_in_which_a_sample_was_rejected_counts_for_no_arm() -> None:
    given = result(rejected=1)
    assert blocks_of(given, "base", ("base", "head")) == [[2.0, 2.1], [2.2, 2.3]]
    given["benchmark_protocol"]["rejected_samples"]["base"] = [0, 2]
    with pytest.raises(ValueError, match="in every round"):
        blocks_of(given, "base", ("base", "head"))


def test_what_is_measured_alone_has_one_sub_block_a_round() -> None:
    assert len(blocks_of(result(schedule="blocked"), "base", ("base",))) == 2
    assert (rounds_for("sustained", 2), rounds_for("burst", 2)) == (4, 2)


def test_a_sub_block_without_a_partner_is_left_out() -> None:
    assert quads_of([[1.0]] * 5, [[2.0]] * 3) == [([[1.0], [1.0]], [[2.0], [2.0]])]
