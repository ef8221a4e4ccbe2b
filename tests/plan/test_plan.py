"""Which rows run, how far, and what is said of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from tirbench import plan as planning
from tirbench.expand import expand
from tirbench.load import load
from tirbench.model import Baseline, Case, DeadlineChoice, PinnedRow, Plan, Skipped
from tirbench.plan import Ask, Planned, plan, rows_of

TEXT = """\
schema = 1
description = "A copy"
id = "n{n}"
[matrix]
n = [1, 2, 3, 4]
[[skip]]
when = "n == 4"
reason = "too odd"
[[skip]]
when = "n == 2"
implementations = ["plain"]
reason = "not for two"
[select]
default = ["n3", "n4"]
smoke = ["n1"]
cpu = ["n2"]
[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }
[kernels.triton]
kind = "triton"
target = "ops.py:copy_kernel"
grid = [1]
args = ["x", "y"]
[kernels.plain]
target = "ops.py:copy"
args = ["x", "y"]
[kernels.cuda_only]
target = "ops.py:copy"
args = ["x", "y"]
requires = { device = "cuda" }
[references.cpu_only]
target = "ops.py:copy"
args = ["x", "y"]
requires = { device = "cpu" }
[check.oracle]
target = "torch.clone"
args = ["x"]
returns = "y"
"""
KERNELS = """\
import triton


@triton.jit
def copy_kernel(x_ptr, y_ptr):
    pass


def copy(x, y):
    y.copy_(x)
"""

Answers = dict[str, str]
Cases = Callable[[], tuple[Case, ...]]


@pytest.fixture
def cases(tmp_path: Path) -> tuple[Case, ...]:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "ops.py").write_text(KERNELS)
    (tmp_path / "w.toml").write_text(TEXT)
    return expand(load(tmp_path / "w.toml"))


def asked(device: Literal["cuda", "cpu"], *, time: bool = True, explicit: bool = False) -> Ask:
    return Ask(plan=Plan(device=device), time=time, explicit=explicit)


def answers(planned: Planned, case: str) -> Answers:
    """What is said of the rows of a case that do not run."""
    assert all(isinstance(one, Skipped) for one in planned.answered)
    return {o.row.implementation: o.reason for o in planned.answered if o.row.case == case}


def running(planned: Planned, case: str) -> set[str]:
    return {
        row.implementation
        for job in planned.jobs
        for one in job.cases
        if one.case == case
        for row in one.rows
    }


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("explicit", [False, True])
def test_every_row_runs_or_is_answered_and_never_both(
    cases: tuple[Case, ...], device: Literal["cuda", "cpu"], explicit: bool
) -> None:
    planned = plan([("w.py", cases)], asked(device, explicit=explicit))
    run = [row for job in planned.jobs for case in job.cases for row in case.rows]
    rows = run + [outcome.row for outcome in planned.answered]
    assert len(rows) == len(set(rows))
    assert set(rows) == {row for case in cases for row in rows_of(case)}


def test_on_a_cuda_device_every_selected_case_is_timed(cases: tuple[Case, ...]) -> None:
    planned = plan([("w.py", cases)], asked("cuda"))
    assert [case.case for case in planned.jobs[0].cases] == ["n1", "n2", "n3"]
    assert all(case.time and case.verify and not case.untimed for case in planned.jobs[0].cases)
    assert running(planned, "n1") == {"triton", "plain", "cuda_only"}
    assert answers(planned, "n1") == {"cpu_only": "needs a CPU"}


def test_without_a_gpu_smoke_cases_are_verified_and_cpu_cases_timed(
    cases: tuple[Case, ...],
) -> None:
    planned = plan([("w.py", cases)], asked("cpu"))
    jobs = {case.case: case for case in planned.jobs[0].cases}
    assert set(jobs) == {"n1", "n2"}
    assert (jobs["n1"].time, jobs["n1"].untimed) == (False, planning.NOT_ON_CPU)
    assert (jobs["n2"].time, jobs["n2"].untimed) == (True, "")
    assert running(planned, "n1") == {"triton", "plain", "cpu_only"}
    assert running(planned, "n2") == {"cpu_only"}


def test_without_a_gpu_every_other_row_says_why(cases: tuple[Case, ...]) -> None:
    planned = plan([("w.py", cases)], asked("cpu"))
    assert answers(planned, "n1") == {"cuda_only": "needs a CUDA device"}
    assert answers(planned, "n2") == {
        "triton": planning.INTERPRETER,
        "plain": "not for two",
        "cuda_only": "needs a CUDA device",
    }
    assert set(answers(planned, "n3").values()) == {planning.NO_GPU}
    assert set(answers(planned, "n4").values()) == {"too odd"}


def test_cases_that_were_named_run_without_a_gpu_too(cases: tuple[Case, ...]) -> None:
    planned = plan([("w.py", cases)], asked("cpu", explicit=True))
    assert running(planned, "n3") == {"triton", "plain", "cpu_only"}
    assert all(case.time for case in planned.jobs[0].cases)
    assert set(answers(planned, "n4").values()) == {"too odd"}


def test_when_nothing_is_to_be_timed_every_case_says_so(cases: tuple[Case, ...]) -> None:
    planned = plan([("w.py", cases)], asked("cuda", time=False))
    assert {(case.time, case.untimed) for case in planned.jobs[0].cases} == {
        (False, planning.ASKED)
    }


def test_a_case_of_several_ranks_says_how_it_is_started(cases: tuple[Case, ...]) -> None:
    ranked = [replace(case, world_size=2) for case in cases if case.id == "n1"]
    planned = plan([("w.py", ranked)], asked("cuda"))
    assert not planned.jobs
    sentence = "needs 2 ranks: `tirbench compile` it, then torchrun --nproc-per-node 2 build/w.py"
    assert set(answers(planned, "n1").values()) == {sentence}


def test_a_workload_with_nothing_to_run_starts_no_job(cases: tuple[Case, ...]) -> None:
    planned = plan([("w.py", [case for case in cases if case.id == "n4"])], asked("cuda"))
    assert planned.jobs == []
    assert len(planned.answered) == 4


def test_rows_stand_in_the_order_of_the_workload_kernels_first(cases: tuple[Case, ...]) -> None:
    rows = rows_of(cases[0])
    assert [row.implementation for row in rows] == ["triton", "plain", "cuda_only", "cpu_only"]
    assert [row.role for row in rows] == ["kernel", "kernel", "kernel", "reference"]


def test_the_command_line_comes_before_the_deadlines_of_a_workload(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(KERNELS)
    path = tmp_path / "copy.toml"
    path.write_text(TEXT + "[deadlines]\nbuild = 900\ntime = 60\n")
    ask = Ask(plan=Plan(device="cuda"), deadlines=DeadlineChoice(time=20, verify=5))
    (job,) = plan([("copy.py", expand(load(path)))], ask).jobs
    assert job.deadlines == DeadlineChoice(build=900, time=20, verify=5)


def pinned(case: str, implementation: str, configuration: str | None) -> PinnedRow:
    return PinnedRow(
        case=case,
        implementation=implementation,
        configuration=configuration,
        midmean_us=1.0,
        band=0.01,
        anchor_us=1.0,
        problem="p",
        protocol="p",
        code="c",
        source="s",
        env="e",
        unit="u",
    )


@pytest.mark.parametrize("retune", [False, True])
def test_tuned_kernels_take_what_is_pinned_unless_asked_to_choose_again(
    cases: tuple[Case, ...], retune: bool
) -> None:
    rows = (pinned("n1", "triton", "BLOCK=64"), pinned("n1", "plain", None))
    baseline = Baseline(workload="w", hardware="nvidia-h200", rows=rows)
    ask = replace(asked("cuda"), baseline=baseline, retune=retune)
    jobs = {case.case: case for case in plan([("w.py", cases)], ask).jobs[0].cases}
    assert jobs["n1"].configurations == (() if retune else (("triton", "BLOCK=64"),))
    assert jobs["n3"].configurations == ()


def test_a_job_says_what_its_launches_import(tmp_path: Path) -> None:
    tile = (
        '[kernels.tile]\nkind = "tirx"\ntarget = "ops.py:copy_tile"\nargs = { a = "x", b = "y" }\n'
        'requires = { device = "cuda" }\n'
    )
    compiled = (
        '[references.compiled]\ntarget = "ops.py:copy"\nargs = ["x", "y"]\ncompile = "default"\n'
    )
    (tmp_path / "ops.py").write_text(KERNELS + "\n\ndef copy_tile(a, b):\n    pass\n")
    for name, more in (("plain", ""), ("tile", tile), ("compiled", compiled)):
        text = TEXT.replace("[references.cpu_only]", f"{more}[references.cpu_only]")
        (tmp_path / f"{name}.toml").write_text(text)

    def imports(device: Literal["cuda", "cpu"], *names: str) -> list[tuple[str, ...]]:
        cases = [("", expand(load(tmp_path / f"{name}.toml"))) for name in names]
        return [job.imports for job in plan(cases, Ask(plan=Plan(device=device))).jobs]

    assert imports("cuda", "plain", "tile") == [(), ("tvm_tirx.tirx",)]
    assert imports("cpu", "plain", "tile") == [(), ()]  # the tile needs a GPU
    (found,) = imports("cpu", "compiled")
    assert "torch._inductor.compile_fx" in found
