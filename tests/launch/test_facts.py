"""What ran, where several kinds of launches make one implementation."""

from __future__ import annotations

from tirbench.launch.facts import together
from tirbench.model import CodeFacts

ONE = CodeFacts(digest="sass:11", registers=40, spills=0, shared_bytes=1024)
OTHER = CodeFacts(digest="sass:22", registers=32, spills=4)
TEXT = CodeFacts(digest="src:33")


def test_a_single_launch_keeps_its_own_facts() -> None:
    assert together(None, ONE, None) is ONE
    assert together(None) is None


def test_a_sequence_has_the_largest_resources_and_a_digest_of_its_own() -> None:
    both = together(ONE, OTHER)
    assert both is not None
    assert (both.registers, both.spills, both.shared_bytes) == (40, 4, 1024)
    assert both.digest.startswith("sass:")
    assert both.digest not in {ONE.digest, OTHER.digest}


def test_the_order_of_a_sequence_is_part_of_its_digest() -> None:
    first, second = together(ONE, OTHER), together(OTHER, ONE)
    assert first is not None
    assert second is not None
    assert first.digest != second.digest


def test_a_digest_of_several_kinds_says_so() -> None:
    mixed = together(ONE, TEXT)
    assert mixed is not None
    assert mixed.digest.startswith("mixed:")
