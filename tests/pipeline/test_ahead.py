"""Building ahead: what a launch asks for later is what was built, and nothing else is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tirbench import ahead, pipeline, running, store
from tirbench.execute import Workers
from tirbench.execute.ahead import ToBuild
from tirbench.execute.cores import Division
from tirbench.execute.events import Event, Reported, RowDone, StageStarted
from tirbench.model import BuiltAhead, Job, Machine, Plan, Roofs, Verification, Verified
from tirbench.plan import Ask, plan, rows_of
from tirbench.reading import Reading, read
from tirbench.selection import Selection

KERNELS = """\
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@triton.autotune(
    [triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512}, num_warps=8)],
    key=["n"],
    reset_to_zero=["y_ptr"],
    cache_results=True,
)
@triton.jit
def tuned(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def broken(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    tl.no_such_function(x_ptr)


def scaled(x, factor):
    return x * factor
"""

WORKLOAD = """\
schema = 1
description = "y = 2 x"
id = "n{n}"

[matrix]
n = [4096, 4099]

[params]
factor = 2

[select]
default = ["*"]

[tensors]
x = { shape = ["n"], dtype = "float16", init = "normal" }
y = { role = "out", like = "x" }

[kernels.plain]
kind = "triton"
target = "kernels/scale.py:scale"
grid = ["cdiv(n, 256)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", factor = "factor", BLOCK = 256 }

[kernels.tuned]
kind = "triton"
target = "kernels/scale.py:tuned"
grid = ["cdiv(n, BLOCK)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", factor = "factor" }

[kernels.broken]
kind = "triton"
target = "kernels/scale.py:broken"
grid = ["cdiv(n, 256)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", factor = "factor", BLOCK = 256 }

[references.torch]
target = "kernels/scale.py:scaled"
args = ["x", "factor"]
returns = "y"

[check.oracle]
target = "kernels/scale.py:scaled"
args = ["x", "factor"]
returns = "y"
"""

H200 = Machine(
    hardware="nvidia-h200",
    device="NVIDIA H200",
    kind="cuda",
    memory_bytes=141 << 30,
    facts=(
        ("capability", "9.0"),
        ("l2_bytes", str(60 << 20)),
        ("sm_count", "132"),
        ("smem_bytes", str(227 << 10)),
    ),
)

CHECKED = Verification(method="oracle", worst=0.5)

LAUNCHED = """
import json, sys
import torch
import triton as _
from tirbench import codec
from tirbench.aot.case import NoDevice
from tirbench.aot.worker import compiling
from tirbench.harness.case import Case, Shared
from tirbench.harness.program import open_program
from tirbench.launch import triton
from tirbench.launch.counting import counting
from tirbench.launch.sass import text_digest
from tirbench.model import CompileJob
from tirbench.tensors import Arena

request, name, choice = sys.argv[1:]
job = codec.load(CompileJob, json.loads(request))
program = open_program(job.harness)
case = Case(
    name=job.case, folder=program.folder, device=NoDevice(job.target), seed=0, placement=3,
    shared=Shared(Arena("cpu"), chosen={name: choice}),
)
program.cases[job.case].function(case)
with triton.own_compiler(compiled_by_torch=False), compiling(job.target) as found, counting() as counts:
    case.build(case.implementations[name])()
digest = text_digest(kernel.asm["cubin"] for kernel in found)
print(json.dumps({"hit": counts.found, "miss": counts.compiled, "digest": digest}))
"""
"""A launch with real tensors, on another placement, of one configuration: all but the device is real."""

BUILT = """
import json, os, sys
from tirbench.aot.ahead import build
os.environ["TRITON_PTXAS_PATH"] = "/no/such/ptxas"  # as inductor leaves one behind
print(json.dumps(build(json.loads(sys.argv[1]), lambda row: True)))
"""

CHOICE = "BLOCK=256, num_ctas=1, num_stages=3, num_warps=4"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "scale.py").write_text(KERNELS)
    (tmp_path / "scale.toml").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    return read(Selection(files=("scale.toml",)))


def todo(reading: Reading, pinned: dict[str, str] | None = None) -> list[ToBuild]:
    (chosen,) = reading.chosen
    harness = pipeline.rendered(chosen)
    path = reading.root / ".tirbench" / harness.name
    store.write(path, harness.text)
    (job,) = plan([(str(path), chosen.cases)], Ask(plan=Plan(device="cuda"))).jobs
    configurations = tuple((pinned or {}).items())
    cases = tuple(replace(case, configurations=configurations) for case in job.cases)
    target = ahead.target_of(H200)
    assert target is not None
    by_key = {case.key: case for case in chosen.cases}
    return list(ahead.to_build([replace(job, cases=cases)], by_key, target))


def python(program: str, cache: Path, *arguments: str, **environ: str) -> dict[str, Any]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "TRITON_CACHE_DIR": str(cache), **environ}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- What is asked for ----------------------------------------------------------------------------


def test_every_case_with_a_triton_kernel_is_asked_for_in_the_order_of_the_run(
    project: Reading,
) -> None:
    asked = todo(project)
    assert [one.case for one in asked] == ["scale/n4096", "scale/n4099"]
    (first, _) = asked
    assert [row["implementation"] for row in first.request["rows"]] == ["plain", "tuned", "broken"]
    assert first.request["target"]["arch"] == "sm_90"
    assert first.request["target"]["sm_count"] == 132


def test_a_device_that_was_not_asked_builds_nothing_ahead() -> None:
    assert ahead.target_of(Machine(hardware="cpu-some", device="Some", kind="cpu")) is None


# --- What is built --------------------------------------------------------------------------------


def test_a_later_launch_finds_what_was_built_and_runs_what_it_would_have_compiled(
    project: Reading, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    one, _ = todo(project)
    request = json.dumps(one.request)
    cold = python(LAUNCHED, tmp_path / "alone", request, "plain", "")
    built = python(BUILT, tmp_path / "shared", request)
    assert built == {"kernels": 3, "compiled": 3, "failed": 1}
    found = python(LAUNCHED, tmp_path / "shared", request, "plain", "")
    assert (cold["hit"], cold["miss"]) == (0, 1)
    assert (found["hit"], found["miss"]) == (1, 0)
    assert found["digest"] == cold["digest"]


def test_every_configuration_is_built_and_no_choice_is_left_on_the_disk(
    project: Reading, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    one, _ = todo(project)
    request = json.dumps(one.request)
    python(BUILT, tmp_path / "shared", request, TRITON_CACHE_AUTOTUNING="1")
    assert not list((tmp_path / "shared").rglob("*.autotune.json"))
    for choice in (CHOICE, CHOICE.replace("256", "512").replace("warps=4", "warps=8")):
        found = python(LAUNCHED, tmp_path / "shared", request, "tuned", choice)
        assert (found["hit"], found["miss"]) == (1, 0), choice


def test_of_a_pinned_kernel_only_the_pinned_configuration_is_built(
    project: Reading, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    one, _ = todo(project, {"tuned": CHOICE})
    built = python(BUILT, tmp_path / "shared", json.dumps(one.request))
    assert (built["compiled"], built["failed"]) == (2, 1)


# --- Beside a run ---------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Division:
    """This machine as if it had cores enough; all processes share what it really has."""
    every = tuple(sorted(os.sched_getaffinity(0)))
    found = Division(measuring=every, building=every)
    monkeypatch.setattr("tirbench.execute.division", lambda: found)
    return found


def test_builders_fork_from_the_server_of_the_run_and_fill_the_cache(
    project: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: Division
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "shared"))
    asked = todo(project)
    log = tmp_path / "ahead.log"
    with (
        Workers(tmp_path / "logs", preload=("torch", "triton")) as workers,
        ahead.building(asked, workers, gpus=1, log=log) as builders,
    ):
        assert workers.cores == large.measuring
        end = time.monotonic() + 60
        while builders.built.cases < 1 and time.monotonic() < end:
            builders.look()
            time.sleep(0.05)
    # The first case is the worker's own; of the other, all but the broken kernel is there.
    assert builders.built.cases == 1, log.read_text()
    assert (builders.built.compiled, builders.built.failed) == (3, 1)
    assert "scale/n4099/broken: " in log.read_text()
    request = json.dumps(asked[1].request)
    found = python(LAUNCHED, tmp_path / "shared", request, "plain", "")
    assert (found["hit"], found["miss"]) == (1, 0)


@pytest.mark.usefixtures("large")
def test_a_run_says_how_much_was_built_ahead_of_it(
    project: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but the device is real: the workers are, and what they measure is made up."""
    pytest.importorskip("triton")
    cache = tmp_path / "shared"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))

    def measured(jobs: list[Job], **_: object) -> Iterator[Event]:
        for job in jobs:
            for case in job.cases:
                yield StageStarted(
                    workload=job.workload, case=case.case, implementation=None, stage="allocate"
                )
                end = time.monotonic() + 60
                while len(list(cache.rglob("*.cubin"))) < 3 and time.monotonic() < end:
                    time.sleep(0.05)
                data = {"event": "kernels", "found": 2, "compiled": 1, "seconds": 0.25}
                yield Reported(workload=job.workload, case=case.case, data=data)
                for row in case.rows:
                    yield RowDone(outcome=Verified(row=row, verification=CHECKED, untimed="so"))

    monkeypatch.setattr("tirbench.execute.execute", measured)
    (chosen,) = project.chosen
    options = running.Options(device="cuda")
    finish = running.Finisher(project.chosen, options, project.root, H200)
    finish.roofs = Roofs(copy_gbytes_per_s=4000.0)
    rows = [row for case in chosen.cases for row in rows_of(case)]
    tree = store.Tree(commit=None)
    with store.open_run(project.root, machine=H200, rows=rows, tree=tree) as kept:
        harness = pipeline.rendered(chosen)
        path = str(kept.harness(harness.name, harness.text))
        jobs = plan([(path, chosen.cases)], Ask(plan=Plan(device="cuda"))).jobs
        kept.jobs(jobs, (), "inputs")
        for _ in running.run_jobs(jobs, options, kept, finish, lambda _: None):
            pass
    run = store.read_run(project.root).run
    assert run.complete
    assert run.ahead is not None
    assert (run.ahead.found, run.ahead.late, run.ahead.late_seconds) == (4, 2, 0.5)
    assert len(list(cache.rglob("*.cubin"))) == 3


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("why", ["switched off", "too few cores", "nothing to come"])
def test_nothing_is_started_where_there_is_nothing_to_gain(
    project: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    asked = todo(project)
    if why == "switched off":
        monkeypatch.setenv(ahead.VARIABLE, "0")
    if why == "too few cores":
        monkeypatch.setattr("tirbench.execute.division", lambda: None)
    if why == "nothing to come":
        asked = asked[:1]
    workers = Workers(tmp_path / "logs")
    with ahead.building(asked, workers, gpus=1, log=tmp_path / "ahead.log") as builders:
        builders.look()
    assert builders.built == BuiltAhead()
    assert workers.cores == ()
    assert not (tmp_path / "logs").exists()
