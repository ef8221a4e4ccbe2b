from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.tensors.layout import ALIGN_BYTES, GUARD_BYTES, SPREAD_BYTES, capacity, layout

PLACED_0 = {"w": 1658368, "x": 1734144, "y": 4004864}
PLACED_1 = {"w": 1828864, "y": 3015680, "x": 4917760}

sizes_of_tensors = st.dictionaries(
    st.text("abcxyz", min_size=1, max_size=4), st.integers(0, 9 << 30), min_size=1, max_size=9
)


@given(sizes_of_tensors, st.integers(0, 99))
def test_tensors_are_aligned_and_apart_by_both_guards(sizes: dict[str, int], seed: int) -> None:
    placed = layout(sizes, seed)
    end = 0
    for name, offset in sorted(placed.offsets.items(), key=lambda item: item[1]):
        assert offset % ALIGN_BYTES == 0
        assert end <= offset - GUARD_BYTES < end + SPREAD_BYTES + ALIGN_BYTES
        end = offset + sizes[name] + GUARD_BYTES
    assert placed.end == end


@given(sizes_of_tensors, st.integers(0, 99))
def test_the_capacity_holds_every_placement(sizes: dict[str, int], seed: int) -> None:
    assert layout(sizes, seed).end <= capacity(sizes)


@given(sizes_of_tensors, st.integers(0, 99), st.randoms())
def test_the_order_of_declaration_has_no_effect(
    sizes: dict[str, int], seed: int, random: object
) -> None:
    names = list(sizes)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert layout({name: sizes[name] for name in names}, seed) == layout(sizes, seed)


def test_placement_seeds_change_order_and_offsets() -> None:
    sizes = {"x": 1 << 20, "w": 8192, "y": 1 << 20}
    placed = [layout(sizes, seed).offsets for seed in range(24)]
    orders = {tuple(sorted(offsets, key=lambda name: offsets[name])) for offsets in placed}
    assert len(orders) == 6
    assert len({offsets["x"] % SPREAD_BYTES for offsets in placed}) == 24


def test_offsets_are_the_same_everywhere() -> None:
    # Written down once: another number here means that every pinned time was measured elsewhere.
    assert layout({"x": 1 << 20, "w": 8192, "y": 1 << 20}, 0).offsets == PLACED_0
    assert layout({"x": 1 << 20, "w": 8192, "y": 1 << 20}, 1).offsets == PLACED_1


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_offsets_do_not_depend_on_the_hash_seed_of_python(hash_seed: str) -> None:
    program = (
        "from tirbench.tensors.layout import layout;"
        "print(sorted(layout({'x': 1 << 20, 'w': 8192, 'y': 1 << 20}, 0).offsets.items()))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == str(sorted(PLACED_0.items()))
