"""What device expressions read: of a GPU its properties, of a CPU what comes nearest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tirbench.errors import MeasurementError
from tirbench.harness.device import Device, last_cache_bytes, usable_cores


def test_a_cpu_has_as_many_multiprocessors_as_this_process_may_use_cores() -> None:
    assert Device("cpu").sm_count == usable_cores()
    if hasattr(os, "sched_getaffinity"):
        assert usable_cores() == len(os.sched_getaffinity(0))


def test_a_cpu_has_the_shared_memory_of_every_gpu_and_the_capability_of_none() -> None:
    assert Device("cpu").smem_bytes == 48 * 1024
    assert Device("cpu").capability == 0.0
    assert Device("cpu").arch is None


def test_the_l2_cache_of_a_cpu_is_its_last_one(tmp_path: Path) -> None:
    for index, (level, size) in enumerate([("1", "48K"), ("2", "2M"), ("3", "30M"), ("1", "32K")]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "level").write_text(level + "\n")
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    (tmp_path / "index9").mkdir()
    assert last_cache_bytes(tmp_path) == 30 << 20


def test_a_cpu_that_does_not_say_how_large_its_cache_is_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="l2_bytes"):
        last_cache_bytes(tmp_path / "none")
