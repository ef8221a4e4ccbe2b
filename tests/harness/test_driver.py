"""One case through the driver: every row is answered once, and only what is right is timed."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tirbench import codec
from tirbench.harness import Program, open_program
from tirbench.model import CaseJob, Failed, Outcome, Plan, Row, Skipped, Timed, Verified, Wrong

HEAD = """\
import torch

from tirbench import harness as tb

program = tb.Program("w", workload="workloads/w.toml", file=__file__, seed=0)


@program.case("n64", {"n": 64})
def n64(case: tb.Case) -> None:
    x, y, r = case.tensors(
        tb.Tensor("x", shape=(64,), dtype=torch.float32, init=tb.normal()),  # w.toml:10
        tb.Tensor("y", role="out", shape=(64,), dtype=torch.float32),  # w.toml:11
        tb.Tensor("r", role="inout", shape=(64,), dtype=torch.float32, init=tb.normal()),  # w.toml:12
    )
"""

TAIL = """
    @case.oracle(returns=("y",), dtype=torch.float64)  # w.toml:90
    def oracle(x):
        return x * 2

    case.check(
        tb.Rule("y"),  # w.toml:91
    )
    case.work(bytes=512, flops=64)
"""


def implementation(
    name: str, body: str, role: str = "kernel", head: str = "", line: int = 20
) -> str:
    """One implementation of the harness, with the body of its launch."""
    return textwrap.indent(
        f"\n@case.{role}({name!r}{head})  # w.toml:{line}\ndef {role}_{name}():\n"
        f"    def launch():\n{textwrap.indent(textwrap.dedent(body), ' ' * 8)}\n"
        "    return launch\n",
        "    ",
    )


GOOD = implementation("good", "torch.mul(x, 2, out=y)")


class Ran:
    """A case that was run, with everything it reported."""

    def __init__(
        self,
        tmp_path: Path,
        *parts: str,
        head: str = HEAD,
        tail: str = TAIL,
        time: bool = False,
    ) -> None:
        (tmp_path / "workloads").mkdir(exist_ok=True)
        (tmp_path / "workloads" / "w.toml").write_text("")
        file = tmp_path / "w.py"
        file.write_text(head + "".join(parts) + tail)
        self.program = open_program(file)
        assert isinstance(self.program, Program)
        self.events: list[dict[str, Any]] = []
        names = [line.split("'")[1] for line in "".join(parts).splitlines() if "@case." in line]
        roles = ["kernel" if "@case.kernel" in part else "reference" for part in parts]
        rows = tuple(
            Row(workload="w", case="n64", implementation=n, role=r)  # type: ignore[arg-type]
            for n, r in zip(names, roles, strict=True)
        )
        job = CaseJob(
            case="n64", rows=rows, time=time, untimed="" if time else "only verified, as asked"
        )
        plan = Plan(device="cpu", placements=2, rounds=2)
        self.program.run(job, plan, self.events.append)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        found = [codec.load(Outcome, e["outcome"]) for e in self.events if e["event"] == "outcome"]
        assert len({o.row for o in found}) == len(found)
        return {outcome.row.implementation: outcome for outcome in found}


def test_a_right_kernel_is_verified_and_says_why_it_was_not_timed(tmp_path: Path) -> None:
    outcome = Ran(tmp_path, GOOD).outcomes["good"]
    assert isinstance(outcome, Verified)
    assert outcome.verification.method == "oracle"
    assert outcome.untimed == "only verified, as asked"
    assert outcome.notes == ("r restored, untimed",)


def test_a_right_kernel_is_timed_on_every_placement_and_verified_after_each(tmp_path: Path) -> None:
    ran = Ran(tmp_path, GOOD, time=True)
    outcome = ran.outcomes["good"]
    assert isinstance(outcome, Timed)
    assert outcome.estimate.timer == "wall"
    assert len(outcome.estimate.placements_us) == 2
    assert 0 < outcome.estimate.min_us <= outcome.estimate.midmean_us
    assert outcome.work.bytes == 512
    stages = [e["stage"] for e in ran.events if e["event"] == "stage"]
    assert stages.count("reverify") == 2
    samples = [e for e in ran.events if e["event"] == "samples"]
    assert [(e["placement"], len(e["rounds"])) for e in samples] == [(0, 2), (1, 2)]


def test_a_kernel_of_zeros_is_wrong(tmp_path: Path) -> None:
    outcome = Ran(tmp_path, implementation("zeros", "y.zero_()")).outcomes["zeros"]
    assert isinstance(outcome, Wrong)
    assert "all got values are 0" in outcome.reason


def test_a_kernel_that_writes_nothing_is_wrong_though_the_memory_held_the_right_values(
    tmp_path: Path,
) -> None:
    outcomes = Ran(tmp_path, GOOD, implementation("idle", "pass")).outcomes
    assert isinstance(outcomes["good"], Verified)
    assert isinstance(outcomes["idle"], Wrong)
    assert "never written" in outcomes["idle"].reason


def test_a_kernel_that_writes_its_input_is_wrong(tmp_path: Path) -> None:
    body = "torch.mul(x, 2, out=y)\nx.zero_()"
    outcome = Ran(tmp_path, implementation("vandal", body)).outcomes["vandal"]
    assert isinstance(outcome, Wrong)
    assert "x" in outcome.reason


RESIZING = "y.resize_(32)\ntorch.mul(x[:32], 2, out=y)"


def test_a_kernel_that_resizes_its_output_is_wrong_and_the_next_one_has_it_as_declared(
    tmp_path: Path,
) -> None:
    outcomes = Ran(tmp_path, implementation("bad", RESIZING), GOOD).outcomes
    assert isinstance(outcomes["bad"], Wrong)
    assert outcomes["bad"].reason == "y was resized from [64] to [32]"
    assert isinstance(outcomes["good"], Verified)


def test_an_oracle_of_another_shape_than_is_declared_is_an_error_of_the_workload(
    tmp_path: Path,
) -> None:
    """torch resizes y to what fits, and then it is what the oracle says."""
    head = HEAD.replace('"y", role="out", shape=(64,)', '"y", role="out", shape=(65,)')
    outcome = Ran(tmp_path, GOOD, head=head).outcomes["good"]
    assert isinstance(outcome, Failed)
    assert outcome.reason == (
        "UsageError: the oracle returns [64] for y, which is declared as [65]: one of them is wrong"
    )


def test_a_kernel_that_writes_past_its_output_is_wrong(tmp_path: Path) -> None:
    body = "import ctypes\ntorch.mul(x, 2, out=y)\nctypes.memset(y.data_ptr() + y.nbytes, 0, 4)"
    outcome = Ran(tmp_path, implementation("past", body)).outcomes["past"]
    assert isinstance(outcome, Wrong)
    assert "y" in outcome.reason


def test_a_kernel_that_raises_fails_alone_with_the_line_of_the_toml(tmp_path: Path) -> None:
    bad = implementation("bad", "raise RuntimeError('out of registers')", line=33)
    outcomes = Ran(tmp_path, bad, GOOD).outcomes
    failed = outcomes["bad"]
    assert isinstance(failed, Failed)
    assert (failed.stage, failed.reason) == ("verify", "RuntimeError: out of registers")
    assert failed.place == "workloads/w.toml:33"
    assert isinstance(outcomes["good"], Verified)


def test_a_reference_that_cannot_be_imported_fails_at_build_with_the_message_of_python(
    tmp_path: Path,
) -> None:
    builder = (
        "\n    @case.reference('absent')  # w.toml:44\n    def reference_absent():\n"
        "        return case.load('no_such_package.op')\n"
    )
    outcomes = Ran(tmp_path, builder, GOOD).outcomes
    failed = outcomes["absent"]
    assert isinstance(failed, Failed)
    assert failed.stage == "build"
    assert failed.reason == "ModuleNotFoundError: No module named 'no_such_package'"
    assert failed.place == "workloads/w.toml:44"
    assert isinstance(outcomes["good"], Verified)


def test_a_returned_value_is_checked_under_the_name_it_is_bound_to(tmp_path: Path) -> None:
    right = implementation("right", "return x + x", "reference", ", returns=('y',)")
    wrong = implementation("wrong", "return x", "reference", ", returns=('y',)")
    outcomes = Ran(tmp_path, right, wrong).outcomes
    assert isinstance(outcomes["right"], Verified)
    assert "returns its own memory" in outcomes["right"].notes
    assert isinstance(outcomes["wrong"], Wrong)


def test_a_kernel_that_becomes_wrong_while_it_is_timed_is_wrong(tmp_path: Path) -> None:
    body = """
        calls = globals().setdefault('CALLS', [])
        calls.append(1)
        torch.mul(x, 2 if len(calls) < 20 else 3, out=y)
    """
    outcome = Ran(tmp_path, implementation("tired", body), time=True).outcomes["tired"]
    assert isinstance(outcome, Wrong)
    assert outcome.stage == "reverify"
    assert outcome.reason.startswith("after timing: y: 64 of 64 elements off")


def test_an_inout_tensor_is_restored_before_every_timed_call(tmp_path: Path) -> None:
    body = "r.mul_(2)\ntorch.mul(x, 2, out=y)\nassert float(r.abs().max()) < 10"
    outcome = Ran(tmp_path, implementation("inplace", body), time=True).outcomes["inplace"]
    assert isinstance(outcome, Timed), outcome


def test_a_compiled_closure_writes_the_tensors_of_its_own_placement(tmp_path: Path) -> None:
    builder = (
        "\n    @case.kernel('closure')  # w.toml:40\n    def kernel_closure():\n"
        "        return case.compile(lambda: y.copy_(x * 2), mode='default')\n"
    )
    outcome = Ran(tmp_path, builder, time=True).outcomes["closure"]
    assert isinstance(outcome, Timed), outcome


def test_an_oracle_that_raises_fails_every_row_once(tmp_path: Path) -> None:
    tail = TAIL.replace("return x * 2", "raise ValueError('no such mode')")
    outcomes = Ran(tmp_path, GOOD, implementation("other", "pass"), tail=tail).outcomes
    assert {type(outcome) for outcome in outcomes.values()} == {Failed}
    assert outcomes["good"].reason == "ValueError: no such mode"  # type: ignore[union-attr]
    assert outcomes["good"].place == "workloads/w.toml:90"  # type: ignore[union-attr]


def test_a_check_that_zeros_would_pass_is_refused(tmp_path: Path) -> None:
    tail = TAIL.replace("tb.Rule('y')", "").replace('tb.Rule("y")', 'tb.Rule("y", atol=100.0)')
    outcome = Ran(tmp_path, GOOD, tail=tail).outcomes["good"]
    assert isinstance(outcome, Failed)
    assert "would accept an output of zeros" in outcome.reason


@pytest.mark.parametrize(
    ("requires", "reason"),
    [
        ("device='cuda'", "needs a CUDA device: run with --device cuda"),
        (
            "packages=('no-such-package>=2',)",
            "needs no-such-package>=2: pip install 'no-such-package>=2'",
        ),
        ("packages=('torch>=99',)", "needs torch>=99: pip install 'torch>=99'"),
    ],
)
def test_what_the_machine_lacks_is_skipped_with_what_to_do(
    tmp_path: Path, requires: str, reason: str
) -> None:
    head = f", requires=tb.Requires({requires})"
    outcome = Ran(tmp_path, implementation("picky", "pass", head=head)).outcomes["picky"]
    assert isinstance(outcome, Skipped)
    assert outcome.reason == reason


def test_a_row_that_the_harness_does_not_declare_is_answered(tmp_path: Path) -> None:
    ran = Ran(tmp_path, GOOD)
    row = Row(workload="w", case="n64", implementation="ghost", role="kernel")
    ran.program.run(CaseJob(case="n64", rows=(row,)), Plan(device="cpu"), ran.events.append)
    failed = ran.outcomes["ghost"]
    assert isinstance(failed, Failed)
    assert failed.reason == "UsageError: the harness declares no implementation 'ghost'"


def test_a_reference_may_be_held_to_a_looser_tolerance_and_its_row_says_so(tmp_path: Path) -> None:
    body = "torch.mul(x, 2 + 4e-5, out=y)"
    outcomes = Ran(
        tmp_path,
        implementation("rough", body),
        implementation("loose", body, role="reference", head=", looser=4.0"),
    ).outcomes
    assert isinstance(outcomes["rough"], Wrong)
    loose = outcomes["loose"]
    assert isinstance(loose, Verified)
    assert "held to 4 times the tolerance" in loose.notes
