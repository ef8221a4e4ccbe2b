"""Every error leads to the line of the TOML that asked for what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirbench.harness import Program
from tirbench.model import Failed

from .test_driver import GOOD, HEAD, TAIL, Ran, implementation


def place(ran: Ran, name: str = "good") -> str:
    outcome = ran.outcomes[name]
    assert isinstance(outcome, Failed)
    return outcome.place


def test_an_oracle_that_returns_something_else_is_named_and_not_the_kernel(tmp_path: Path) -> None:
    tail = TAIL.replace("return x * 2", "return x, x")
    assert place(Ran(tmp_path, GOOD, tail=tail)) == "workloads/w.toml:90"


def test_a_check_that_zeros_would_pass_is_that_of_the_oracle(tmp_path: Path) -> None:
    tail = TAIL.replace('tb.Rule("y")', 'tb.Rule("y", atol=100.0)')
    assert place(Ran(tmp_path, GOOD, tail=tail)) == "workloads/w.toml:90"


def test_an_error_that_does_not_pass_the_harness_is_that_of_its_implementation(
    tmp_path: Path,
) -> None:
    head = ", returns=('y',)"
    ran = Ran(tmp_path, implementation("two", "return 1, 2", head=head, line=55), GOOD)
    assert place(ran, "two") == "workloads/w.toml:55"
    file = tmp_path / "w.py"
    declared = "@case.kernel('two', returns=('y',))  # w.toml:55"
    wrapped = "@case.kernel(  # w.toml:56\n        'two',\n        returns=('y',),\n    )"
    assert declared in file.read_text()
    file.write_text(file.read_text().replace(declared, wrapped))
    assert Program("w", workload="w.toml", file=str(file)).place_of("two") == "w.toml:56"


def test_work_that_cannot_be_computed_fails_rows_and_not_the_worker(tmp_path: Path) -> None:
    tail = TAIL.replace(
        "case.work(bytes=512", "case.work(  # w.toml:95\n        bytes=lambda: 1 / 0"
    )
    other = implementation("other", "torch.mul(x, 2, out=y)")
    ran = Ran(tmp_path, GOOD, other, tail=tail, time=True)
    for name in ("good", "other"):
        outcome = ran.outcomes[name]
        assert isinstance(outcome, Failed)
        assert (outcome.stage, outcome.reason) == ("time", "ZeroDivisionError: division by zero")
        assert outcome.place == "workloads/w.toml:95"


def test_what_fails_in_one_case_is_not_looked_for_in_the_one_above(tmp_path: Path) -> None:
    """The tensors of a case are laid out by one call, which no comment stands above."""
    Ran(tmp_path, GOOD)
    source = tmp_path / "w.py"
    text = source.read_text()
    body = text[text.index("@program.case") :].replace("n64", "n65")
    body = body.replace("shape=(64,)", "shape=(-1,)", 1)
    source.write_text(text + "\n\n" + body)
    lines = source.read_text().splitlines()
    call = next(n for n, line in enumerate(lines) if "shape=(-1,)" in line)

    class Trace:
        """A traceback with one frame, inside the allocation of the second case."""

        tb_lineno = call  # of `case.tensors(`: the line above, counted from one
        tb_next = None

        class tb_frame:  # noqa: N801 - as a traceback calls it
            class f_code:  # noqa: N801
                co_filename = str(source)

    fresh = Program("w", workload="workloads/w.toml", file=str(source))
    assert fresh.place(Trace()) == "workloads/w.toml"  # type: ignore[arg-type]


COMPUTED = """\
    x, y, r = case.tensors(
        tb.Tensor("x", shape=(64,), dtype=torch.float32),  # w.toml:10
        tb.Tensor("y", role="out", shape=(64,), dtype=torch.float32),  # w.toml:11
        tb.Tensor(  # w.toml:12
            'r', role='inout', shape=(64,), dtype=torch.float32, init=tb.values([1.0] * COUNT)
        ),
        computed=(
            tb.Computed(("x",), FUNCTION, lambda r: (r,)),  # w.toml:40
        ),
    )
"""


@pytest.mark.parametrize(
    ("count", "function", "reason", "line"),
    [
        ("64", "lambda r: 1 / 0", "ZeroDivisionError: division by zero", 40),
        ("64", "lambda r: r[:3]", "TensorError: x: <lambda> returned", 40),
        ("63", "lambda r: r", "TensorError: r: 63 numbers for a tensor of 64 elements", 12),
    ],
)
def test_contents_that_cannot_be_made_are_at_the_line_that_says_how(
    tmp_path: Path, count: str, function: str, reason: str, line: int
) -> None:
    start = HEAD.index("    x, y, r = ")
    text = COMPUTED.replace("COUNT", count).replace("FUNCTION", function)
    ran = Ran(tmp_path, GOOD, head=HEAD[:start] + text)
    outcome = ran.outcomes["good"]
    assert isinstance(outcome, Failed)
    assert (outcome.stage, outcome.place) == ("allocate", f"workloads/w.toml:{line}")
    assert outcome.reason.startswith(reason)
