"""From the samples of `bench()` to the sub-blocks and quads that a pair is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Blocks: TypeAlias = "list[list[float]]"
"""The kept calls of each sub-block, µs, in order."""

SOLO_ROUNDS: Final = 4
"""Rounds where sides are never interleaved: each is one sub-block, and spread needs two quads."""


def rounds_for(regime: str, rounds: int) -> int:
    """How many rounds a comparison has."""
    return rounds if regime == "burst" else max(rounds, SOLO_ROUNDS)


def blocks_of(result: Mapping[str, Any], name: str, together: Sequence[str]) -> Blocks:
    """The sub-blocks of one arm, of the rounds in which no arm lost a sample.

    A timer may reject single samples, and what is left of such a round cannot be told apart into
    sub-blocks; that concerns every arm that is compared with it.

    Args:
        result: of `bench()`.
        name: the arm.
        together: it and what it is compared with.

    Raises:
        ValueError: there is no such round.
    """
    protocol = result["benchmark_protocol"]
    rejected = [protocol["rejected_samples"][one] for one in together]
    rounds = [
        samples
        for index, samples in enumerate(result["samples"][name])
        if not any(lost[index] for lost in rejected)
    ]
    if not rounds:
        raise ValueError("the timer rejected samples in every round")
    if protocol["schedule"] == "blocked":
        return [list(samples) for samples in rounds]
    kept = protocol["sub_blocks"][name][1]
    return [
        list(samples[start : start + kept])
        for samples in rounds
        for start in range(0, len(samples), kept)
    ]


def quads_of(base: Blocks, head: Blocks) -> list[tuple[Blocks, Blocks]]:
    """Two sub-blocks of each side: in order `A B B A` these are the first and last, and the middle ones.

    Arms that differ by more than a factor of two are timed one after the other, and their sub-blocks are
    paired in order: no drift of the device hides such a difference.
    """
    count = min(len(base), len(head)) // 2
    return [
        (base[2 * index : 2 * index + 2], head[2 * index : 2 * index + 2]) for index in range(count)
    ]
