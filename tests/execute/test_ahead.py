"""Builders beside a run: real processes, whose worst costs the run nothing but a head start."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tirbench.errors import MeasurementError
from tirbench.execute.ahead import REPLACEMENTS, Ahead, ToBuild
from tirbench.execute.events import Reported, StageStarted
from tirbench.execute.jobs import execute_in
from tirbench.execute.processes import command_of

from .conftest import Ran, job_of

if TYPE_CHECKING:
    from tirbench.execute.jobs import Surroundings
    from tirbench.execute.pool import Worker, Workers

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="the system does not pin processes"
)


class Site:
    """Builders in a folder, and what they noted there."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        self.folder = folder
        self.workers = workers
        self.note = folder / "note"
        self.until = folder / "until"
        self.started: list[Worker] = []
        self.cores = sorted(os.sched_getaffinity(0))

    def start(self) -> Worker:
        self.started.append(self.workers.start_builder("cpu", self.cores[-1:]))
        return self.started[-1]

    def case(self, what: str) -> ToBuild:
        request = {"do": what, "note": str(self.note), "until": str(self.until)}
        return ToBuild(case=f"w/{what}", request=request)

    def ahead(self, *shares: tuple[str, ...], silence_s: float = 60) -> Ahead:
        return Ahead(
            [[self.case(what) for what in share] for share in shares],
            self.start,
            opener="foreign_builds:build",
            log=self.folder / "ahead.log",
            silence_s=silence_s,
        )

    @property
    def noted(self) -> list[str]:
        return self.note.read_text().split() if self.note.exists() else []


@pytest.fixture
def site(tmp_path: Path, workers: Workers) -> Site:
    return Site(tmp_path, workers)


def until(ahead: Ahead, done: Callable[[], bool], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end, ahead.built
        ahead.look()
        time.sleep(0.01)


def began(case: str) -> StageStarted:
    return StageStarted(workload="w", case=case, implementation=None, stage="allocate")


def test_cases_are_built_in_their_order_and_counted(site: Site) -> None:
    with closing(site.ahead(("one", "two", "raises", "three"))) as ahead:
        until(ahead, lambda: ahead.built.cases == 4)
    assert site.noted == ["one", "two", "raises", "three"]
    assert (ahead.built.kernels, ahead.built.compiled, ahead.built.failed) == (6, 3, 1)
    assert ahead.built.seconds >= 0
    assert "w/raises: ValueError: no such kernel" in (site.folder / "ahead.log").read_text()
    assert len(site.started) == 1


def test_a_builder_that_is_done_has_ended(site: Site) -> None:
    with closing(site.ahead(("one",))) as ahead:
        until(ahead, lambda: site.started[0].exit_status is not None)
    assert ahead.built.cases == 1
    assert ahead.built.replaced == 0


def test_a_builder_keeps_to_its_cores_yields_and_sees_no_gpu(site: Site) -> None:
    with closing(site.ahead(("tells",))) as ahead:
        until(ahead, lambda: ahead.built.cases == 1)
    assert json.loads(site.until.read_text()) == {
        "cores": site.cores[-1:],
        "gpus": "",
        "nice": os.nice(0) + 10,
        "leads": True,
    }


def test_workers_keep_to_the_cores_that_measure(
    tmp_path: Path, workers: Workers, surroundings: Surroundings
) -> None:
    first = sorted(os.sched_getaffinity(0))[:1]
    workers.cores = first
    try:
        job = job_of(tmp_path, {"one": {"a": "tells_its_cores"}})
        with closing(execute_in(surroundings, [job])) as events:
            ran = Ran(list(events))
    finally:
        workers.cores = ()
    assert ran.log("one").split("cores ")[1].split()[0] == str(first[0])


def test_what_the_worker_has_begun_is_not_built_any_more(site: Site) -> None:
    with closing(site.ahead(("waits", "two", "three"))) as ahead:
        until(ahead, lambda: site.noted == ["waits"])
        ahead.look(began("two"))
        site.until.touch()
        until(ahead, lambda: ahead.built.cases == 2)
    assert site.noted == ["waits", "three"]


def test_builders_share_the_cases(site: Site) -> None:
    with closing(site.ahead(("one", "three"), ("two",))) as ahead:
        until(ahead, lambda: ahead.built.cases == 3)
    assert sorted(site.noted) == ["one", "three", "two"]
    assert len(site.started) == 2


def test_a_builder_that_dies_is_replaced_without_the_case_it_was_at(site: Site) -> None:
    with closing(site.ahead(("one", "dies", "two"))) as ahead:
        until(ahead, lambda: ahead.built.cases == 2)
    assert site.noted == ["one", "dies", "two"]
    assert (ahead.built.failed, ahead.built.replaced) == (1, 1)


def test_a_kernel_file_that_ends_its_process_costs_its_case(site: Site) -> None:
    with closing(site.ahead(("exits", "two"))) as ahead:
        until(ahead, lambda: ahead.built.cases == 2)
    assert site.noted == ["exits", "two"]
    assert (ahead.built.failed, ahead.built.replaced) == (1, 0)


def test_a_builder_that_hangs_is_killed_and_replaced(site: Site) -> None:
    with closing(site.ahead(("hangs", "two"), silence_s=0.5)) as ahead:
        until(ahead, lambda: ahead.built.cases == 1)
    assert site.noted == ["hangs", "two"]
    assert site.started[0].exit_status == -9
    assert ahead.built.replaced == 1


def test_what_breaks_too_often_is_given_up(site: Site) -> None:
    cases = [site.case("dies") for _ in range(REPLACEMENTS + 2)]
    named = [ToBuild(case=f"w/{number}", request=one.request) for number, one in enumerate(cases)]
    ahead = Ahead([named], site.start, opener="foreign_builds:build", log=site.folder / "ahead.log")
    with closing(ahead):
        until(ahead, lambda: ahead.built.failed == REPLACEMENTS + 1)
        for _ in range(20):
            ahead.look()
    assert len(site.noted) == len(site.started) == REPLACEMENTS + 1


def test_what_is_no_number_is_not_counted(site: Site) -> None:
    with closing(site.ahead(("lies", "two"))) as ahead:
        until(ahead, lambda: ahead.built.cases == 2)
    assert (ahead.built.kernels, ahead.built.compiled, ahead.built.failed) == (2, 1, 0)


def test_closing_ends_a_builder_at_its_work(site: Site) -> None:
    ahead = site.ahead(("hangs",))
    until(ahead, lambda: site.noted == ["hangs"])
    ahead.close()
    assert site.started[0].exit_status == -9
    assert not command_of(site.started[0].pid)


def test_a_server_that_is_gone_builds_nothing_and_raises_nothing(site: Site) -> None:
    def refuse() -> Worker:
        raise MeasurementError("the server that workers are forked from ended")

    ahead = Ahead(
        [[site.case("one")]], refuse, opener="foreign_builds:build", log=site.folder / "ahead.log"
    )
    ahead.look(began("one"))
    ahead.close()
    assert ahead.built.cases == 0


def test_an_opener_that_cannot_be_imported_is_given_up(site: Site) -> None:
    ahead = Ahead(
        [[site.case("one")]], site.start, opener="no_such:build", log=site.folder / "ahead.log"
    )
    with closing(ahead):
        until(ahead, lambda: len(site.started) == REPLACEMENTS + 1)
    assert "No module named 'no_such'" in (site.folder / "ahead.log").read_text()


def test_a_run_is_the_same_whatever_becomes_of_its_builder(
    site: Site, surroundings: Surroundings
) -> None:
    job = job_of(
        site.folder,
        {name: {"a": "is_good", "b": "segfaults"} for name in ("dies", "hangs", "three")},
    )

    def watched(ahead: Ahead) -> Iterator[object]:
        with closing(execute_in(surroundings, [job])) as events:
            for event in events:
                ahead.look(event)
                yield event

    with closing(site.ahead(("raises", "dies", "hangs", "three"), silence_s=0.05)) as ahead:
        ran = Ran(list(watched(ahead)))  # type: ignore[arg-type]
    assert ran.good == {"dies.a", "hangs.a", "three.a"}
    assert {ran.failed(f"{case}.b").reason for case in ("dies", "hangs", "three")} == {
        "crashed: SIGSEGV"
    }


def test_what_workers_found_and_compiled_is_counted(site: Site) -> None:
    counted = {"event": "kernels", "case": "one", "found": 3, "compiled": 1, "seconds": 0.54}
    with closing(site.ahead()) as ahead:
        for _ in range(2):
            ahead.look(Reported(workload="w", case="one", data=counted))
    assert (ahead.built.found, ahead.built.late, ahead.built.late_seconds) == (6, 2, 1.1)
    assert not site.started
