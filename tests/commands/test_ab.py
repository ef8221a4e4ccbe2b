"""`ab` on a CPU: real revisions, real workers, kernels that take a known time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.selftest.conftest import row_record, run_record, virtual_run
from tirbench import selftest
from tirbench.commands import ab, gate
from tirbench.execute import describe
from tirbench.model import PairReport, Verdict

from .conftest import Repository, make_repository

SPIN = '''\
"""Work that takes so many microseconds on every machine, whatever else it does."""

import time

import torch

FACTOR = 2


def spin(us):
    end = time.perf_counter_ns() + us * 1000
    while time.perf_counter_ns() < end:
        pass
'''

OPS = '''\
"""Twice the input, in several ways."""

import spinning
import torch
from amounts import US


def work(x, y):
    import late

    torch.mul(x, late.FACTOR, out=y)
    spinning.spin(US)


def steady(x, y):
    torch.mul(x, 2, out=y)
    spinning.spin(150)
'''

OTHERS = '''\
"""Kernels that one side or the other cannot compare."""

import spinning
import torch


def fine(x, y):
    torch.mul(x, 2, out=y)
    spinning.spin(150)
'''

REGISTERED = '''\
"""A kernel behind an operator, of which a process has one."""

import spinning
import torch


@torch.library.custom_op("ab_of_tests::double", mutates_args={"y"})
def double_op(x: torch.Tensor, y: torch.Tensor) -> None:
    torch.mul(x, 2, out=y)
    spinning.spin(150)


def registered(x, y):
    torch.ops.ab_of_tests.double(x, y)
'''

ORACLE = '''\
"""What is right."""


def doubled(x):
    return x * 2
'''

HEAD = """\
schema = 1
description = "Twice the input"
id = "n{n}"

[matrix]
n = [64]

[select]
default = ["*"]
cpu = ["*"]

[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }

[check.oracle]
target = "kernels/oracle.py:doubled"
args = ["x"]
returns = "y"

[gate]
slower_than = 0.08
"""


def kernel(name: str, target: str) -> str:
    return f'\n[kernels.{name}]\ntarget = "kernels/{target}"\nargs = ["x", "y"]\n'


WORK = HEAD + kernel("work", "ops.py:work") + kernel("steady", "ops.py:steady")
MIXED = HEAD + kernel("fine", "others.py:fine") + kernel("registered", "registered.py:registered")
FILES = {
    "workloads/work.toml": WORK,
    "workloads/mixed.toml": MIXED,
    "workloads/kernels/ops.py": OPS,
    "workloads/kernels/others.py": OTHERS,
    "workloads/kernels/registered.py": REGISTERED,
    "workloads/kernels/oracle.py": ORACLE,
    "workloads/kernels/spinning.py": SPIN,
    "workloads/kernels/amounts.py": "US = 150\n",
    "workloads/kernels/late.py": "FACTOR = 2\n",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Two workloads of three files a kernel, committed, and the tests inside of it."""
    made = make_repository(tmp_path, FILES)
    made.commit("Workloads")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TIRBENCH_LOCK_DIR", str(tmp_path / ".tirbench"))
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / ".tirbench").mkdir()
    return made


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(ab.command, arguments, standalone_mode=False)


def compared(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a comparison on the CPU."""
    done = invoke(*arguments, "--device", "cpu", "--format", "json")
    assert done.exception is None, done.output
    return done.return_value, json.loads(done.stdout)


def verdicts(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "/".join(one["row"][name] for name in ("workload", "case", "implementation")): one
        for one in document["verdicts"]
    }


def kinds(document: dict[str, Any]) -> dict[str, str]:
    return {name: one["kind"] for name, one in verdicts(document).items()}


def test_a_slowdown_in_a_sibling_is_named_and_what_cannot_be_compared_says_why(
    repository: Repository,
) -> None:
    """30 % in a number that one kernel imports; cases, kernels, problems and operators differ."""
    repository.write("workloads/kernels/amounts.py", "US = 195\n")
    repository.write("workloads/kernels/late.py", "FACTOR = 1 + 1\n")
    repository.edit("workloads/work.toml", "n = [64]", "n = [64, 65]")
    repository.edit("workloads/mixed.toml", 'init = "normal"', 'init = "uniform"')
    repository.write(
        "workloads/apart.toml", HEAD + kernel("registered", "registered.py:registered")
    )
    repository.write("workloads/worse.toml", HEAD + kernel("fine", "others.py:fine"))
    repository.commit("Much of it")
    # Of the apart workload base is the same, and of the worse one head is wrong.
    repository.edit("workloads/kernels/others.py", "torch.mul(x, 2", "torch.mul(x, 3")
    code, document = compared("HEAD~1", "workloads/work.toml", "workloads/mixed.toml")
    assert code == 1
    found = kinds(document)
    assert found["work/n64/work"] == "slower"
    assert found["work/n64/steady"] in {"same", "undecided"}
    assert found["work/n65/work"] == found["work/n65/steady"] == "missing"
    assert found["mixed/n64/fine"] == found["mixed/n64/registered"] == "incomparable"
    reasons = {name: one["reason"] for name, one in verdicts(document).items()}
    assert reasons["mixed/n64/fine"] == "another problem"
    assert reasons["work/n65/work"] == "HEAD~1 has no such row"
    effect = verdicts(document)["work/n64/work"]["estimate"]["log_ratio"]
    assert 0.15 < effect < 0.4
    assert len(document["placebos"]) == 2
    assert document["environment"]["rows"] == 2
    kept = repository.root / ".tirbench" / "ab" / document["id"]
    assert json.loads((kept / "report.json").read_text())["id"] == document["id"]
    assert not (kept / "base").exists()
    assert repository.git("status", "--porcelain").strip() == "M workloads/kernels/others.py"

    code, document = compared("HEAD", "workloads/apart.toml", "workloads/worse.toml")
    assert code == 1
    rows = verdicts(document)
    apart = rows["apart/n64/registered"]
    assert apart["method"] == "paired workers"
    assert apart["kind"] in {"same", "undecided"}, apart
    worse = rows["worse/n64/fine"]
    assert (worse["kind"], worse["rule"]) == ("undecided", "interrupted")
    assert worse["reason"].startswith("head: y: 64 of 64 elements off")
    assert str(repository.root) not in json.dumps(document)


def test_one_revision_against_itself_is_never_slower(repository: Repository) -> None:
    """A file that nothing imports differs, so that nothing but times can say that it is the same."""
    repository.write("workloads/kernels/unused.py", "NOTHING = 0\n")
    for _ in range(2):
        code, document = compared("HEAD", "workloads/work.toml")
        assert set(kinds(document).values()) <= {"same", "undecided"}, document
        assert code in {0, 3}


def keep_self_test(root: Path) -> None:
    """Keep one of this machine's hardware, made by hand."""
    records = [
        run_record(hardware=describe("cpu").hardware),
        row_record("w/a/k"),
        *virtual_run(["w/a/k"], 0),
    ]
    found = selftest.tallied(records)
    assert found is not None
    selftest.keep(root, selftest.Kept.of(records[:1], found))


def test_a_candidate_is_compared_with_another_of_its_workload(repository: Repository) -> None:
    repository.write("workloads/kernels/amounts.py", "US = 195\n")
    keep_self_test(repository.root)
    arguments = ("--candidate", "work", "--candidate", "steady", "workloads/work.toml")
    done = invoke(*arguments, "--device", "cpu", "--format", "markdown")
    assert done.return_value == 0, done.output
    assert "**ab work → steady: 1 row: 1 faster: exit 0**" in done.stdout
    assert "| work/n64/steady | faster | -2" in done.stdout
    assert "placebo 0/1 flagged, environment" in done.stdout
    assert "equal code called different in 0 of 6 \\(at most 39.3 %\\)" in done.stdout


def test_a_plan_says_what_it_would_find_and_cost_and_measures_nothing(
    repository: Repository,
) -> None:
    done = invoke("HEAD", "HEAD", "workloads/work.toml", "--plan", "--device", "cpu")
    assert done.return_value == 0, done.output
    assert "work/n64/steady  8 %        5" in done.stdout
    assert "never measured here: its noise is unknown" in done.stdout
    done = invoke("HEAD", "--plan", "--resolve", "0.5%", "--device", "cpu", "--format", "json")
    rows = json.loads(done.stdout)["rows"]
    assert {row["slower_than"] for row in rows} == {0.005}
    assert {row["workers"] for row in rows} == {5}
    assert not list(repository.root.glob(".tirbench/ab/*"))


def test_a_gate_that_trips_is_confirmed_by_the_code_of_its_pin(repository: Repository) -> None:
    """Pinned, committed, made slower: the run trips, and the comparison with the pin's code fails it."""
    from tirbench import cli

    def exec_(*more: str) -> Result:
        arguments = ["exec", "workloads/work.toml", "--device", "cpu", *more]
        return CliRunner().invoke(cli.commands, arguments, standalone_mode=False)

    assert exec_("--pin").return_value == 0
    repository.commit("Baselines")
    clean = CliRunner().invoke(gate.command, ["--no-confirm"], standalone_mode=False)
    assert clean.return_value == 0, clean.output
    repository.write("workloads/kernels/amounts.py", "US = 195\n")
    assert exec_().return_value == 0
    failed = CliRunner().invoke(gate.command, ["--format", "json"], standalone_mode=False)
    assert failed.return_value == 1, failed.output
    rows = {
        row["decision"]["implementation"]: row["decision"]
        for row in json.loads(failed.stdout)["rows"]
    }
    assert rows["work"]["rule"] == "confirmed"
    assert "ab: slower" in rows["work"]["reason"]
    assert rows["steady"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'BASE'"),
        (("no-such-revision",), "no revision of this repository"),
        (("HEAD", "nothing.toml"), "no such workload on either side"),
        (("HEAD", "workloads/work.toml::gone"), "workloads/work.toml::gone matches no case"),
        (("HEAD", "/etc"), "is not in this project"),
        (("--candidate", "work"), "write --candidate twice"),
        (("HEAD", "--resolve", "none"), "write a share of the time"),
    ],
)
def test_what_cannot_be_compared_at_all_is_said_at_once(
    repository: Repository, arguments: tuple[str, ...], message: str
) -> None:
    done = invoke(*arguments, "--device", "cpu")
    assert message in str(done.exception)
    assert not list(repository.root.glob(".tirbench/ab/*/base"))


def test_a_report_of_github_annotates_what_is_slower() -> None:
    from tirbench.model import Row
    from tirbench.report import verdicts as texts

    row = Row(workload="work", case="n64", implementation="ours", role="kernel")
    verdict = Verdict(row=row, kind="slower", rule="confirmed", reason="+2.00 % ± 0.30 %")
    report = PairReport(
        id="1",
        base="main",
        head="HEAD",
        hardware="cpu-x",
        verdicts=(verdict,),
        left_out=(("needs 2 ranks", 3),),
        paths=(("work", "workloads/work.toml"),),
    )
    text = texts.render(report, "github", code=1, width=200)
    first, *rest = text.splitlines()
    assert first == (
        "::error file=workloads/work.toml,title=ab%3A slower%3A work/n64/ours::+2.00 %25 ± 0.30 %25"
    )
    assert "3 rows not compared: needs 2 ranks" in rest
    assert rest[-1] == "ab main → HEAD: 1 row: 1 slower: exit 1"


def test_what_a_row_is_known_for_says_how_small_a_change_would_be_found() -> None:
    """3.4 µs, 0.2 % when repeated: the figures of an H200 find 1 % with five workers."""
    from tirbench.calls import FLUSH_US
    from tirbench.comparing.price import Known
    from tirbench.judge import gpu_seconds, minimal_effect, workers_for

    known = Known(midmean_us=3.4, within_sd=0.002, source="its pin")
    plan = known.plan(0.01)
    assert plan.quads == 60
    assert plan.quad_sd / plan.quads**0.5 == pytest.approx(0.002 * 2**0.5)
    assert 0.005 < minimal_effect(plan) < 0.01
    assert gpu_seconds(plan, 3.4, FLUSH_US, block=known.block) < 0.25  # what MEASURING asks for
    assert workers_for(known.plan(0.002), 0.002) > workers_for(known.plan(0.01), 0.01)
    assert Known(midmean_us=800.0, within_sd=0.002, source="").block == (0, 1)
