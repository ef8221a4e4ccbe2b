"""Commands as compositions: what is read, what is cut down, and what the shell is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench import pipeline, store
from tirbench.errors import UsageError
from tirbench.model import (
    Baseline,
    Cause,
    Estimate,
    Failed,
    ImplementationRole,
    Machine,
    Outcome,
    Row,
    Skipped,
    Stage,
    Timed,
    Verification,
    Verified,
    WorkDone,
    Wrong,
)
from tirbench.plan import rows_of
from tirbench.reading import read
from tirbench.selection import Selection

TEXT = """\
schema = 1
description = "A copy"
id = "n{n}"
[matrix]
n = [1, 2]
[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }
[kernels.ours]
target = "torch.clone"
args = ["x"]
returns = "y"
[references.theirs]
target = "torch.clone"
args = ["x"]
returns = "y"
[check.oracle]
target = "torch.clone"
args = ["x"]
returns = "y"
"""
ORACLE = Verification(method="oracle", worst=0.1)
MACHINE = Machine(hardware="cpu-some", device="Some", kind="cpu")


def row(role: ImplementationRole = "kernel", implementation: str = "ours") -> Row:
    return Row(workload="copy", case="n1", implementation=implementation, role=role)


def failed(stage: Stage, role: ImplementationRole = "kernel") -> Failed:
    return Failed(row=row(role), stage=stage, reason="it did")


def wrong(role: ImplementationRole = "kernel") -> Wrong:
    return Wrong(row=row(role), reason="it is", stage="verify")


VERIFIED = Verified(row=row(), verification=ORACLE, untimed="as asked")
SKIPPED = Skipped(row=row(), reason="needs a CPU")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "copy.toml").write_text(TEXT)
    (tmp_path / "move.toml").write_text(TEXT)
    (tmp_path / "bad.toml").write_text(TEXT.replace("n = [1, 2]", "n = [0]"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- Exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((), 0),
        ((VERIFIED, SKIPPED), 0),
        ((VERIFIED, wrong()), 1),
        ((failed("build"),), 1),
        ((failed("verify"),), 1),
        ((failed("reverify"),), 1),
        ((failed("load"),), 3),
        ((failed("allocate"),), 3),
        ((failed("time"),), 3),
        ((failed("time"), wrong()), 1),
        ((wrong("reference"), failed("build", "reference"), failed("time", "reference")), 0),
    ],
)
def test_a_kernel_of_ours_decides_the_exit_code(outcomes: tuple[Outcome, ...], code: int) -> None:
    assert pipeline.exit_code(outcomes, invalid=False) == code


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        ("raised", 1),
        ("crashed", 1),
        ("hung", 1),
        ("out_of_memory", 3),
        ("interfered", 3),
        ("throttled", 3),
        ("unavailable", 3),
    ],
)
def test_what_the_machine_lacks_is_no_fault_of_the_kernel(cause: Cause, code: int) -> None:
    assert pipeline.exit_code([replace(failed("verify"), cause=cause)], invalid=False) == code


@given(st.lists(st.sampled_from([VERIFIED, SKIPPED, wrong(), failed("time"), failed("build")])))
def test_a_file_that_could_not_be_read_comes_before_every_outcome(outcomes: list[Outcome]) -> None:
    assert pipeline.exit_code(outcomes, invalid=True) == 2
    assert pipeline.exit_code(outcomes, invalid=False) == pipeline.exit_code(
        reversed(outcomes), invalid=False
    )


# --- Reading --------------------------------------------------------------------------------------


def test_workloads_that_do_not_expand_are_problems_beside_those_that_do(folder: Path) -> None:
    reading = read(Selection(files=(".",)))
    assert [chosen.workload.name for chosen in reading.chosen] == ["copy", "move"]
    assert {problem.file for problem in reading.problems} == {"bad.toml"}
    assert reading.root == folder


def test_nothing_named_is_an_error(folder: Path) -> None:
    assert folder.is_dir()
    with pytest.raises(UsageError, match="name at least one workload"):
        read(Selection(files=()))


def test_a_reading_is_cut_down_to_rows(folder: Path) -> None:
    assert folder.is_dir()
    reading = read(Selection(files=("copy.toml", "move.toml")))
    kept = pipeline.only(reading, [row("reference", "theirs")])
    assert [
        found.key for chosen in kept.chosen for case in chosen.cases for found in rows_of(case)
    ] == ["copy/n1/theirs"]
    assert pipeline.only(reading, []).chosen == ()


def test_a_row_is_measured_again_among_all_of_its_case(folder: Path) -> None:
    assert folder.is_dir()
    reading = read(Selection(files=("copy.toml", "move.toml")))
    kept = pipeline.cases_of(reading, [row("reference", "theirs")])
    found = [
        found.key for chosen in kept.chosen for case in chosen.cases for found in rows_of(case)
    ]
    assert found == ["copy/n1/ours", "copy/n1/theirs"]
    assert pipeline.cases_of(reading, []).chosen == ()


# --- What is added to an outcome ------------------------------------------------------------------


@pytest.fixture
def finisher(folder: Path) -> pipeline.Finisher:
    reading = read(Selection(files=("copy.toml",)))
    options = pipeline.Options(device="cpu", placements=1, rounds=1)
    return pipeline.Finisher(reading.chosen, options, folder, MACHINE)


def timed(us: float, implementation: str = "ours") -> Timed:
    estimate = Estimate(
        timer="wall",
        midmean_us=us,
        half_width_us=0.0,
        mean_us=us,
        median_us=us,
        min_us=us,
        p10_us=us,
        p90_us=us,
        calls=1,
        placements_us=(us,),
        within_sd=0.0,
    )
    return Timed(
        row=row(implementation=implementation),
        verification=ORACLE,
        estimate=estimate,
        work=WorkDone(bytes=8),
    )


def test_a_time_is_kept_with_digests_of_what_it_means_and_its_rate(
    finisher: pipeline.Finisher,
) -> None:
    kept = finisher(timed(2.0))
    assert isinstance(kept, Timed)
    assert kept.problem
    assert kept.protocol
    assert kept.source
    assert kept.rates.gbytes_per_s == pytest.approx(0.004)
    assert finisher(timed(3.0)).problem == kept.problem  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("implementation", "role", "header"),
    [("ours", "kernel", "[kernels.ours]"), ("theirs", "reference", "[references.theirs]")],
)
def test_a_row_that_crashed_is_given_the_line_that_asks_for_it(
    finisher: pipeline.Finisher,
    implementation: str,
    role: Literal["kernel", "reference"],
    header: str,
) -> None:
    line = TEXT.splitlines().index(header) + 1
    crashed = Failed(row=row(role, implementation), stage="verify", reason="crashed: SIGSEGV")
    kept = finisher(crashed)
    assert isinstance(kept, Failed)
    assert kept.place == f"copy.toml:{line}"


def test_a_place_that_is_known_is_kept(finisher: pipeline.Finisher) -> None:
    known = Failed(row=row(), stage="verify", reason="x", place="copy.toml:99")
    assert finisher(known) == known


def test_a_row_to_accept_is_written_in_full() -> None:
    assert pipeline._accepted(["copy/n1/ours", "move/n1/ours"], "copy") == [("n1", "ours")]
    with pytest.raises(UsageError, match="--accept n1/ours: write workload/case/implementation"):
        pipeline._require_known(["n1/ours"], {"copy"})


# --- Pinned configurations ------------------------------------------------------------------------


class Planning(Exception):
    """Carries what would have been planned with; nothing is run."""


def planned_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, retune: bool = False
) -> tuple[Mapping[str, Baseline], list[str]]:
    """The baselines that a run plans with, and what it says of them."""

    def refuse(*given: object) -> None:
        raise Planning(given[-1])

    monkeypatch.setattr(pipeline, "_planned", refuse)
    monkeypatch.setattr("tirbench.execute.describe", lambda _: MACHINE)
    said: list[str] = []
    tree = store.Tree(commit=None, dirty=())
    options = pipeline.Options(device="cpu", retune=retune)
    reading = read(Selection(files=(str(folder / "copy.toml"),)))
    with pytest.raises(Planning) as caught:
        pipeline.run(reading, options, tree, lambda _: None, said.append)
    return caught.value.args[0], said


def test_a_run_is_planned_with_what_is_pinned_on_its_hardware(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned_with(folder, monkeypatch) == ({}, [])
    path = folder / "baselines" / MACHINE.hardware / "copy.toml"
    path.parent.mkdir(parents=True)
    source = Path(__file__).parents[1] / "store" / "baseline.toml"
    path.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    found, said = planned_with(folder, monkeypatch)
    assert [*found] == ["copy"]
    assert found["copy"].hardware == MACHINE.hardware
    assert said == []
    assert planned_with(folder, monkeypatch, retune=True) == ({}, [])


def test_a_baseline_that_cannot_be_used_is_said_and_keeps_no_run_from_going_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "baselines" / MACHINE.hardware / "copy.toml"
    path.parent.mkdir(parents=True)
    path.write_text("<<<<<<< ours\n", encoding="utf-8")
    found, said = planned_with(folder, monkeypatch)
    assert found == {}
    assert len(said) == 1
    assert said[0].endswith("; its tuned kernels choose anew")
