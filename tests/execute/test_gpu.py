"""On a GPU: whatever one kernel does to the context, the next one computes in a sound one."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tirbench.execute import describe, has_cuda
from tirbench.execute.jobs import Surroundings, execute_in
from tirbench.execute.pool import Workers
from tirbench.model import CaseJob, Job, Plan, Verified

from .conftest import QUICK, Ran, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="needs an NVIDIA GPU")]


@pytest.fixture(scope="module")
def gpu_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        with Workers(tmp_path_factory.mktemp("servers"), preload=("torch", "triton")) as pool:
            pool.warm("cuda")
            yield pool


def run(folder: Path, workers: Workers, *names: str, verify_s: float = 60) -> Ran:
    where = Surroundings(
        log_dir=folder,
        start_worker=workers.start,
        lock=lambda *_: nullcontext(),
        deadlines=replace(QUICK, load_s=60, verify_s=verify_s, grace_s=5),
        opener="foreign_gpu:open_program",
    )
    cases = (
        CaseJob(case="one", rows=rows_of("one", *names)),
        CaseJob(case="two", rows=rows_of("two", "good")),
    )
    job = Job(workload="w", harness="w.py", plan=Plan(device="cuda"), cases=cases)
    with closing(execute_in(where, [job])) as events:
        return Ran(list(events))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("illegal_address", "illegal memory access"),
        ("device_assert", "device-side assert"),
        ("out_of_memory", "out of memory"),
    ],
)
def test_a_kernel_that_breaks_the_context_costs_only_itself(
    tmp_path: Path, gpu_workers: Workers, name: str, words: str
) -> None:
    ran = run(tmp_path, gpu_workers, name, "good")
    assert words in ran.failed(f"one.{name}").reason
    assert ran.good == {"one.good", "two.good"}


def test_an_endless_kernel_is_ended_and_the_gpu_is_free_again(
    tmp_path: Path, gpu_workers: Workers
) -> None:
    ran = run(tmp_path, gpu_workers, "endless", "good", verify_s=10)
    assert ran.failed("one.endless").reason.startswith("hung: ")
    assert ran.good == {"one.good", "two.good"}


def test_a_fresh_worker_is_soon_on_the_gpu(tmp_path: Path, gpu_workers: Workers) -> None:
    run(tmp_path, gpu_workers, "good")
    start = time.perf_counter()
    ran = run(tmp_path, gpu_workers, "good")
    print(f"fresh worker, context and two cases: {time.perf_counter() - start:.2f} s")  # noqa: T201
    assert isinstance(ran.outcomes["one.good"], Verified)


def test_the_gpu_is_described() -> None:
    machine = describe("cuda")
    print(machine)  # noqa: T201 - for the eye of whoever runs this on a new kind of machine
    assert machine.hardware.startswith("nvidia-")
    assert machine.unit
    assert machine.memory_bytes
