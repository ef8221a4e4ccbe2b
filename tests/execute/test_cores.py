"""How the cores of a machine are divided between measuring and building."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tirbench.execute.cores import Division, division


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Eight cores of two threads each: processor n + 8 is the other thread of core n."""
    for number in range(16):
        place = tmp_path / "cpus" / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{number % 8},{number % 8 + 8}\n")
    return tmp_path


def divided(usable: range | list[int], machine: Path, limit: str = "max 100000") -> Division | None:
    (machine / "cpu.max").write_text(limit)
    return division(usable, machine / "cpus", machine)


def test_a_quarter_of_the_cores_builds_and_threads_of_one_core_stay_together(machine: Path) -> None:
    found = divided(range(16), machine)
    assert found == Division(
        measuring=(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13), building=(6, 7, 14, 15)
    )


def test_only_what_we_may_use_is_divided(machine: Path) -> None:
    assert divided([2, 3, 4, 5], machine) == Division(measuring=(2, 3, 4), building=(5,))


def test_no_processor_is_in_both_parts_and_none_is_left_out(machine: Path) -> None:
    for count in range(4, 17):
        found = divided(range(count), machine)
        assert found is not None
        assert sorted(found.measuring + found.building) == list(range(count))


@pytest.mark.parametrize("usable", [[0], [0, 1], [0, 1, 2], [0, 8]])
def test_too_few_are_not_shared(machine: Path, usable: list[int]) -> None:
    assert divided(usable, machine) is None


@pytest.mark.parametrize(
    ("limit", "shared"),
    [("200000 100000", False), ("399999 100000", False), ("400000 100000", True), ("?", True)],
)
def test_a_container_that_gets_little_time_shares_none_of_it(
    machine: Path, limit: str, shared: bool
) -> None:
    assert (divided(range(16), machine, limit) is not None) is shared


@pytest.mark.parametrize(("quota", "shared"), [("-1", True), ("200000", False), ("800000", True)])
def test_the_limit_of_an_older_container_counts_too(
    machine: Path, quota: str, shared: bool
) -> None:
    (machine / "cpu").mkdir()
    (machine / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (machine / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert (division(range(16), machine / "cpus", machine) is not None) is shared


def test_without_a_list_of_threads_every_processor_is_a_core(tmp_path: Path) -> None:
    found = division(range(8), tmp_path, tmp_path)
    assert found == Division(measuring=(0, 1, 2, 3, 4, 5), building=(6, 7))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux lists what we may use")
def test_this_machine_is_divided_or_too_small() -> None:
    found = division()
    if found is not None:
        assert set(found.measuring) | set(found.building) == os.sched_getaffinity(0)
        assert not set(found.measuring) & set(found.building)
