"""Tuned Triton kernels: tuned for one case, before it is verified, and used again as they were chosen."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tirbench import codec
from tirbench.harness import Program, open_program
from tirbench.harness.driver import CaseRun
from tirbench.launch.targets import load_file
from tirbench.launch.triton import (
    NEXT_SHAPE,
    _text,
    chosen_configuration,
    has_tuner,
    is_tuned,
    own_compiler,
    prepared,
    recorded,
)
from tirbench.model import CaseJob, CodeFacts, Failed, Outcome, Plan, Row, Timed

triton = pytest.importorskip("triton")
autotuner = pytest.importorskip("triton.runtime.autotuner")

SMALL = "BLOCK=64, num_ctas=1, num_stages=3, num_warps=2"
LARGE = "BLOCK=256, num_ctas=1, num_stages=3, num_warps=8"

INTERPRETED = """\
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 256}, num_warps=8)]


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def tuned(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


@triton.autotune(CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def guessed_below(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (at < n) | EVEN
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside) * 2, mask=inside)


@triton.heuristics({"EVEN": lambda args: args["n"] % 256 == 0})
@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def guessed_above(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (at < n) | EVEN
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside) * 2, mask=inside)
"""


class FakeJit:
    """A jitted kernel y = x · factor that runs anywhere and remembers how it was launched."""

    def __init__(self) -> None:
        self.launched: list[dict[str, Any]] = []

    @staticmethod
    def fn() -> None:
        """What Triton's tuner looks for: the Python function at the bottom."""

    def run(self, *, x: torch.Tensor, y: torch.Tensor, **options: Any) -> None:
        self.launched.append(options)
        torch.mul(x, 2, out=y)


def tuner(kernel: FakeJit, best: int = 256, key: str = "n") -> Any:
    """Triton's own tuner over two configurations, that finds `best` the faster one."""

    def measure(call: Callable[[], None], **_: Any) -> tuple[float, float, float]:
        for _repeat in range(3):
            call()
        microseconds = 1.0 if kernel.launched[-1]["BLOCK"] == best else 2.0
        return microseconds, microseconds, microseconds

    configs = [
        triton.Config({"BLOCK": 64}, num_warps=2),
        triton.Config({"BLOCK": 256}, num_warps=8),
    ]
    return autotuner.Autotuner(
        kernel, ["x", "y", "n"], configs, [key], None, None, do_bench=measure
    )


@pytest.fixture
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def launch(kernel: Any, n: int = 8) -> None:
    x = torch.ones(n)
    kernel[(1,)](x=x, y=torch.empty(n), n=n)


@pytest.mark.usefixtures("_compiled")
class TestTuned:
    """With a driver to time with, or a fake of one."""

    def test_a_kernel_without_a_tuner_is_launched_as_it_is(self) -> None:
        kernel = FakeJit()
        assert prepared(kernel) is kernel
        assert not has_tuner(kernel)
        assert chosen_configuration(kernel) is None

    def test_the_choice_is_recorded(self) -> None:
        kernel = prepared(tuner(FakeJit()))
        assert is_tuned(kernel)
        assert chosen_configuration(kernel) is None
        launch(kernel)
        assert chosen_configuration(kernel) == LARGE

    def test_a_choice_does_not_depend_on_the_cases_that_ran_before(self) -> None:
        jit = FakeJit()
        module = tuner(jit)
        first = prepared(module)
        launch(first)
        measured = len(jit.launched)
        launch(first)
        assert len(jit.launched) == measured + 1
        second = prepared(module)
        launch(second)
        assert len(jit.launched) > measured + 2
        assert module.cache == {}

    def test_every_choice_of_one_implementation_is_recorded(self) -> None:
        kernel = prepared(tuner(FakeJit()))
        launch(kernel, 8)
        launch(kernel, 16)
        assert chosen_configuration(kernel) == LARGE

    def test_a_known_choice_is_used_without_tuning(self) -> None:
        jit = FakeJit()
        kernel = prepared(tuner(jit), SMALL)
        assert not is_tuned(kernel)
        launch(kernel)
        assert [(call["BLOCK"], call["num_warps"]) for call in jit.launched] == [(64, 2)]
        assert chosen_configuration(kernel) == SMALL

    def test_of_choices_for_several_shapes_only_these_are_tried_again(self) -> None:
        kernel = prepared(tuner(FakeJit(), best=64), NEXT_SHAPE.join((SMALL, LARGE)))
        assert [_text(config) for config in kernel.configs] == [SMALL, LARGE]
        gone = prepared(tuner(FakeJit()), NEXT_SHAPE.join((SMALL, "BLOCK=1")))
        assert len(gone.configs) == 2

    def test_a_choice_that_the_kernel_no_longer_offers_is_tuned_again(self) -> None:
        kernel = prepared(tuner(FakeJit()), "BLOCK=32, num_warps=1")
        assert is_tuned(kernel)
        launch(kernel)
        assert chosen_configuration(kernel) == LARGE

    def test_a_tuner_below_heuristics_is_found(self) -> None:
        jit = FakeJit()
        outer = autotuner.Heuristics(
            tuner(jit), ["x", "y", "n"], {"EVEN": lambda args: args["n"] % 2 == 0}
        )
        kernel = prepared(outer, SMALL)
        launch(kernel)
        assert jit.launched[0]["EVEN"] is True
        assert chosen_configuration(kernel) == SMALL
        assert is_tuned(outer)


HARNESS = """\
import torch

from tirbench import harness as tb

program = tb.Program("w", workload="workloads/w.toml", file=__file__)


@program.case("n64", {"n": 64})
def n64(case: tb.Case) -> None:
    x, y = case.tensors(
        tb.Tensor("x", role="inout", shape=(64,), dtype=torch.float32, init=tb.normal()),
        tb.Tensor("y", role="out", shape=(64,), dtype=torch.float32),
    )

    @case.kernel("ours")
    def kernel_ours():
        double = case.triton("kernel.py:double")

        def launch():
            double[(1,)](x=x, y=y, n=64)

        return launch

    @case.oracle(returns=("y",))
    def oracle(x):
        return x * 2

    case.check(tb.Rule("y"))
"""


class Ran:
    """A case with a tuned kernel, through the driver; `times` counts the launches that were timed."""

    def __init__(self, folder: Path, kernel: Any, chosen: str | None = None) -> None:
        (folder / "workloads").mkdir(exist_ok=True)
        (folder / "workloads" / "w.toml").touch()
        (folder / "workloads" / "kernel.py").write_text("double = None\n")
        (folder / "w.py").write_text(HARNESS)
        program = open_program(folder / "w.py")
        assert isinstance(program, Program)
        vars(load_file(folder / "workloads" / "kernel.py"))["double"] = kernel
        row = Row(workload="w", case="n64", implementation="ours", role="kernel")
        configurations = (("ours", chosen),) if chosen else ()
        job = CaseJob(case="n64", rows=(row,), configurations=configurations)
        self.events: list[dict[str, Any]] = []
        program.run(job, Plan(device="cpu", placements=2, rounds=1), self.events.append)
        (self.outcome,) = [
            codec.load(Outcome, e["outcome"]) for e in self.events if e["event"] == "outcome"
        ]


@pytest.mark.usefixtures("_compiled")
class TestDriven:
    """Through the driver: tuning is over before anything is verified or timed."""

    def test_only_the_chosen_configuration_is_launched_after_the_first_build(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jit = FakeJit()
        at: list[int] = []
        verify = CaseRun.verify

        def counted(*args: Any, **named: Any) -> bool:
            at.append(len(jit.launched))
            return verify(*args, **named)

        monkeypatch.setattr(CaseRun, "verify", counted)
        ran = Ran(tmp_path, tuner(jit))
        assert isinstance(ran.outcome, Timed), ran.outcome
        assert at[0] == 2 * 3 + 1
        assert {call["BLOCK"] for call in jit.launched[at[0] - 1 :]} == {256}

    def test_a_choice_of_an_earlier_run_is_launched_from_the_start(self, tmp_path: Path) -> None:
        jit = FakeJit()
        ran = Ran(tmp_path, tuner(jit), chosen=SMALL)
        assert isinstance(ran.outcome, Timed), ran.outcome
        assert {call["BLOCK"] for call in jit.launched} == {64}

    def test_a_tuner_that_fails_fails_the_build(self, tmp_path: Path) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise RuntimeError("0 active drivers")

        kernel = tuner(FakeJit())
        kernel._do_bench = refuse
        outcome = Ran(tmp_path, kernel).outcome
        assert isinstance(outcome, Failed)
        assert (outcome.stage, outcome.reason) == ("build", "RuntimeError: 0 active drivers")

    def test_the_choice_stands_beside_the_digest(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tirbench.launch import triton as ours

        facts = CodeFacts(digest="sass:0123", registers=32)
        monkeypatch.setattr(ours, "code_facts", lambda _: facts)
        outcome = Ran(tmp_path, tuner(FakeJit())).outcome
        assert isinstance(outcome, Timed)
        assert outcome.code == CodeFacts(digest="sass:0123", registers=32, configuration=LARGE)


@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize("name", ["tuned", "guessed_below", "guessed_above"])
def test_the_interpreter_verifies_the_first_configuration(tmp_path: Path, name: str) -> None:
    file = tmp_path / "interpreted.py"
    file.write_text(textwrap.dedent(INTERPRETED))
    module = load_file(file)
    kernel = prepared(getattr(module, name))
    assert not is_tuned(kernel)
    x, y = torch.randn(200), torch.zeros(200)
    grids: list[int] = []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        grids.append(meta["BLOCK"])
        return (-(-200 // meta["BLOCK"]),)

    with recorded(launches_triton=True) as found:
        kernel[grid](x_ptr=x, y_ptr=y, n=200)
    assert torch.equal(y, 2 * x)
    assert set(grids) == {64}
    assert found == []
    assert chosen_configuration(kernel) == SMALL


def test_triton_compiles_as_if_inductor_had_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/torch/bin/ptxas")  # what inductor leaves behind
    with own_compiler(compiled_by_torch=False):
        assert "TRITON_PTXAS_PATH" not in os.environ
    assert os.environ["TRITON_PTXAS_PATH"] == "/torch/bin/ptxas"
    with own_compiler(compiled_by_torch=True):
        assert os.environ["TRITON_PTXAS_PATH"] == "/torch/bin/ptxas"


def test_what_inductor_sets_inside_is_kept_for_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    with own_compiler(compiled_by_torch=False):
        monkeypatch.setenv("TRITON_PTXAS_PATH", "/torch/bin/ptxas")
    assert os.environ["TRITON_PTXAS_PATH"] == "/torch/bin/ptxas"
    with own_compiler(compiled_by_torch=False):
        assert "TRITON_PTXAS_PATH" not in os.environ
