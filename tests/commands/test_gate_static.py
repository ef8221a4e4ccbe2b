"""`gate --static BASE`: what two revisions say of the pins, on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from tirbench import digest, gating_static, store
from tirbench.commands import gate
from tirbench.model import GateDecision, GateReport
from tirbench.store.baseline import sealed

from .conftest import MakeRun, Repository

Pin: TypeAlias = "Callable[[store.KeptRun], None]"
BASELINE = "workloads/baselines/nvidia-h200/scale.toml"


@pytest.fixture
def pinned(repository: Repository, make_run: MakeRun, pin: Pin) -> Repository:
    """The repository with all six rows pinned at 10 µs and committed."""
    pin(make_run())
    repository.commit("Its baselines")
    return repository


def static(repository: Repository, base: str = "HEAD") -> GateReport:
    folder = str(repository.root / "workloads")
    return gating_static.gate_revisions(repository.root, base, (folder,))


def decisions(found: GateReport) -> dict[str, GateDecision]:
    return {f"{r.decision.case}/{r.decision.implementation}": r.decision for r in found.rows}


def rules(found: GateReport) -> dict[str, tuple[int, str]]:
    """The rows that do not pass."""
    return {
        name: (one.exit_code, one.rule) for name, one in decisions(found).items() if one.exit_code
    }


def invoke(repository: Repository, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.chdir(repository.root)
    return CliRunner().invoke(gate.command, arguments, standalone_mode=False)


def change_ours(repository: Repository) -> None:
    """Other code in one kernel, not committed."""
    repository.edit("workloads/kernels/ops.py", "torch.mul(x, 2, out=y)", "torch.mul(2, x, out=y)")


def test_pins_of_the_source_that_stands_beside_them_are_current(pinned: Repository) -> None:
    found = static(pinned)
    assert len(found.rows) == 6
    assert rules(found) == {}
    assert found.notes == ("2 of 2 kernels unchanged; nothing to measure",)


def test_code_that_changed_and_was_not_measured_again_names_its_command(
    pinned: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_ours(pinned)
    found = invoke(pinned, monkeypatch, "--static", "HEAD")
    assert found.return_value == 3
    said = " ".join(found.stdout.split())
    assert "on nvidia-h200: tirbench exec workloads/scale.toml::n64 --pin" in said
    assert "1 of 2 kernels unchanged; measure 3 rows, about " in said
    assert "6 rows: 3 pass, 3 could not: exit 3" in said


def test_a_row_that_was_measured_again_is_current_evidence(
    pinned: Repository, make_run: MakeRun, pin: Pin
) -> None:
    change_ours(pinned)
    pin(make_run())
    found = static(pinned)
    assert rules(found) == {}
    assert decisions(found)["n64/ours"].rule == "remeasured"


def test_what_others_did_meanwhile_is_not_the_authors(pinned: Repository) -> None:
    pinned.git("checkout", "--quiet", "-b", "work")
    pinned.git("checkout", "--quiet", "main")
    change_ours(pinned)
    pinned.commit("of others")
    pinned.git("checkout", "--quiet", "work")
    found = static(pinned, "main")
    assert rules(found) == {}
    assert found.judged.startswith("the working tree against main (")


HALF = ("[check.oracle]", '[check.oracle]\ndtype = "float32"')


def test_weakening_of_all_rows_is_said_once_and_fails(pinned: Repository) -> None:
    pinned.edit("workloads/scale.toml", *HALF)
    found = static(pinned)
    assert rules(found) == {"*/*": (1, "weakened")}
    assert decisions(found)["*/*"].reason == "oracle: computes in float32 instead of float64"


def test_weakening_of_an_implementation_fails_its_rows(pinned: Repository) -> None:
    pinned.edit(
        "workloads/scale.toml",
        'target = "kernels/ops.py:double"\n',
        'target = "kernels/ops.py:double"\nrequires = { memory = "8 * 2**30" }\n',
    )
    found = static(pinned)
    assert rules(found) == {f"n{n}/ours": (1, "weakened") for n in (64, 128, 256)}
    assert "fewer machines measure it" in decisions(found)["n64/ours"].reason


def test_a_kernel_that_is_gone_fails_though_it_has_no_row_any_more(pinned: Repository) -> None:
    pinned.edit(
        "workloads/scale.toml",
        '[kernels.theirs]\ntarget = "kernels/theirs.py:other"\nargs = ["x", "y"]\n\n',
        "",
    )
    found = rules(static(pinned))
    assert found.pop("*/*") == (1, "weakened")
    assert set(found.values()) == {(1, "orphan")}


def test_a_reason_in_a_commit_message_lets_a_weakening_pass(pinned: Repository) -> None:
    pinned.git("checkout", "--quiet", "-b", "work")
    pinned.edit("workloads/scale.toml", *HALF)
    pinned.commit("half\n\nTirbench-Reason: scale: the sum is of halves\n")
    assert rules(static(pinned, "main")) == {}


def test_a_number_that_rose_without_a_reason_fails(
    pinned: Repository, make_run: MakeRun, pin: Pin
) -> None:
    pin(make_run({"n64/ours": 12.0}))
    found = static(pinned)
    assert rules(found) == {"n64/ours": (1, "slower-row")}
    assert "the pinned time rose by 20 %: 10 → 12 µs" in decisions(found)["n64/ours"].reason


def test_rows_that_lost_their_pin_or_never_had_one_are_missing(pinned: Repository) -> None:
    text = (pinned.root / BASELINE).read_text()
    start, end = text.index("[n64.ours]"), text.index("[n64.theirs]")
    pinned.write(BASELINE, text[:start] + text[end:])
    assert rules(static(pinned)) == {"n64/ours": (1, "missing")}
    pinned.write("workloads/fresh.toml", (pinned.root / "workloads/scale.toml").read_text())
    fresh = [row.decision.rule for row in static(pinned).rows if row.workload == "fresh"]
    assert fresh == ["missing"] * 6


def test_a_kernel_that_the_hardware_of_the_pins_cannot_run_need_not_be_pinned(
    pinned: Repository,
) -> None:
    pinned.edit(
        "workloads/scale.toml",
        "[check.oracle]",
        '[kernels.cpu]\ntarget = "kernels/ops.py:other"\nargs = ["x", "y"]\n'
        'requires = { device = "cpu" }\n\n'
        '[kernels.next]\ntarget = "kernels/ops.py:other"\nargs = ["x", "y"]\n'
        'requires = { capability = ">=10.0" }\n\n[check.oracle]',
    )
    assert rules(static(pinned)) == {}


def test_broken_seals_stale_pins_and_orphans_fail_without_a_gpu_too(pinned: Repository) -> None:
    text = (pinned.root / BASELINE).read_text()
    pinned.write(BASELINE, text.replace("midmean_us = 10.0", "midmean_us = 9.0", 1))
    assert rules(static(pinned)) == {"n128/ours": (1, "seal")}
    pinned.write(BASELINE, text)
    pinned.edit("workloads/scale.toml", "n = [64, 128, 256]", "n = [128, 256]")
    found = rules(static(pinned))
    assert found.pop("*/*") == (1, "weakened")
    assert set(found.values()) == {(1, "orphan")}
    pinned.edit("workloads/scale.toml", 'init = "normal"', 'init = "uniform"')
    assert rules(static(pinned))["n128/ours"] == (1, "stale")


@pytest.mark.parametrize(
    ("timer", "placements", "rule"),
    [("event", 5, None), ("proton", 10, None), ("proton", 3, (1, "stale"))],
)
def test_a_row_may_be_pinned_by_another_timer_and_on_more_placements_but_not_on_fewer(
    pinned: Repository, timer: str, placements: int, rule: tuple[int, str] | None
) -> None:
    baseline = store.read_baseline(pinned.root, BASELINE)
    assert baseline is not None
    cases = {case.id: case for one in pinned.reading.chosen for case in one.cases}
    rows = [
        sealed(replace(row, protocol=digest.protocol(cases[row.case], timer, placements, 2)))  # type: ignore[arg-type]
        for row in baseline.rows
    ]
    store.write_baseline(pinned.root, BASELINE, replace(baseline, rows=tuple(rows)))
    pinned.commit("measured otherwise")
    assert set(rules(static(pinned)).values()) == ({rule} if rule else set())


def test_a_baseline_whose_workload_is_gone_is_said_once(pinned: Repository) -> None:
    pinned.write(BASELINE.replace("scale", "gone"), (pinned.root / BASELINE).read_text())
    (row,) = (row for row in static(pinned).rows if row.workload == "gone")
    assert row.decision.reason == f"gone.toml is no workload any more; delete {row.path}"


def test_a_workload_or_a_baseline_that_cannot_be_read_is_2(
    pinned: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (pinned.root / BASELINE).read_text()
    pinned.write(BASELINE, text.replace("[n64.ours]", "<<<<<<< HEAD\n[n64.ours]", 1))
    found = invoke(pinned, monkeypatch, "--static", "HEAD")
    assert (found.return_value, "conflict marker of a merge" in found.stdout) == (2, True)
    pinned.write(BASELINE, text)
    pinned.edit("workloads/scale.toml", "[matrix]", "[matrixx]")
    assert invoke(pinned, monkeypatch, "--static", "HEAD").return_value == 2


def test_no_such_revision_is_said_before_anything_is_read(
    pinned: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = invoke(pinned, monkeypatch, "--static", "--upload-pack=x")
    assert "no revision of this repository" in str(found.exception)


def test_facts_go_with_two_revisions_only(
    pinned: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = invoke(pinned, monkeypatch, "--compile")
    assert "go with --static BASE" in str(found.exception)
