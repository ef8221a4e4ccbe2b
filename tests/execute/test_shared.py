"""Jobs that share a worker: one process as long as it is sound, and a fresh one after that."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.execute.conftest import Ran, job_of
from tirbench.execute.jobs import Surroundings, execute_in
from tirbench.model import Job

Cases = dict[str, dict[str, str]]


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    """Three harnesses of one case each."""
    return [job_of(tmp_path, {name: {"a": "is_good"}}, f"{name}.json") for name in ("x", "y", "z")]


def ran(surroundings: Surroundings, jobs: list[Job], *, shared: bool = True) -> Ran:
    found = Ran()
    with closing(execute_in(replace(surroundings, shared=shared), jobs)) as events:
        found.events.extend(events)
    return found


def processes(found: Ran) -> list[str]:
    return [found.process_of(f"{name}.a") for name in ("x", "y", "z")]


def test_jobs_have_workers_of_their_own_unless_they_share(
    surroundings: Surroundings, jobs: list[Job]
) -> None:
    assert len(set(processes(ran(surroundings, jobs, shared=False)))) == 3
    assert len(set(processes(ran(surroundings, jobs)))) == 1


@pytest.mark.parametrize("bad", ["segfaults", "changes_folder", "hangs"])
def test_a_worker_that_is_beyond_use_is_not_handed_on(
    surroundings: Surroundings, tmp_path: Path, jobs: list[Job], bad: str
) -> None:
    jobs[1] = job_of(tmp_path, {"y": {"a": bad}}, "y.json")
    found = ran(surroundings, jobs)
    first, last = (found.process_of(f"{name}.a") for name in ("x", "z"))
    assert first != last
    assert len(found.replaced) == 1


def test_a_harness_that_does_not_open_beside_another_is_tried_in_a_fresh_worker(
    surroundings: Surroundings, tmp_path: Path, jobs: list[Job]
) -> None:
    jobs[1] = job_of(tmp_path, {"y": {"a": "is_good"}}, "alone.json")
    one, two, three = processes(ran(surroundings, jobs))
    assert one != two == three


def test_a_harness_that_never_opens_costs_its_rows_alone(
    surroundings: Surroundings, tmp_path: Path, jobs: list[Job]
) -> None:
    (tmp_path / "y.json").write_text("no JSON")
    found = ran(surroundings, jobs)
    assert found.failed("y.a").stage == "load"
    assert found.good == {"x.a", "z.a"}
