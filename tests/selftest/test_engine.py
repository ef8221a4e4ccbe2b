"""A device that is broken is not what rows fail on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tirbench.errors import MeasurementError
from tirbench.model import Failed, Outcome, Row, Skipped
from tirbench.selftest.ask import Asked
from tirbench.selftest.engine import HOPELESS, Engine
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
    with pytest.raises(MeasurementError, match="3 workers timed nothing: CUDA error: device lost"):
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
