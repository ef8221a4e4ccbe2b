"""Several GPUs in one run: made-up UUIDs, real processes that leave a note of when they used which."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tirbench import codec
from tirbench.errors import MeasurementError
from tirbench.execute import execute_over, gpus
from tirbench.execute.events import RowDone
from tirbench.execute.machine import unit_of
from tirbench.execute.pool import Workers
from tirbench.execute.spread import _Lane, _Shared
from tirbench.model import Outcome, Timed, Verified

from .conftest import Ran, job_of, rows_of
from .nvml_stand_in import Nvml
from .test_attempt import timed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = str(Path(__file__).parent)


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels note which GPU they used, from when to when."""
    monkeypatch.setenv("TIRBENCH_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("TIRBENCH_TEST_NOTE", str(tmp_path / "used"))
    monkeypatch.syspath_prepend(HERE)
    return tmp_path / "used"


def on_cpu(folder: Path, environ: Mapping[str, str]) -> Workers:
    """Workers of a made-up GPU; those of a CPU see none, so its name goes by another variable."""
    named = {**environ, "TIRBENCH_TEST_GPU": environ["CUDA_VISIBLE_DEVICES"]}
    return Workers(folder, preload=("tirbench.codec",), environ=named)


def spread(folder: Path, uuids: tuple[str, ...], cases: dict[str, dict[str, str]]) -> Ran:
    folder.mkdir()
    with closing(
        execute_over(
            uuids,
            [job_of(folder, cases)],
            log_dir=folder / "logs",
            workers_of=on_cpu,
            opener="foreign:open_program",
        )
    ) as events:
        return Ran(list(events))


def intervals(used: Path) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for line in used.read_text().splitlines():
        note: dict[str, Any] = json.loads(line)
        found.setdefault(note["gpu"], []).append((note["start"], note["end"]))
    return {gpu: sorted(times) for gpu, times in found.items()}


def test_cases_are_spread_over_all_gpus_and_answered_once(tmp_path: Path, used: Path) -> None:
    cases = {f"c{n}": {"a": "uses_the_gpu"} for n in range(12)}
    ran = spread(tmp_path / "run", ("GPU-a", "GPU-b"), cases)
    assert ran.good == {f"{case}.a" for case in cases}
    seen = intervals(used)
    assert seen.keys() == {"GPU-a", "GPU-b"}
    assert min(len(times) for times in seen.values()) >= 3
    starts_a, starts_b = seen["GPU-a"][0][0], seen["GPU-b"][0][0]
    assert max(starts_a, starts_b) < min(seen["GPU-a"][-1][1], seen["GPU-b"][-1][1])


def test_two_runs_never_use_one_gpu_at_once(tmp_path: Path, used: Path) -> None:
    cases = {f"c{n}": {"a": "uses_the_gpu"} for n in range(6)}
    threads = [
        threading.Thread(target=spread, args=(tmp_path / name, ("GPU-a", "GPU-b"), cases))
        for name in ("one", "two")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = intervals(used)
    assert sum(map(len, seen.values())) == 12
    for times in seen.values():
        for (_, end), (start, _) in pairwise(times):
            assert end <= start


def test_a_bad_kernel_on_one_gpu_costs_only_itself(tmp_path: Path, used: Path) -> None:
    cases = {
        f"c{n}": {"a": "uses_the_gpu", "b": "segfaults" if n == 2 else "is_good"} for n in range(8)
    }
    ran = spread(tmp_path / "run", ("GPU-a", "GPU-b"), cases)
    assert len(ran.outcomes) == 16
    assert {name for name in ran.outcomes if name not in ran.good} == {"c2.b"}
    assert used.exists()


def test_no_gpu_goes_on_before_its_row_is_taken(tmp_path: Path, used: Path) -> None:
    (folder := tmp_path / "run").mkdir()
    job = job_of(folder, {f"c{n}": {"a": "uses_the_gpu"} for n in range(4)})
    options = {"workers_of": on_cpu, "opener": "foreign:open_program"}
    events = execute_over(("GPU-a",), [job], log_dir=folder / "logs", **options)  # type: ignore[arg-type]
    with closing(events):
        next(event for event in events if isinstance(event, RowDone))
        time.sleep(0.3)
        assert len(used.read_text().splitlines()) == 1


def test_ending_the_run_ends_every_gpu_soon(tmp_path: Path, used: Path) -> None:
    (folder := tmp_path / "run").mkdir()
    job = job_of(folder, {f"c{n}": {"a": "is_good", "b": "hangs"} for n in range(4)})
    options = {"workers_of": on_cpu, "opener": "foreign:open_program"}
    events = execute_over(("GPU-a", "GPU-b"), [job], log_dir=folder / "logs", **options)  # type: ignore[arg-type]
    pids = []
    with closing(events):
        for event in events:
            if isinstance(event, RowDone):
                assert isinstance(event.outcome, Verified)
                pids.append(int(event.outcome.verification.detail))
            if len(pids) == 2:
                break
        time.sleep(0.2)  # both are in the kernel that hangs now
        start = time.monotonic()
    assert time.monotonic() - start < 4
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert all(thread.name != "lane" for thread in threading.enumerate())
    assert not used.exists()


def test_a_time_says_which_unit_it_is_of() -> None:
    lane = _Lane("GPU-a", None, _Shared(deque()))  # type: ignore[arg-type]
    (row,) = rows_of("one", "a")
    outcome = codec.load(Outcome, timed(row)["outcome"])
    signed = lane._signed(RowDone(outcome=outcome))
    assert isinstance(signed, RowDone)
    assert isinstance(signed.outcome, Timed)
    assert signed.outcome.unit == unit_of("GPU-a")


# --- Which GPUs -----------------------------------------------------------------------------------


def test_all_visible_gpus_or_the_first_of_them() -> None:
    library = Nvml({}, {}, {})
    first, second, third = (gpu["uuid"] for gpu in library.gpus)
    assert gpus(0, {}, library) == (first, second, third)
    assert gpus(2, {}, library) == (first, second)
    assert gpus(0, {"CUDA_VISIBLE_DEVICES": "2,0"}, library) == (third, first)


def test_a_divided_gpu_counts_with_each_of_its_instances() -> None:
    library = Nvml({}, {"mig": ["MIG-a", "MIG-b"]})
    assert gpus(0, {}, Nvml({"mig": ["MIG-a", "MIG-b"]})) == ("MIG-a", "MIG-b")
    with pytest.raises(MeasurementError, match="a run is of one product"):
        gpus(0, {}, library)
    assert gpus(1, {"CUDA_VISIBLE_DEVICES": "MIG-1"}, library) == ("MIG-1",)


@pytest.mark.parametrize(
    ("count", "library", "message"),
    [
        (3, lambda: Nvml({}, {}), "--gpus 3: 2 GPUs are visible"),
        (0, Nvml, "--gpus all: 0 GPUs are visible"),
        (0, lambda: Nvml({}, {"name": "NVIDIA H100"}), "name some of them in CUDA_VISIBLE_DEVICES"),
        (0, lambda: Nvml(broken="Insufficient Permissions"), "Insufficient Permissions"),
    ],
)
def test_gpus_that_cannot_be_had_are_refused(
    count: int, library: Callable[[], Nvml], message: str
) -> None:
    with pytest.raises(MeasurementError, match=message):
        gpus(count, {}, library())
