"""Compiling without a GPU: the specialisation that a case gets, and answers whatever happens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tirbench import aot, compiling
from tirbench.errors import UsageError
from tirbench.model import Compilation, CompiledSuite, CompileJob, Row
from tirbench.reading import read
from tirbench.report import compilations
from tirbench.selection import Selection

KERNELS = """\
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def tuned(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


def scaled(x, factor):
    return x * factor
"""

WORKLOAD = """\
schema = 1
description = "y = 2 x"
id = "n{n}_f{factor}"

[matrix]
n = [4096, 8192, 4099]
factor = [2, 1]

[tensors]
x = { shape = ["n"], dtype = "float16", init = "normal" }
y = { role = "out", like = "x" }
counts = { shape = [4], dtype = "int32", init = { kind = "full", value = "n // 4" } }

[kernels.plain]
kind = "triton"
target = "kernels/scale.py:scale"
grid = ["cdiv(n, 256)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", factor = "factor", BLOCK = 256 }

[kernels.counted]
kind = "triton"
target = "kernels/scale.py:scale"
grid = ["cdiv(n, 256)"]
args = { x_ptr = "x", y_ptr = "y", n = "sum(counts)", factor = "factor", BLOCK = 256 }

[kernels.tuned]
kind = "triton"
target = "kernels/scale.py:tuned"
grid = ["cdiv(n, BLOCK)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", factor = "factor" }

[check.oracle]
target = "kernels/scale.py:scaled"
args = ["x", "factor"]
returns = "y"
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Compilation]:
    pytest.importorskip("triton")
    root = tmp_path_factory.mktemp("project")
    (root / ".tirbench").mkdir()
    (root / "kernels").mkdir()
    (root / "kernels/scale.py").write_text(KERNELS)
    (root / "scale.toml").write_text(WORKLOAD)
    reading = read(Selection(files=(str(root / "scale.toml"),), select="all"))
    assert not reading.problems
    found = compiling.compiled(reading, ("sm_90",))
    assert {"triton", "ptxas"} <= dict(found.compilers).keys()
    return {(one.row.case, one.row.implementation): one for one in found.compilations}


def digest_of(suite: dict[tuple[str, str], Compilation], case: str, name: str) -> str:
    one = suite[case, name]
    assert one.code is not None, one.failure
    return one.code.digest


def test_sizes_that_specialise_alike_have_one_code(
    suite: dict[tuple[str, str], Compilation],
) -> None:
    assert digest_of(suite, "n4096_f2", "plain") == digest_of(suite, "n8192_f2", "plain")


def test_divisibility_and_equality_to_one_make_other_code(
    suite: dict[tuple[str, str], Compilation],
) -> None:
    usual = digest_of(suite, "n4096_f2", "plain")
    assert digest_of(suite, "n4099_f2", "plain") != usual
    assert digest_of(suite, "n4096_f1", "plain") != usual


def test_an_argument_that_contents_decide_is_specialised_by_them(
    suite: dict[tuple[str, str], Compilation],
) -> None:
    assert digest_of(suite, "n4096_f2", "counted") == digest_of(suite, "n4096_f2", "plain")
    # 4 · (4099 // 4) = 4096, which 16 divides
    assert digest_of(suite, "n4099_f2", "counted") == digest_of(suite, "n4096_f2", "plain")


def test_a_tuned_kernel_without_a_pinned_choice_says_which_one_it_is(
    suite: dict[tuple[str, str], Compilation],
) -> None:
    one = suite["n4096_f2", "tuned"]
    assert one.notes == ("first of 2 configurations: none is pinned",)
    assert one.code is not None
    assert "BLOCK=256" in (one.code.configuration or "")


def test_the_resources_are_there(suite: dict[tuple[str, str], Compilation]) -> None:
    (kernel,) = suite["n4096_f2", "plain"].kernels
    assert kernel.threads == 128
    assert kernel.registers > 0
    assert kernel.instructions > 10
    assert kernel.occupancy == 1.0


def test_the_table_has_a_line_for_each_row(suite: dict[tuple[str, str], Compilation]) -> None:
    text = compilations.compilations_text(
        CompiledSuite(compilers=(("triton", "3.6.0"),), compilations=tuple(suite.values()))
    )
    assert text.startswith("compiled by triton 3.6.0\n\nscale · sm_90\n")
    assert text.endswith("18 rows compiled\n")


# --- Processes that die ---------------------------------------------------------------------------

ANSWER = """\
import json, os, sys, time
requests = json.load(open(sys.argv[1]))
with open(sys.argv[2], "a") as answers:
    def say(line):
        print(json.dumps(line), file=answers, flush=True)
    say({"compilers": {"triton": "9"}})
    for request in requests:
        for row in request["rows"]:
            key = "/".join(row[k] for k in ("workload", "case", "implementation"))
            say({"begun": key, "arch": "sm_90"})
            if row["case"] == "dies":
                os.abort()
            if row["case"] == "hangs":
                time.sleep(60)
            code = {"digest": "sass:1", "registers": 8}
            say({"done": {"row": row, "arch": "sm_90", "code": code}})
"""


def jobs(*cases: str) -> list[CompileJob]:
    return [
        CompileJob(
            harness="w.py",
            case=case,
            rows=(Row(workload="w", case=case, implementation="k", role="kernel"),),
            target=aot.target_of("sm_90"),
        )
        for case in cases
    ]


def answers(tmp_path: Path, *cases: str) -> dict[str, str]:
    command = (sys.executable, "-c", ANSWER)
    found = aot.compile_all(jobs(*cases), root=tmp_path, command=command, silence_s=1.0)
    assert [one.row.case for one in found.compilations] == list(cases)
    return {one.row.case: one.failure for one in found.compilations}


def test_a_process_that_dies_or_hangs_costs_the_row_it_was_at(tmp_path: Path) -> None:
    found = answers(tmp_path, "a", "dies", "b", "hangs", "c")
    assert found == {
        "a": "",
        "dies": "crashed: SIGABRT",
        "b": "",
        "hangs": "not compiled within 1 s",
        "c": "",
    }


def test_a_process_that_cannot_start_answers_every_row(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import no_such_module")
    found = aot.compile_all(jobs("a", "b"), root=tmp_path, command=command)
    assert all("No module named 'no_such_module'" in one.failure for one in found.compilations)
    assert len(found.compilations) == 2


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(UsageError, match="--arch sm_12: one of sm_80"):
        aot.target_of("sm_12")
