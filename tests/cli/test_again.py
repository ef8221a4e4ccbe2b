"""Runs that begin with a kept one, deadlines, signals, a full disk: tirbench as its users start it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tirbench import again, store
from tirbench.errors import UsageError
from tirbench.execute import DeviceLock
from tirbench.model import DeadlineChoice, Failed, Timed

from .conftest import HEAD, OURS, QUICK, ROOT, TORCH, Project, Tirbench, implementation

SLOW = HEAD + OURS + implementation("endless", "kernels/ops.py:endless") + TORCH
CPU = ("--device", "cpu", *QUICK)


def interrupted(project: Project, number: int = signal.SIGINT) -> store.KeptRun:
    """A run of a good workload and one that hangs, cut after the first."""
    project.write("slow", SLOW)
    process = project.start("exec", "workloads/double.toml", "workloads/slow.toml", *CPU)
    assert process.stderr is not None
    assert "double/n64" in process.stderr.readline()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    return store.read_run(project.root)


# --- Continuing -----------------------------------------------------------------------------------


def test_a_run_that_was_cut_goes_on_in_its_folder_and_keeps_what_it_had(project: Project) -> None:
    cut = interrupted(project)
    assert not cut.run.complete
    refused = project.run("exec", "--resume", "latest", "--placements", "2")
    assert (refused.code, refused.out) == (2, "")
    assert "leave out --placements" in refused.err
    ops = project.root / "workloads" / "kernels" / "ops.py"
    text = ops.read_text()
    ops.write_text(text.replace("x * 2", "2 * x"))
    refused = project.run("exec", "--resume", cut.run.id)
    assert refused.code == 2
    assert "have changed since run" in refused.err
    ops.write_text(text)

    # Everything is as it was but for how long one waits, which is in the plan that was kept.
    path = cut.folder / "run.json"
    plan = json.loads(path.read_text())
    for job in plan["jobs"]:
        job["deadlines"]["verify"] = 1.0
    path.write_text(json.dumps(plan))
    done = project.run("exec", "--resume", "latest", "--format", "json")
    assert done.code == 1, done.err
    whole = store.read_run(project.root)
    assert whole.run.id == cut.run.id
    assert whole.run.complete
    assert whole.run.outcomes[: len(cut.run.outcomes)] == cut.run.outcomes
    causes = {o.row.key: o.cause for o in whole.run.outcomes if isinstance(o, Failed)}
    assert causes == {"slow/n64/endless": "hung"}
    assert isinstance(whole.run.outcomes[-1], Timed)

    again_ = project.run("exec", "--resume", "latest")
    assert (again_.code, again_.err) == (
        2,
        f"error: run {cut.run.id} is complete: there is nothing to resume\n",
    )


def test_a_run_that_another_process_writes_is_left_alone(project: Project) -> None:
    project.write("slow", SLOW)
    process = project.start("exec", "workloads/slow.toml", *CPU)
    try:
        end = time.monotonic() + 30
        runs = project.root / ".tirbench" / "runs"
        while not ((runs / "latest").exists() and store.read_run(project.root).inputs):
            assert time.monotonic() < end
            time.sleep(0.05)
        done = project.run("exec", "--resume", "latest")
        assert done.code == 2
        assert "is being written by another tirbench" in done.err
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130


# --- Only what failed -----------------------------------------------------------------------------


def test_what_was_wrong_failed_or_unanswered_is_run_again_alone(project: Project) -> None:
    project.write("faults", HEAD + OURS + implementation("raises", "kernels/ops.py:raises"))
    first = project.run("verify", "workloads", "--device", "cpu")
    assert first.code == 1, first.err
    ops = project.root / "workloads" / "kernels" / "ops.py"
    ops.write_text(
        ops.read_text().replace('raise RuntimeError("out of registers")', "double(x, y)")
    )
    second = project.run("verify", "--last-failed", "--device", "cpu", "--format", "json")
    assert second.code == 0, second.err
    rows = {o["row"]["implementation"]: o["type"] for o in second.document["outcomes"]}
    assert rows == {"raises": "verified"}
    third = project.run("verify", "--last-failed", "--device", "cpu")
    assert (third.code, third.out) == (0, "")
    assert "has no row here that was wrong, failed or unanswered" in third.err


def test_the_reference_that_a_check_needs_is_run_beside_what_failed(project: Project) -> None:
    text = HEAD + OURS + TORCH + '\n[check.outputs.y]\nnot_worse_than = "torch"\n'
    project.write("bounded", text.replace("[work]", "[work]"))
    reading = again.reading_of(project.root, kept_of(project, "bounded"))
    rows = kept_of(project, "bounded").rows
    ours = tuple(row for row in rows if row.implementation == "ours" and row.case == "n64")
    kept = replace(kept_of(project, "bounded"), rows=ours)
    (chosen,) = again.failed(reading, kept).chosen
    assert [one.name for case in chosen.cases for one in case.implementations] == ["ours", "torch"]


def kept_of(project: Project, name: str) -> store.KeptRun:
    """A run of a workload that answered nothing."""
    from tirbench.model import Machine, Row, Run

    rows = tuple(
        Row(
            workload=name,
            case=case,
            implementation=one,
            role="kernel" if one == "ours" else "reference",
        )
        for case in ("n64", "n1048576")
        for one in ("ours", "torch")
    )
    machine = Machine(hardware="cpu-x", device="x", kind="cpu")
    run = Run(id="r", machine=machine, commit=None, dirty=(), outcomes=(), complete=False)
    return store.KeptRun(
        run=run,
        folder=project.root,
        rows=rows,
        suite="",
        workload_paths=(f"workloads/{name}.toml",),
    )


# --- One case again -------------------------------------------------------------------------------


def test_a_case_is_replayed_with_the_kept_program_and_plan(project: Project) -> None:
    first = project.run("exec", "workloads/double.toml", "--deadline", "time=50", *CPU)
    assert first.code == 0, first.err
    before = store.read_run(project.root)
    done = project.run("replay", before.run.id, "n64")
    assert done.code == 0, done.err
    after = store.read_run(project.root)
    assert after.run.id != before.run.id
    assert after.run.complete
    assert {row.key for row in after.rows} == {"double/n64/ours", "double/n64/torch"}
    assert after.harnesses[0].read_bytes() == before.harnesses[0].read_bytes()
    (job,) = after.jobs
    assert (job.plan, job.deadlines) == (before.jobs[0].plan, DeadlineChoice(time=50.0))
    assert "double/n64/ours: " in done.err
    assert "µs then, " in done.err
    assert [o.problem for o in after.run.outcomes if isinstance(o, Timed)] == [
        o.problem for o in before.run.outcomes if isinstance(o, Timed)
    ]

    project.write("double", HEAD.replace('init = "normal"', 'init = "ones"') + OURS + TORCH)
    done = project.run("replay", before.run.id, "double/n64")
    assert done.code == 0, done.err
    assert "double has changed since run" in done.err
    changed = store.read_run(project.root)
    assert changed.harnesses[0].read_bytes() == before.harnesses[0].read_bytes()
    assert {o.problem for o in changed.run.outcomes if isinstance(o, Timed)} == {""}

    with pytest.raises(UsageError, match="did not run n1048576: no GPU here"):
        again._job_of(before, "n1048576")
    with pytest.raises(UsageError, match="did you mean double/n64"):
        again._job_of(before, "double/n46")


# --- Deadlines on the command line ----------------------------------------------------------------


@pytest.mark.parametrize("text", ["time", "time=0", "tmie=3", "time=inf", "time=x"])
def test_a_deadline_is_a_stage_and_seconds(tirbench: Tirbench, text: str) -> None:
    done = tirbench("verify", "workloads", "--deadline", text)
    assert done.code == 2
    assert "write STAGE=SECONDS, with a stage of load, allocate, build" in done.err


@pytest.mark.parametrize("text", ["0", "-1", "two"])
def test_gpus_are_counted(tirbench: Tirbench, text: str) -> None:
    assert "write how many GPUs, or all" in tirbench("exec", "workloads", "--gpus", text).err


def test_a_run_that_does_not_wait_for_its_device_says_so_and_can_go_on(project: Project) -> None:
    with DeviceLock("cpu", folder=project.root / ".tirbench"):
        done = project.run("exec", "workloads/double.toml", *CPU, "--wait", "0", "--format", "json")
    assert done.code == 3, done.err
    failed = [one for one in done.document["outcomes"] if one["type"] == "failed"]
    assert {one["cause"] for one in failed} == {"unavailable"}
    assert failed[0]["reason"].startswith("cpu was in use by another tirbench for 0 s")
    again = project.run("exec", "--last-failed", *CPU, "--wait", "0", "--format", "json")
    assert again.code == 0, again.err


def test_seconds_to_wait_are_not_negative(tirbench: Tirbench) -> None:
    assert tirbench("exec", "workloads", "--wait", "-1").code == 2


def test_files_are_missed_as_ever(tirbench: Tirbench) -> None:
    done = tirbench("exec")
    assert done.code == 2
    assert "Missing argument 'FILES...'." in done.err


# --- Signals and a full disk ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_is_ended_in_order_by_any_of_the_signals_that_ask_for_it(
    project: Project, number: int
) -> None:
    cut = interrupted(project, number)
    assert not cut.run.complete
    assert {o.row.workload for o in cut.run.outcomes} >= {"double"}


SECOND = """
import signal, sys, time
from tirbench.signals import ending_in_order
with ending_in_order():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("in order", flush=True)
        time.sleep(60)  # what will not end
"""


def test_the_second_ctrl_c_ends_the_process_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SECOND], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "in order\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails then, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
from tirbench.cli import main
main()
"""


def test_a_full_disk_ends_the_run_keeps_what_it_has_and_lets_it_go_on(project: Project) -> None:
    sizes = ", ".join(str(2**n) for n in range(4, 20))
    text = HEAD.replace("n = [64, 1048576]", f"n = [{sizes}]").replace("n1048576", "n64")
    raises = implementation("raises", "kernels/ops.py:raises")  # tracebacks take room
    raises += implementation("misfit", "kernels/ops.py:misfit")
    project.write("many", text.replace('smoke = ["n64"]', 'smoke = ["*"]') + OURS + raises)
    room = str(26 << 10)  # for the plan and some of the rows
    command = ("verify", "workloads/many.toml", "--device", "cpu")
    done = project.run(*command, program=("-c", FULL, room))
    assert done.code == 3, done.err
    assert "the run cannot be written any more: File too large" in done.err
    assert "Traceback" not in done.err
    cut = store.read_run(project.root)
    assert not cut.run.complete
    before = [outcome.row.key for outcome in cut.run.outcomes]
    resumed = project.run("exec", "--resume", "latest", "--format", "json")
    assert resumed.code == 1, resumed.err
    whole = store.read_run(project.root)
    assert whole.run.complete
    assert 0 < len(before) < len(whole.rows)
    assert [outcome.row.key for outcome in whole.run.outcomes][: len(before)] == before


# --- Kills ----------------------------------------------------------------------------------------


def test_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    """A short form of what `benchmarks/results/kill.md` holds a hundred kills of."""
    done = subprocess.run(
        [sys.executable, "benchmarks/kill.py", "--times", "4", "--whole", "0"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- The machine ----------------------------------------------------------------------------------


def test_doctor_says_what_a_cpu_can_and_why_it_has_no_gpu(project: Project) -> None:
    done = project.run("doctor", "--device", "cpu", "--json")
    findings = {one["name"]: one for one in done.document["findings"]}
    assert done.code == 3
    assert findings["CUDA device"]["status"] == "no"
    assert findings["CUDA device"]["remedy"]
    assert findings["timer wall"]["status"] == "yes"
    assert "interpreter" in findings["triton"]["detail"]
    assert done.heavy == ""
