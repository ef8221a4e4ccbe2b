"""A device that is broken is not what rows fail on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tirbench.errors import MeasurementError
from tirbench.model import Estimate, Failed, Outcome, Row, Skipped, Timed, Verification
from tirbench.selftest.ask import Asked
from tirbench.selftest.engine import HOPELESS, Engine, _Took
from tirbench.selftest.lanes import Lane
from tirbench.selftest.readings import Writer
from tirbench.selftest.trees import Trees


def engine(tmp_path: Path, gpus: tuple[str, ...]) -> Engine:
    trees = Trees(project=tmp_path, folder=tmp_path, trees={}, harnesses={}, workloads={}, rows=())
    return Engine(
        asked=Asked(files=(), gpus=gpus),
        trees=trees,
        writer=Writer(tmp_path / "readings.jsonl"),
        run="r1",
        before=(),
        watch=lambda _: None,
        say=lambda _: None,
        hardware="nvidia-h200",
    )


def lane() -> Lane:
    return Lane(uuid="one", folder=Path(), workers=cast("Any", SimpleNamespace()), environ={})


def failing(number: int) -> dict[str, Outcome]:
    row = Row(workload=f"w{number}", case="a", implementation="k", role="kernel")
    return {row.key: Failed(row=row, stage="allocate", reason="CUDA error: device lost")}


def fail(made: Engine, on: Lane, numbers: range) -> None:
    for number in numbers:
        done = failing(number)
        made._count(on, done)
        for key, outcome in done.items():
            made._fail(key, outcome)


def test_a_device_on_which_worker_after_worker_times_nothing_is_lost_and_its_rows_are_not(
    tmp_path: Path,
) -> None:
    made = engine(tmp_path, ("one", "two"))
    with pytest.raises(
        MeasurementError, match="3 workloads had nothing timed: CUDA error: device lost"
    ):
        fail(made, lane(), range(HOPELESS))
    assert made.budget.failed == {}


def test_where_there_is_no_other_device_rows_fail_as_they_do(tmp_path: Path) -> None:
    made = engine(tmp_path, ())
    fail(made, lane(), range(2 * HOPELESS))
    assert len(made.budget.failed) == 2 * HOPELESS


def test_a_worker_that_times_anything_or_skips_all_clears_the_count(tmp_path: Path) -> None:
    made, on = engine(tmp_path, ("one", "two")), lane()
    fail(made, on, range(HOPELESS - 1))
    row = Row(workload="w", case="a", implementation="k", role="kernel")
    made._count(on, {row.key: Skipped(row=row, reason="needs another GPU")})
    fail(made, on, range(HOPELESS - 1))
    assert len(made.budget.failed) == HOPELESS - 1


def timed(workload: str) -> Timed:
    row = Row(workload=workload, case="a", implementation="k", role="kernel")
    estimate = Estimate(
        timer="proton",
        midmean_us=1.0,
        half_width_us=None,
        mean_us=1.0,
        median_us=1.0,
        min_us=1.0,
        p10_us=1.0,
        p90_us=1.0,
        calls=1,
        placements_us=(1.0,),
        within_sd=0.0,
    )
    unchecked = Verification(method="unchecked", worst=None)
    return Timed(row=row, verification=unchecked, estimate=estimate)


def test_a_device_that_is_lost_among_the_workloads_of_one_worker_is_lost_too(
    tmp_path: Path,
) -> None:
    made = engine(tmp_path, ("one", "two"))
    done: dict[str, Outcome] = {"w0/a/k": timed("w0")}
    for number in range(1, HOPELESS + 1):
        done |= failing(number)
    with pytest.raises(MeasurementError, match="CUDA error: device lost"):
        made._count(lane(), done)
    assert made.budget.failed == {}


def test_rows_that_fail_before_others_are_timed_fail_by_themselves(tmp_path: Path) -> None:
    made, on = engine(tmp_path, ("one", "two")), lane()
    done: dict[str, Outcome] = {}
    for number in range(1, HOPELESS + 1):
        done |= failing(number)
    made._count(on, {**done, "w0/a/k": timed("w0")})
    assert on.failures == []


def test_the_beginning_of_a_worker_is_no_workload_s() -> None:
    times = iter([0.0, 2.0, 3.0, 7.0, 9.0])
    took = _Took(lambda: next(times))
    took.see("a")
    took.see("a", 0.5)
    took.see("b", 3.0)
    assert took.start_s == 2.0
    assert took.beside_s() == {"a": 0.5, "b": 1.0}
