"""Real processes and kernels that do everything a kernel under development does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tirbench.execute import execute
from tirbench.execute.events import RowDone
from tirbench.execute.jobs import execute_in
from tirbench.execute.lock import DeviceLock
from tirbench.execute.processes import command_of
from tirbench.model import DeadlineChoice, Verified, Wrong

from .conftest import Ran, job_of

if TYPE_CHECKING:
    from tirbench.execute.jobs import Surroundings
    from tirbench.execute.pool import Workers

    from .conftest import Runner


KILLED = "crashed: SIGKILL, not by tirbench (the system may be out of memory)"


def gone(pid: int, within_s: float = 5.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not command_of(pid):
            return True
        time.sleep(0.02)
    return False


def test_all_cases_of_a_job_run_in_one_worker_that_is_not_this_process(run: Runner) -> None:
    ran = run({"one": {"a": "is_good", "b": "is_good"}, "two": {"a": "is_good"}})
    assert ran.good == {"one.a", "one.b", "two.a"}
    assert len({ran.process_of(name) for name in ran.good}) == 1
    assert ran.process_of("one.a") != str(os.getpid())
    assert ran.replaced == []


@pytest.mark.parametrize(
    ("behaviour", "reason", "cause", "ended_by"),
    [
        ("segfaults", "crashed: SIGSEGV", "crashed", "SIGSEGV"),
        ("exits", "crashed: the process exited with status 0 and without a result", "crashed", ""),
        ("is_killed", KILLED, "crashed", "SIGKILL"),
        ("raises_system_exit", "SystemExit: 3", "raised", ""),
        ("hangs", "hung: no progress in 1 s in stage verify", "hung", ""),
        ("hangs_deaf", "hung: no progress in 1 s in stage verify", "hung", ""),
        ("hangs_in_native_code", "hung: no progress in 1 s in stage verify", "hung", ""),
        ("allocates_without_end", "MemoryError", "out_of_memory", ""),
    ],
)
def test_a_bad_kernel_costs_only_itself(
    run: Runner, behaviour: str, reason: str, cause: str, ended_by: str
) -> None:
    ran = run(
        {
            "one": {"before": "is_good", "bad": behaviour, "after_it": "is_good"},
            "two": {"before": "is_good"},
        }
    )
    failed = ran.failed("one.bad")
    assert (failed.stage, failed.reason) == ("verify", reason)
    assert (failed.cause, failed.signal) == (cause, ended_by)
    assert ran.good == {"one.before", "one.after_it", "two.before"}
    assert ran.process_of("one.before") != ran.process_of("one.after_it")
    assert ran.process_of("one.after_it") == ran.process_of("two.before")
    outcome = ran.outcomes["one.after_it"]
    assert isinstance(outcome, Verified)
    assert outcome.notes == (f"run in a fresh worker (bad {reason})",)


def test_the_detail_of_a_crash_is_what_was_printed_and_where_python_stood(run: Runner) -> None:
    detail = run({"one": {"bad": "segfaults"}}).failed("one.bad").detail
    assert detail.startswith("about to read address 0")
    assert "Segmentation fault" in detail
    assert "in segfaults" in detail


def test_the_detail_of_a_hang_is_where_python_stood(run: Runner) -> None:
    assert "in hangs_in_native_code" in (
        run({"one": {"bad": "hangs_in_native_code"}}).failed("one.bad").detail
    )


def test_a_result_after_the_deadline_is_no_result(run: Runner) -> None:
    run.surroundings = with_deadline(run.surroundings, verify_s=0.1)
    assert run({"one": {"late": "is_slow"}}).failed("one.late").reason.startswith("hung")


def with_deadline(surroundings: Surroundings, **seconds: float) -> Surroundings:
    return replace(surroundings, deadlines=replace(surroundings.deadlines, **seconds))


def test_what_is_printed_lands_in_the_log_of_its_case_and_nowhere_else(
    run: Runner, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = run({"one": {"a": "prints_and_returns"}, "two": {"b": "is_good"}})
    pid = ran.process_of("one.a")
    assert f"--- verify a\nprinted by {pid}\nprinted by the C library\n" in ran.log("one")
    assert "printed by" not in ran.log("two")
    assert capfd.readouterr() == ("", "")


def test_a_kernel_may_print_100_mb(run: Runner) -> None:
    run.surroundings = with_deadline(run.surroundings, verify_s=20)
    ran = run({"one": {"loud": "prints_100_mb", "b": "is_good"}})
    assert ran.good == {"one.loud", "one.b"}
    assert ran.log_path("one").stat().st_size < 80 << 20


def test_a_kernel_that_fills_the_disk_with_its_log_costs_at_most_itself(run: Runner) -> None:
    ran = run({"one": {"loud": "fills_the_disk", "b": "is_good"}, "two": {"a": "is_good"}})
    assert (ran.failed("one.loud").reason, ran.failed("one.loud").cause) == (
        "OSError: [Errno 27] File too large",
        "raised",
    )
    assert ran.good == {"one.b", "two.a"}


def test_a_workload_or_the_command_line_sets_the_deadlines(
    tmp_path: Path, surroundings: Surroundings
) -> None:
    job = job_of(tmp_path, {"one": {"late": "is_slow", "b": "is_good"}})
    job = replace(job, deadlines=DeadlineChoice(verify=0.1))
    with closing(execute_in(surroundings, [job])) as events:
        ran = Ran(list(events))
    assert ran.failed("one.late").reason == "hung: no progress in 0.1 s in stage verify"
    assert ran.good == {"one.b"}


def test_a_destructor_that_raises_is_only_printed(run: Runner) -> None:
    ran = run({"one": {"bad": "has_a_bad_destructor", "b": "is_good"}})
    assert ran.good == {"one.bad", "one.b"}
    assert "in a destructor" in ran.log("one")
    assert ran.replaced == []


def test_a_copy_of_the_worker_that_a_kernel_forks_says_nothing(run: Runner) -> None:
    ran = run({"one": {"bad": "forks", "b": "is_good"}, "two": {"a": "is_good"}})
    assert ran.good == {"one.bad", "one.b", "two.a"}
    assert len([event for event in ran.reported if event["case"] == "one"]) == 1


@pytest.mark.parametrize(
    ("behaviour", "damage"),
    [
        ("leaves_a_thread", "it left a running thread (left)"),
        ("changes_folder", "it changed the working directory"),
        ("replaces_the_clock", "it replaced time.perf_counter_ns"),
    ],
)
def test_a_case_does_not_start_in_the_remains_of_another(
    run: Runner, behaviour: str, damage: str
) -> None:
    ran = run({"one": {"bad": behaviour}, "two": {"a": "is_good"}})
    assert ran.good == {"one.bad", "two.a"}
    assert ran.process_of("one.bad") != ran.process_of("two.a")
    assert ran.replaced == [damage]


@pytest.mark.parametrize(
    "behaviour",
    ["leaves_children", "leaves_children_and_hangs", "leaves_children_and_segfaults"],
)
def test_children_die_with_the_worker_also_in_sessions_of_their_own(
    run: Runner, note: Path, behaviour: str
) -> None:
    note.unlink(missing_ok=True)
    ran = run({"one": {"bad": behaviour}, "two": {"a": "is_good"}})
    assert "two.a" in ran.good
    assert len(ran.replaced) == 1
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_a_kernel_that_cuts_the_connection_is_to_blame(run: Runner) -> None:
    ran = run({"one": {"bad": "closes_every_descriptor", "b": "is_good"}})
    assert ran.failed("one.bad").reason.startswith("crashed: ")
    assert ran.good == {"one.b"}


def test_a_broken_context_is_charged_once_and_left_at_once(run: Runner) -> None:
    ran = run(
        {
            "one": {"a": "is_good", "bad": "breaks_the_context", "b": "is_good"},
            "two": {"a": "is_good"},
        }
    )
    assert "illegal memory access" in ran.failed("one.bad").reason
    assert ran.good == {"one.a", "one.b", "two.a"}
    assert ran.process_of("one.a") != ran.process_of("one.b") == ran.process_of("two.a")


def test_a_wrong_kernel_is_not_trusted_with_the_next_case(run: Runner) -> None:
    ran = run({"one": {"bad": "is_wrong", "b": "is_good"}, "two": {"a": "is_good"}})
    assert isinstance(ran.outcomes["one.bad"], Wrong)
    assert ran.process_of("one.b") != ran.process_of("two.a")


def test_a_case_that_cannot_be_allocated_costs_no_other_case(run: Runner) -> None:
    ran = run(
        {
            "one": {"allocate": "hangs", "a": "is_good", "b": "is_good"},
            "two": {"a": "is_good"},
        }
    )
    assert {ran.failed(f"one.{name}").stage for name in "ab"} == {"allocate"}
    assert ran.good == {"two.a"}


def test_a_crash_after_the_last_answer_costs_no_row(run: Runner) -> None:
    ran = run({"one": {"a": "is_good", "after": "segfaults"}, "two": {"a": "is_good"}})
    assert ran.good == {"one.a", "two.a"}
    assert ran.replaced == ["crashed: SIGSEGV"]


@pytest.mark.parametrize(
    ("harness", "reason"),
    [
        ("raises.json", "ImportError: no module named deep_gemm"),
        ("segfaults_.json", "crashed: SIGSEGV"),
        ("hangs_.json", "hung: no progress in 1 s in stage load"),
    ],
)
def test_a_harness_that_does_not_open_fails_every_row_of_its_job(
    run: Runner, harness: str, reason: str
) -> None:
    run.surroundings = with_deadline(run.surroundings, load_s=1)
    ran = run({"one": {"a": "is_good", "b": "is_good"}, "two": {"a": "is_good"}}, harness)
    assert {(ran.failed(name).stage, ran.failed(name).reason) for name in ran.outcomes} == {
        ("load", reason)
    }
    assert len(ran.outcomes) == 3


def test_closing_the_run_ends_its_worker(
    tmp_path: Path, surroundings: Surroundings, note: Path
) -> None:
    note.unlink(missing_ok=True)
    job = job_of(tmp_path, {"one": {"a": "leaves_children", "b": "is_good"}})
    with closing(execute_in(surroundings, [job])) as events:
        first = next(event for event in events if isinstance(event, RowDone)).outcome
    assert isinstance(first, Verified)
    assert gone(int(first.verification.detail))
    assert all(gone(int(pid)) for pid in note.read_text().split())


def test_a_server_that_was_killed_is_started_again(run: Runner, workers: Workers) -> None:
    server = workers.warm("cpu")
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    assert run({"one": {"a": "is_good"}}).good == {"one.a"}


def test_a_timed_case_waits_for_the_device_and_says_so(
    tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIRBENCH_LOCK_DIR", str(tmp_path))
    job = job_of(tmp_path, {"one": {"a": "is_good"}})
    waited: list[str] = []
    held = DeviceLock("cpu")

    def give_up(message: str) -> None:
        waited.append(message)
        held.release()

    held.acquire()
    options = {"workers": workers, "on_wait": give_up, "opener": "foreign:open_program"}
    ran = Ran(list(execute([job], log_dir=tmp_path / "logs", **options)))  # type: ignore[arg-type]
    assert ran.good == {"one.a"}
    assert waited == ["waiting for cpu: another tirbench measures on it"]

    held.acquire()
    verify_only = replace(job, cases=(replace(job.cases[0], time=False),))
    ran = Ran(list(execute([verify_only], log_dir=tmp_path / "logs", **options)))  # type: ignore[arg-type]
    assert ran.good == {"one.a"}
    assert len(waited) == 1


COMMAND = """
import sys
from contextlib import closing
from pathlib import Path
from tests.execute.conftest import job_of
from tirbench.execute.jobs import Surroundings, execute_in
from tirbench.execute.lock import DeviceLock
from tirbench.execute.pool import Workers

folder = Path(sys.argv[1])
sys.path.insert(0, sys.argv[2])
job = job_of(folder, {"one": {"a": "prints_and_returns", "b": sys.argv[3]}})
with Workers(folder, preload=("tirbench.codec",)) as workers:
    where = Surroundings(
        log_dir=folder, start_worker=workers.start, opener="foreign:open_program",
        lock=lambda *_: DeviceLock("cpu", folder=folder),
    )
    try:
        for event in execute_in(where, [job]):
            print(type(event).__name__, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_command_that_is_killed(tmp_path: Path, number: int) -> None:
    note = tmp_path / "pids"
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", COMMAND, str(tmp_path), here, "leaves_children_and_hangs"]
    environ = {**os.environ, "TIRBENCH_TEST_NOTE": str(note)}
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, env=environ, cwd=root, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        seen = []
        while not note.exists() or len(note.read_text().split()) < 2:
            assert it.poll() is None
            time.sleep(0.02)
        it.send_signal(number)
        seen = it.stdout.read().split()
    assert it.returncode == (130 if number == signal.SIGINT else -number)
    assert seen.count("RowDone") == 1
    worker = int((tmp_path / "w" / "one.log").read_text().split("printed by ")[1].split()[0])
    assert gone(worker)
    assert all(gone(int(pid)) for pid in note.read_text().split())
    DeviceLock("cpu", folder=tmp_path, timeout_s=5).acquire()
