"""What a self-test would take is foretold from pins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirbench.model import BoundLaunch, Row
from tirbench.selftest import Asked, foresee
from tirbench.selftest.foresee import UNPINNED_US, Foreseen, _known
from tirbench.selftest.trees import TrialRow

SUITE = Path(__file__).parents[2] / "workloads"


def seen(**changed: object) -> Foreseen:
    given = {
        "files": (str(SUITE / "vector_add.toml"), str(SUITE / "rmsnorm.toml")),
        "seconds": 100.0,
        "loads": 5,
        "planted": 2,
        "without": ("tirx", "cuda"),
        **changed,
    }
    return foresee(Asked(**given), "nvidia-h200")  # type: ignore[arg-type]  # of the types it has there


def trial_row(kind: str = "triton", unplanted: str = "") -> TrialRow:
    row = Row(workload="w", case="a", implementation="k", role="kernel")
    launch = BoundLaunch(kind=kind, target="", path=())
    return TrialRow(row=row, source="", slower_than=0.01, unplanted=unplanted, launches=(launch,))


def test_rows_are_told_by_workload_and_by_duration() -> None:
    found = seen()
    assert {part.name for part in found.workloads} == {"vector_add", "rmsnorm"}
    assert sum(part.rows for part in found.durations) == found.rows
    for count in ("equal", "planted"):
        by_workload = sum(getattr(part, count) for part in found.workloads)
        assert by_workload == sum(getattr(part, count) for part in found.durations) > 0
    assert all(part.unpinned == 0 for part in found.workloads)
    assert next(found.markdown()).startswith(f"{found.rows} rows by the pins of nvidia-h200, ")


def test_more_devices_and_more_time_allow_more_virtual_runs() -> None:
    runs = [seen().runs, seen(gpus=("a", "b")).runs, seen(seconds=400.0).runs]
    assert runs == sorted(runs)
    assert runs[0] < runs[2]
    assert seen(seconds=1.0).runs == 1
    assert seen(seconds=1e6, sequences=7).runs == 7


def test_of_hardware_without_pins_every_row_is_taken_to_last_alike() -> None:
    found = foresee(Asked(files=(str(SUITE / "vector_add.toml"),), loads=2), "nvidia-none")
    assert sum(part.unpinned for part in found.workloads) == found.rows
    assert [part.rows for part in found.durations] == [found.rows]


def test_no_slowdown_is_foreseen_where_none_is_asked_for() -> None:
    assert sum(part.planted for part in seen(planted=0).workloads) == 0


@pytest.mark.parametrize(
    ("midmean_us", "launches"),
    [(1.5, 600 + 11), (50.0, 180 + 11), (200.0, 60 + 11), (3000.0, 8 + 11)],
)
def test_an_arm_takes_its_calls_with_their_flushes_and_rests(
    midmean_us: float, launches: int
) -> None:
    known = _known(trial_row(), midmean_us, Asked(files=()))
    assert known.arm_s == pytest.approx(launches * (midmean_us + 71.0) * (35 / 15) / 1e6)
    assert known.strength == 1


def test_what_compiles_anew_with_every_load_is_loaded_twice() -> None:
    assert _known(trial_row("tirx"), UNPINNED_US, Asked(files=())).loads(7) == 2
    assert _known(trial_row("triton"), UNPINNED_US, Asked(files=())).loads(7) == 7
    assert _known(trial_row(unplanted="why"), UNPINNED_US, Asked(files=())).strength is None
