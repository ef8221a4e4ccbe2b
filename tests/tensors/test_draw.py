from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench.tensors import draw

WORD = (1 << 64) - 1


def splitmix64(key: int, i: int) -> int:
    """The same hash in Python's integers."""
    z = (key + i * 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


@settings(deadline=None)  # the first call of a torch function is slow
@given(st.integers(0, WORD), st.integers(0, (1 << 40)))
def test_hashes_are_those_of_splitmix64_at_any_position(key: int, start: int) -> None:
    found = draw.hashed(key, start, 3, "cpu").tolist()
    assert [one & WORD for one in found] == [splitmix64(key, start + i) for i in range(3)]


@settings(deadline=None)  # the first call of a torch function is slow
@given(st.integers(-(1 << 62), 1 << 62), st.integers(1, 1 << 62))
def test_integers_stay_within_their_bounds(low: int, span: int) -> None:
    found = draw.integers(draw.hashed(7, 0, 200, "cpu"), low, low + span)
    assert low <= int(found.min())
    assert int(found.max()) < low + span


def test_small_integers_are_drawn_evenly() -> None:
    found = draw.integers(draw.hashed(3, 0, 60_000, "cpu"), 0, 6)
    assert found.bincount().tolist() == pytest.approx([10_000] * 6, rel=0.04)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_numbers_have_the_moments_of_their_law(dtype: torch.dtype) -> None:
    found = draw.uniform(draw.hashed(5, 0, 200_000, "cpu"), dtype)
    assert found.dtype == dtype
    assert float(found.min()) >= 0
    assert float(found.max()) < 1
    assert float(found.mean()) == pytest.approx(0.5, abs=0.003)
    assert float(found.var()) == pytest.approx(1 / 12, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_have_the_moments_of_their_law(dtype: torch.dtype) -> None:
    found = draw.normal(draw.hashed(5, 0, 200_000, "cpu"), dtype).double()
    moments = [float((found**k).mean()) for k in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.05)
    assert bool(found.isfinite().all())
    neighbours = float((found[:-1] * found[1:]).mean())
    assert neighbours == pytest.approx(0, abs=0.01)


def test_keys_differ_by_seed_name_and_rank() -> None:
    keys = {draw.key(seed, name, rank) for seed in (0, 1) for name in "xy" for rank in (None, 0, 1)}
    assert len(keys) == 12
