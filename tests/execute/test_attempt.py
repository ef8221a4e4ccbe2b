"""Who is charged with what: the decisions of the parent, with workers that are only scripts."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench import codec
from tirbench.errors import MeasurementError
from tirbench.execute.attempt import Attempt, Limits
from tirbench.execute.deadlines import Deadlines
from tirbench.execute.jobs import Surroundings, execute_in
from tirbench.execute.telemetry import Disturbance, NoWatch
from tirbench.model import (
    CaseJob,
    Estimate,
    Failed,
    Job,
    Plan,
    Row,
    Skipped,
    Timed,
    Verification,
    Verified,
)

from .conftest import Ran, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tirbench.model import Outcome

STICKY = "AcceleratorError: CUDA error: an illegal memory access was encountered"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Scripted:
    """A worker whose side of the talk is a generator: messages, seconds of silence, or its end."""

    def __init__(self, clock: Clock, script: Callable[[CaseJob], Iterator[Any]]) -> None:
        self.pid = 1
        self.exit_status: int | None = None
        self.lost = False
        self.aborted_after_s: float | None = None
        self.killed = False
        self._clock = clock
        self._script = script
        self._said: Iterator[Any] = iter(())
        self._silent_s = 0.0

    def send(self, message: dict[str, Any]) -> None:
        if message["do"] == "open":
            self._said = iter([{"event": "opened"}])
        else:
            self._said = self._script(codec.load(CaseJob, message["case_job"]))

    def receive(self, timeout_s: float) -> list[dict[str, Any]]:
        if self.exit_status is not None:
            return []
        if not self._silent_s:
            said = next(self._said, {"event": "case_done", "damage": []})
            if isinstance(said, dict):
                return [said]
            if isinstance(said, int):
                self.exit_status = said
                return []
            self._silent_s = float(said)
        passed = min(timeout_s, self._silent_s)
        self._silent_s -= passed
        self._clock.now_s += passed
        return []

    def abort(self, grace_s: float) -> None:
        self.aborted_after_s = self._clock.now_s
        self.exit_status = -6
        assert grace_s == 5

    def kill(self) -> None:
        self.killed = True


def stage(name: str, implementation: str | None = None) -> dict[str, Any]:
    return {"event": "stage", "implementation": implementation, "stage": name}


def said(outcome: Outcome) -> dict[str, Any]:
    return {"event": "outcome", "outcome": codec.dump(outcome)}


def verified(row: Row) -> dict[str, Any]:
    method = Verification(method="oracle", worst=0.1)
    return said(Verified(row=row, verification=method, untimed="a test"))


def timed(row: Row) -> dict[str, Any]:
    estimate = Estimate(
        timer="wall", midmean_us=1.0, half_width_us=0.1, mean_us=1.0, median_us=1.0, min_us=1.0,
        p10_us=1.0, p90_us=1.0, calls=10, placements_us=(1.0,), within_sd=0.01,
    )  # fmt: skip
    return said(
        Timed(row=row, verification=Verification(method="oracle", worst=0.1), estimate=estimate)
    )


def failed(row: Row, reason: str) -> dict[str, Any]:
    return said(Failed(row=row, stage="time", reason=reason))


def out_of_memory(row: Row) -> dict[str, Any]:
    reason = "OutOfMemoryError: CUDA out of memory"
    return said(Failed(row=row, stage="allocate", reason=reason, cause="out_of_memory"))


class Play:
    """A run of one job whose workers follow one script."""

    def __init__(self, folder: Path, script: Callable[[CaseJob], Iterator[Any]]) -> None:
        self.clock = Clock()
        self.workers: list[Scripted] = []
        self.surroundings = Surroundings(
            log_dir=folder,
            start_worker=self.start,
            lock=lambda *_: nullcontext(),
            watch=lambda *_: NoWatch(),
            clock=self.clock,
        )
        self.script = script

    def start(self, _: Job) -> Scripted:
        self.workers.append(Scripted(self.clock, self.script))
        return self.workers[-1]

    def run(self, *cases: str, names: str = "ab") -> Ran:
        jobs = [
            Job(
                workload="w",
                harness="w.py",
                plan=Plan(device="cpu"),
                cases=tuple(CaseJob(case=case, rows=rows_of(case, *names)) for case in cases),
            )
        ]
        with closing(execute_in(self.surroundings, jobs)) as events:
            return Ran(list(events))


def test_a_hang_of_rows_timed_together_is_found_by_running_each_alone(tmp_path: Path) -> None:
    def script(job: CaseJob) -> Iterator[Any]:
        names = [row.implementation for row in job.rows]
        for row in job.rows:
            yield stage("verify", row.implementation)
        yield stage("time", names[0] if len(names) == 1 else None)
        if "b" in names:
            yield 1000.0
        for row in job.rows:
            yield timed(row)

    ran = Play(tmp_path, script).run("one", names="abc")
    assert ran.failed("one.b").reason == "hung: no progress in 300 s in stage time"
    outcome = ran.outcomes["one.c"]
    assert isinstance(outcome, Timed)
    assert outcome.notes == (
        "run alone in a fresh worker (hung: no progress in 300 s in stage time)",
    )


def test_a_broken_context_after_timing_together_is_charged_to_none_of_them_unseen(
    tmp_path: Path,
) -> None:
    def script(job: CaseJob) -> Iterator[Any]:
        names = [row.implementation for row in job.rows]
        broken = "b" in names
        yield stage("time", names[0] if len(names) == 1 else None)
        for row in job.rows:  # the harness goes on with each alone, in the context that b broke
            yield stage("time", row.implementation)
            yield failed(row, STICKY) if broken else timed(row)

    ran = Play(tmp_path, script).run("one", names="abc")
    assert ran.failed("one.b").reason == STICKY
    assert isinstance(ran.outcomes["one.a"], Timed)
    assert isinstance(ran.outcomes["one.c"], Timed)


def test_a_broken_context_ends_the_attempt_before_it_is_charged_to_another(tmp_path: Path) -> None:
    def script(job: CaseJob) -> Iterator[Any]:
        broken = False
        for row in job.rows:
            broken |= row.implementation == "a"
            yield stage("verify", row.implementation)
            yield failed(row, STICKY) if broken else verified(row)

    play = Play(tmp_path, script)
    ran = play.run("one", "two")
    assert ran.good == {"one.b", "two.b"}
    assert len(play.workers) == 3
    assert all(worker.killed for worker in play.workers)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("load", 120),
        ("allocate", 60),
        ("build", 600),
        ("verify", 120),
        ("time", 300),
        ("reverify", 120),
    ],
)
def test_each_stage_has_a_deadline_of_its_own(tmp_path: Path, name: str, seconds: float) -> None:
    def script(_: CaseJob) -> Iterator[Any]:
        for _again in range(3):  # each announcement starts the clock anew
            yield stage(name, "a")
            yield seconds - 1.0
        yield stage(name, "a")
        yield seconds + 1.0

    play = Play(tmp_path, script)
    assert play.run("one", names="a").failed("one.a").stage == name
    assert play.workers[0].aborted_after_s == pytest.approx(3 * (seconds - 1) + seconds)


def test_a_worker_that_dies_before_its_next_case_begins_costs_that_case_nothing(
    tmp_path: Path,
) -> None:
    dead: list[str] = []

    def script(job: CaseJob) -> Iterator[Any]:
        if job.case == "two" and not dead:
            dead.append("once")
            yield -11
        for row in job.rows:
            yield stage("verify", row.implementation)
            yield verified(row)

    assert Play(tmp_path, script).run("one", "two").good == {"one.a", "one.b", "two.a", "two.b"}


def test_a_fresh_worker_that_dies_before_its_case_begins_fails_the_case_only(
    tmp_path: Path,
) -> None:
    def script(job: CaseJob) -> Iterator[Any]:
        if job.case == "one":
            yield -11
        for row in job.rows:
            yield stage("verify", row.implementation)
            yield verified(row)

    ran = Play(tmp_path, script).run("one", "two")
    assert {ran.failed(f"one.{name}").reason for name in "ab"} == {"crashed: SIGSEGV"}
    assert ran.good == {"two.a", "two.b"}


def test_memory_that_other_cases_kept_is_no_fault_of_the_row_that_finds_none(
    tmp_path: Path,
) -> None:
    """What leaks cannot be seen from outside; that a fresh worker has room can."""
    asked: list[str] = []

    def script(job: CaseJob) -> Iterator[Any]:
        asked.append(job.case)
        for row in job.rows:
            yield stage("allocate")
            if asked == ["one", "two"]:
                yield out_of_memory(row)
            else:
                yield verified(row)

    ran = Play(tmp_path, script).run("one", "two")
    assert asked == ["one", "two", "two"]
    assert ran.good == {"one.a", "one.b", "two.a", "two.b"}
    assert ran.replaced == ["memory ran out in a worker that had run other cases"]
    outcome = ran.outcomes["two.a"]
    assert isinstance(outcome, Verified)
    assert outcome.notes == (
        "run in a fresh worker (memory ran out in a worker that had run other cases)",
    )


def test_a_worker_that_the_system_kills_for_its_memory_is_not_blamed_on_its_latest_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter(range(100))
    monkeypatch.setattr("tirbench.execute.processes.memory_kills", lambda: next(kills))
    asked: list[str] = []

    def script(job: CaseJob) -> Iterator[Any]:
        asked.append(job.case)
        for row in job.rows:
            yield stage("verify", row.implementation)
            if asked == ["one", "two"]:
                yield -9
            yield verified(row)

    ran = Play(tmp_path, script).run("one", "two")
    assert ran.good == {"one.a", "one.b", "two.a", "two.b"}


def test_a_kernel_that_needs_more_memory_than_there_is_fails_in_a_fresh_worker_too(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def script(job: CaseJob) -> Iterator[Any]:
        asked.append(job.case)
        for row in job.rows:
            yield stage("verify", row.implementation)
            greedy = job.case == "two" and row.implementation == "a"
            yield out_of_memory(row) if greedy else verified(row)

    ran = Play(tmp_path, script).run("one", "two")
    assert asked == ["one", "two", "two"]
    assert ran.failed("two.a").cause == "out_of_memory"
    assert ran.good == {"one.a", "one.b", "two.b"}


def test_a_row_without_an_answer_has_failed(tmp_path: Path) -> None:
    def script(job: CaseJob) -> Iterator[Any]:
        yield verified(job.rows[0])

    ran = Play(tmp_path, script).run("one")
    assert ran.failed("one.b").reason == "the harness ended without an answer for this row"


def test_the_first_answer_counts_and_answers_nobody_asked_for_do_not(tmp_path: Path) -> None:
    def script(job: CaseJob) -> Iterator[Any]:
        yield verified(job.rows[0])
        yield failed(job.rows[0], "changed its mind")
        yield verified(Row(workload="w", case="other", implementation="a", role="kernel"))
        yield said(Skipped(row=job.rows[1], reason="no GPU"))

    ran = Play(tmp_path, script).run("one")
    assert ran.good == {"one.a"}
    assert len(ran.outcomes) == 2


def test_an_answer_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    def script(_: CaseJob) -> Iterator[Any]:
        yield stage("verify", "a")
        yield {"event": "outcome", "outcome": {"type": "timed", "row": 7}}

    reason = Play(tmp_path, script).run("one", names="a").failed("one.a").reason
    assert reason.startswith("the harness gave an answer that cannot be read: ")


def test_a_server_that_does_not_come_up_fails_the_rows_with_what_it_printed(tmp_path: Path) -> None:
    play = Play(tmp_path, lambda _: iter(()))

    def refuse(_: Job) -> Scripted:
        raise MeasurementError("the server ended:\nImportError: libcudart.so.12")

    play.surroundings = replace(play.surroundings, start_worker=refuse)
    failure = play.run("one", "two").failed("two.a")
    assert (failure.stage, failure.reason) == ("load", "the server ended")
    assert failure.detail == "ImportError: libcudart.so.12"


def test_a_device_that_stays_taken_fails_the_rows_once_and_for_all(tmp_path: Path) -> None:
    asked: list[str] = []

    def taken(_: Job, case: CaseJob) -> Any:
        asked.append(case.case)
        raise MeasurementError("GPU-1 was in use by another tirbench for 9 s")

    play = Play(tmp_path, lambda _: iter(()))
    play.surroundings = replace(play.surroundings, lock=taken)
    ran = play.run("one", "two")
    assert {ran.failed(name).reason for name in ran.outcomes} == {
        "GPU-1 was in use by another tirbench for 9 s"
    }
    assert asked == ["one"]
    assert play.workers == []


def test_good_rows_carry_what_the_watch_saw_while_they_were_timed(tmp_path: Path) -> None:
    class Seen(NoWatch):
        calls: list[str] = []  # noqa: RUF012 - one watch, read by the test

        def begin(self) -> None:
            self.calls.append("begin")

        def notes(self) -> tuple[str, ...]:
            return ("thermal slowdown while timed",)

        def facts(self) -> dict[str, Any]:
            return {"sm_mhz": [1, 2, 3]}

        def pause(self) -> None:
            self.calls.append("pause")

    def script(job: CaseJob) -> Iterator[Any]:
        yield stage("time")
        yield stage("allocate")
        yield stage("time")
        yield from map(timed, job.rows)

    row_job = CaseJob(case="one", rows=rows_of("one", "a"))
    clock, watch = Clock(), Seen()
    limits = Limits(deadlines=Deadlines(), clock=clock, log=tmp_path / "log")
    attempt = Attempt(Scripted(clock, script), row_job, limits, watch, used=False)
    ran = Ran(list(attempt.events()))
    outcome = ran.outcomes["one.a"]
    assert isinstance(outcome, Timed)
    assert outcome.notes == ("thermal slowdown while timed",)
    assert ran.reported == [{"event": "telemetry", "case": "one", "sm_mhz": [1, 2, 3]}]
    assert watch.calls == ["begin", "pause"]


class Disturbed(NoWatch):
    """Something disturbs the device while times are taken, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def begin(self) -> None:
        self.left -= 1

    def disturbance(self) -> Disturbance | None:
        if self.left < 0:
            return None
        return Disturbance(cause="throttled", words="thermal slowdown while timed")


def times_all(job: CaseJob) -> Iterator[Any]:
    yield stage("time")
    yield from map(timed, job.rows)


@pytest.mark.parametrize("times", [1, 2])
def test_times_that_something_disturbed_are_taken_again_and_say_so(
    tmp_path: Path, times: int
) -> None:
    play, watch = Play(tmp_path, times_all), Disturbed(times)
    rested: list[float] = []
    play.surroundings = replace(play.surroundings, watch=lambda *_: watch, sleep=rested.append)
    ran = play.run("one")
    for name in ("one.a", "one.b"):
        outcome = ran.outcomes[name]
        assert isinstance(outcome, Timed)
        assert outcome.notes == ("measured again (thermal slowdown while timed)",) * times
    assert rested == [2.0] * times
    assert len(play.workers) == 1


def test_times_that_are_disturbed_every_time_are_no_result(tmp_path: Path) -> None:
    play, watch = Play(tmp_path, times_all), Disturbed(99)
    play.surroundings = replace(play.surroundings, watch=lambda *_: watch, sleep=lambda _: None)
    ran = play.run("one")
    for name in ("one.a", "one.b"):
        assert ran.failed(name).reason == (
            "thermal slowdown while timed, in each of 3 measurements"
        )
        assert (ran.failed(name).stage, ran.failed(name).cause) == ("time", "throttled")


def test_a_harness_that_crashed_once_is_opened_again(tmp_path: Path) -> None:
    class Unlucky(Scripted):
        def receive(self, timeout_s: float) -> list[dict[str, Any]]:
            self.exit_status = -9
            return super().receive(timeout_s)

    play = Play(tmp_path, lambda job: iter([verified(row) for row in job.rows]))
    kinds = [Unlucky, Scripted]
    play.surroundings = replace(
        play.surroundings, start_worker=lambda _: kinds.pop(0)(play.clock, play.script)
    )
    assert play.run("one").good == {"one.a", "one.b"}
    assert kinds == []


ENDS = st.sampled_from(
    ["good", "crash", "hang", "raise", "sticky", "silent", "crash before", "unread"]
)


@given(
    behaviours=st.lists(st.tuples(ENDS, st.booleans()), min_size=1, max_size=5),
    at_start=st.sampled_from(["good", "crash", "hang", "raise"]),
    together=st.sampled_from(["good", "crash", "hang", "raise"]),
)
def test_every_row_has_one_outcome_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory,
    behaviours: list[tuple[str, bool]],
    at_start: str,
    together: str,
) -> None:
    names = "abcde"[: len(behaviours)]
    of = dict(zip(names, behaviours, strict=True))
    events = {"crash": -11, "hang": 1e4, "raise": {"event": "raised", "reason": "E", "detail": ""}}

    def script(job: CaseJob) -> Iterator[Any]:
        yield stage("allocate")
        if at_start != "good" and job.case == "one":
            yield events[at_start]
        if len(job.rows) > 1 and together != "good":
            yield stage("time")
            yield events[together]
        for row in job.rows:
            behaviour, announced = of[row.implementation]
            if behaviour == "crash before":
                yield -11
            if announced:
                yield stage("verify", row.implementation)
            if behaviour in events:
                yield events[behaviour]
            elif behaviour == "sticky":
                yield failed(row, STICKY)
            elif behaviour == "unread":
                yield {"event": "outcome", "outcome": None}
            elif behaviour != "silent":
                yield verified(row)

    ran = Play(tmp_path_factory.mktemp("logs"), script).run("one", "two", names=names)
    assert set(ran.outcomes) == {f"{case}.{name}" for case in ("one", "two") for name in names}
    good = {f"two.{name}" for name, (behaviour, _) in of.items() if behaviour == "good"}
    if all(announced for _, announced in behaviours) and "crash before" not in dict(behaviours):
        assert good <= ran.good
