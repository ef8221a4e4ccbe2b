"""`gate`: runs made by hand against baselines in real repositories."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from click.testing import CliRunner, Result

from tirbench import again, gating, store
from tirbench.commands import gate
from tirbench.model import (
    GateDecision,
    GateReport,
    GateRow,
    Machine,
    Outcome,
    Row,
    Skipped,
    Timed,
    Verdict,
    VerdictKind,
    Wrong,
)

from .conftest import MACHINE, MakeRun, Repository, Times, outcomes_of

Pin: TypeAlias = "Callable[[store.KeptRun], None]"
BASELINE = "workloads/baselines/nvidia-h200/scale.toml"


@pytest.fixture
def pinned(repository: Repository, make_run: MakeRun, pin: Pin) -> Repository:
    """The repository with all six rows pinned at 10 µs and committed."""
    pin(make_run())
    repository.commit("Its baselines")
    return repository


def report(repository: Repository, kept: store.KeptRun, **seams: object) -> GateReport:
    reading = again.reading_of(repository.root, kept)
    return gating.gate_run(reading, kept, **seams)  # type: ignore[arg-type]


def decisions(found: GateReport) -> dict[str, GateDecision]:
    return {f"{r.decision.case}/{r.decision.implementation}": r.decision for r in found.rows}


def odd(found: GateReport) -> dict[str, tuple[int, str]]:
    """The rows that are not as pinned."""
    return {
        name: (one.exit_code, one.rule)
        for name, one in decisions(found).items()
        if one.rule != "same"
    }


def invoke(repository: Repository, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.chdir(repository.root)
    return CliRunner().invoke(gate.command, arguments, standalone_mode=False)


# --- What is decided without measuring ------------------------------------------------------------


def test_a_clean_run_passes_in_every_format(
    pinned: Repository, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = make_run({"n64/ours": 10.04})
    found = invoke(pinned, monkeypatch)
    assert found.return_value == 0, found.output
    assert f"gate of run {kept.run.id}: 6 rows: 6 pass: exit 0" in found.stdout
    assert "rows of unchanged code 0/6 flagged, environment +0.0 %" in found.stdout
    document = json.loads(invoke(pinned, monkeypatch, "--format", "json").stdout)
    assert (document["exit_code"], len(document["rows"])) == (0, 6)
    assert "**gate of run" in invoke(pinned, monkeypatch, "--format", "markdown").stdout
    assert "::" not in invoke(pinned, monkeypatch, "latest", "--format", "github").stdout


def test_rows_that_nothing_pins_are_missing_and_fail(
    repository: Repository, make_run: MakeRun
) -> None:
    found = report(repository, make_run())
    assert set(odd(found).values()) == {(1, "missing")}
    assert gating.code_of(found) == 1


def test_a_row_that_was_skipped_and_is_pinned_nowhere_is_no_matter_of_the_gate(
    repository: Repository, make_run: MakeRun
) -> None:
    def skip(outcome: Outcome) -> Outcome:
        return Skipped(row=outcome.row, reason="needs two ranks")

    assert report(repository, make_run(change=skip)).rows == ()


def test_a_wrong_kernel_fails_pinned_or_not(pinned: Repository, make_run: MakeRun) -> None:
    def spoil(outcome: Outcome) -> Outcome:
        wrong = Wrong(row=outcome.row, reason="y: 64 of 64 elements off", stage="verify")
        return wrong if outcome.row.implementation == "ours" else outcome

    kept = make_run(change=spoil)
    assert set(odd(report(pinned, kept)).values()) == {(1, "wrong")}
    (pinned.root / BASELINE).unlink()
    found = decisions(report(pinned, kept))
    assert found["n64/ours"].reason == "wrong: y: 64 of 64 elements off"
    assert found["n64/theirs"].rule == "missing"


def test_a_row_that_the_run_left_out_is_unmeasured(pinned: Repository, make_run: MakeRun) -> None:
    kept = make_run(change=lambda o: None if o.row.case == "n64" else o)
    found = report(pinned, kept)
    assert odd(found) == {
        "n64/ours": (3, "unmeasured"),
        "n64/theirs": (3, "unmeasured"),
    }
    assert gating.code_of(found) == 3
    assert "incomplete: 2 of 6 rows have no outcome" in found.notes[0]


def test_a_pin_of_a_row_that_no_workload_has_is_an_orphan(
    pinned: Repository, make_run: MakeRun
) -> None:
    pinned.edit("workloads/scale.toml", "n = [64, 128, 256]", "n = [128, 256]")
    assert odd(report(pinned, make_run())) == {
        "n64/ours": (1, "orphan"),
        "n64/theirs": (1, "orphan"),
    }


def test_the_baseline_of_a_workload_that_is_gone_is_said_once(
    pinned: Repository, make_run: MakeRun
) -> None:
    kept = make_run()
    text = (pinned.root / BASELINE).read_text()
    pinned.write(BASELINE.replace("scale", "gone"), text)
    (row,) = (row for row in report(pinned, kept).rows if row.workload == "gone")
    assert (row.decision.exit_code, row.decision.rule) == (1, "orphan")
    assert row.decision.reason == f"gone.toml is no workload any more; delete {row.path}"


def test_an_edited_number_breaks_its_seal(pinned: Repository, make_run: MakeRun) -> None:
    text = (pinned.root / BASELINE).read_text()
    pinned.write(BASELINE, text.replace("midmean_us = 10.0", "midmean_us = 11.0", 1))
    assert odd(report(pinned, make_run())) == {"n128/ours": (1, "seal")}


def test_another_problem_makes_a_pin_stale(pinned: Repository, make_run: MakeRun) -> None:
    pinned.edit("workloads/scale.toml", 'init = "normal"', 'init = "uniform"')
    found = decisions(report(pinned, make_run()))
    assert {one.rule for one in found.values()} == {"stale"}
    assert found["n64/ours"].reason == "pinned for another problem; re-pin"


def test_another_card_can_say_nothing_of_a_pin(pinned: Repository, make_run: MakeRun) -> None:
    machine = Machine(hardware="nvidia-b200", device="NVIDIA B200", kind="cuda", unit="1")
    found = report(pinned, make_run(machine=machine))
    assert set(odd(found).values()) == {(3, "hardware")}
    assert gating.code_of(found) == 3


def test_a_cpu_that_times_what_a_gpu_has_pinned_is_other_hardware_and_not_stale(
    pinned: Repository, make_run: MakeRun
) -> None:
    machine = Machine(hardware="cpu-x", device="x", kind="cpu", unit="1")
    assert set(odd(report(pinned, make_run(machine=machine))).values()) == {(3, "hardware")}


def test_conflict_markers_are_answered_with_what_to_do(
    pinned: Repository, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run()
    text = (pinned.root / BASELINE).read_text()
    pinned.write(BASELINE, text.replace("[n64.ours]", "<<<<<<< HEAD\n[n64.ours]", 1))
    found = invoke(pinned, monkeypatch)
    assert found.return_value == 2
    assert "conflict marker of a merge" in found.stdout
    assert f"git checkout --ours -- {BASELINE}" in found.stdout


# --- Merges ---------------------------------------------------------------------------------------


def repin(repository: Repository, make_run: MakeRun, pin: Pin, times: Times) -> None:
    pin(make_run(times))
    repository.commit(f"Again: {times}")


def test_branches_that_pinned_different_rows_again_merge_without_a_word(
    pinned: Repository, make_run: MakeRun, pin: Pin
) -> None:
    pinned.git("checkout", "--quiet", "-b", "left")
    repin(pinned, make_run, pin, {"n128/ours": 8.0})
    pinned.git("checkout", "--quiet", "-b", "right", "main")
    repin(pinned, make_run, pin, {"n128/theirs": 7.0})
    pinned.git("merge", "--quiet", "--no-edit", "left")
    found = report(pinned, make_run({"n128/ours": 8.0, "n128/theirs": 7.0}))
    assert odd(found) == {}
    assert gating.code_of(found) == 0


def test_branches_that_pinned_one_row_again_end_in_conflict_and_exit_2(
    pinned: Repository, make_run: MakeRun, pin: Pin, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned.git("checkout", "--quiet", "-b", "left")
    repin(pinned, make_run, pin, {"n128/ours": 8.0})
    pinned.git("checkout", "--quiet", "-b", "right", "main")
    repin(pinned, make_run, pin, {"n128/ours": 7.0})
    pinned.git("merge", "--quiet", "--no-edit", "left", check=False)
    assert invoke(pinned, monkeypatch).return_value == 2


def test_half_of_one_measurement_and_half_of_another_is_no_pin(
    pinned: Repository, make_run: MakeRun, pin: Pin
) -> None:
    pin(make_run({"n64/ours": 8.0}))
    text = (pinned.root / BASELINE).read_text()
    row = text[text.index("[n64.ours]") :]
    mixed = row.replace("anchor_us = 8.0", "anchor_us = 10.0", 1)
    pinned.write(BASELINE, text.replace(row, mixed))
    assert odd(report(pinned, make_run({"n64/ours": 8.0}))) == {"n64/ours": (1, "seal")}


# --- Rows that trip -------------------------------------------------------------------------------


def change_ours(repository: Repository) -> None:
    """Other code in one kernel, not committed."""
    repository.edit("workloads/kernels/ops.py", "torch.mul(x, 2, out=y)", "torch.mul(2, x, out=y)")


def verdict(row: Row, kind: VerdictKind) -> Verdict:
    return Verdict(row=row, kind=kind, rule="confirmed", reason="as measured")


def refuse(rows: Sequence[Row], placements: int) -> Sequence[Outcome]:
    raise AssertionError(f"measured {rows} on {placements}")


def measuring(
    repository: Repository, times: Times, seen: list[tuple[str, int]] | None = None
) -> gating.Measure:
    """Fresh workers that find these times."""

    def measure(rows: Sequence[Row], placements: int) -> Sequence[Outcome]:
        keys = {row.key for row in rows}
        if seen is not None:
            seen.extend((key, placements) for key in sorted(keys))
        return [o for o in outcomes_of(repository, times) if o.row.key in keys]

    return measure


def test_changed_code_that_trips_says_which_comparison_would_decide_it(
    pinned: Repository, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three commits it is the first: the row was pinned there, and another since."""
    commit = pinned.git("rev-parse", "HEAD").strip()
    pinned.write("README.md", "Read me")
    pinned.commit("Words")
    change_ours(pinned)
    make_run({"n64/ours": 10.5})
    found = invoke(pinned, monkeypatch, "--format", "github")
    assert found.return_value == 3
    assert "::warning file=workloads/scale.toml,title=gate%3A scale/n64/ours::" in found.stdout
    command = f"tirbench ab {commit[:10]} workloads/scale.toml::n64"
    assert command in " ".join(found.stdout.split())
    assert "no CUDA device here" in " ".join(found.stdout.split())


@pytest.mark.parametrize(
    ("kind", "code", "rule"),
    [("slower", 1, "confirmed"), ("same", 0, "not-code"), ("undecided", 3, "undecided")],
)
def test_a_trip_of_changed_code_is_what_the_comparison_with_its_pin_says(
    pinned: Repository, make_run: MakeRun, kind: VerdictKind, code: int, rule: str
) -> None:
    commit = pinned.git("rev-parse", "HEAD").strip()
    change_ours(pinned)
    kept = make_run({"n64/ours": 10.5})
    asked: list[gating.Suspect] = []

    def confirm(suspects: Sequence[gating.Suspect]) -> Mapping[str, Verdict]:
        asked.extend(suspects)
        return {one.row.key: verdict(one.row, kind) for one in suspects}

    found = report(pinned, kept, measure=refuse, confirm=confirm)
    assert odd(found) == {"n64/ours": (code, rule)}
    assert [(one.row.key, one.commit) for one in asked] == [("scale/n64/ours", commit)]


def test_a_pin_committed_after_its_code_leads_to_that_code(
    repository: Repository, make_run: MakeRun, pin: Pin
) -> None:
    """Code and baseline in one commit, then the same file's other row alone in the next."""
    pin(make_run())
    first = repository.commit("Baselines")
    pin(make_run({"n64/theirs": 8.0}))
    repository.commit("One row again")
    change_ours(repository)
    repository.commit("Other code")
    kept = make_run({"n64/ours": 10.5, "n64/theirs": 8.0})
    found = decisions(report(repository, kept, why_not="nobody may"))["n64/ours"]
    assert (found.exit_code, found.rule) == (3, "remeasure")
    assert found.reason.endswith(
        f"nobody may; this decides it: tirbench ab {first[:10]} workloads/scale.toml::n64"
    )


def test_code_that_git_has_not_is_measured_alone_on_ten_placements(
    repository: Repository, make_run: MakeRun, pin: Pin
) -> None:
    pin(make_run())  # and never committed
    change_ours(repository)
    kept = make_run({"n64/ours": 10.5})
    seen: list[tuple[str, int]] = []
    still = measuring(repository, {"n64/ours": 10.4}, seen)
    found = report(repository, kept, measure=still, confirm=lambda _: {})
    assert odd(found) == {"n64/ours": (1, "unpaired")}
    assert seen == [("scale/n64/ours", 10)]
    gone = measuring(repository, {"n64/ours": 10.01})
    found = report(repository, kept, measure=gone, confirm=lambda _: {})
    assert odd(found) == {"n64/ours": (0, "recovered")}


def test_sides_that_cannot_be_compared_are_measured_alone(
    pinned: Repository, make_run: MakeRun
) -> None:
    change_ours(pinned)
    kept = make_run({"n64/ours": 10.5})

    def confirm(suspects: Sequence[gating.Suspect]) -> Mapping[str, Verdict]:
        return {one.row.key: verdict(one.row, "incomparable") for one in suspects}

    still = measuring(pinned, {"n64/ours": 10.5})
    found = report(pinned, kept, measure=still, confirm=confirm)
    assert odd(found) == {"n64/ours": (1, "unpaired")}


def test_the_same_code_twice_outside_is_environment_and_once_is_nothing(
    pinned: Repository, make_run: MakeRun
) -> None:
    kept = make_run({"n64/ours": 10.5})
    seen: list[tuple[str, int]] = []
    twice = measuring(pinned, {"n64/ours": 10.5}, seen)
    assert odd(report(pinned, kept, measure=twice)) == {"n64/ours": (3, "environment")}
    assert seen == [("scale/n64/ours", 0)]
    once = measuring(pinned, {})
    assert odd(report(pinned, kept, measure=once)) == {"n64/ours": (0, "recovered")}


def test_unchanged_rows_that_all_moved_speak_for_a_row_that_trips(
    pinned: Repository, make_run: MakeRun
) -> None:
    """Five rows of unchanged code 0.8 % slower: the sixth is no fault of its new code."""
    names = [f"{case}/{one}" for case in ("n64", "n128", "n256") for one in ("ours", "theirs")]
    times = dict.fromkeys(names, 10.08)

    def recoded(outcome: Outcome) -> Outcome:
        key = f"{outcome.row.case}/{outcome.row.implementation}"
        return (
            replace(outcome, source="new")
            if isinstance(outcome, Timed) and key == "n64/ours"
            else outcome
        )

    kept = make_run({**times, "n64/ours": 10.6}, change=recoded)
    found = report(pinned, kept, measure=refuse, confirm=lambda _: {})
    assert odd(found)["n64/ours"] == (3, "environment")
    assert found.environment is not None
    assert found.environment.rows == 5


def test_another_unit_of_the_product_has_one_per_cent_more(
    pinned: Repository, make_run: MakeRun
) -> None:
    other = replace(MACHINE, unit="another")
    assert odd(report(pinned, make_run({"n64/ours": 10.15}, machine=other))) == {}


def test_what_an_author_can_mend_comes_before_what_needs_a_machine() -> None:
    def row(code: Literal[0, 1, 3]) -> GateRow:
        decision = GateDecision(
            case="c", implementation="i", exit_code=code, rule="same", reason=""
        )
        return GateRow(workload="w", path="w.toml", decision=decision)

    assert gating.code_of(GateReport(judged="r", rows=(row(0), row(3), row(1)))) == 1
    assert gating.code_of(GateReport(judged="r", rows=(row(0), row(3)))) == 3
    assert gating.code_of(GateReport(judged="r", rows=(row(1),), unreadable=("conflict",))) == 2


def test_no_confirm_measures_nothing(
    pinned: Repository, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run({"n64/ours": 10.5})
    found = invoke(pinned, monkeypatch, "--no-confirm")
    assert found.return_value == 3
    command = "--no-confirm; this decides it: tirbench exec workloads/scale.toml::n64"
    assert command in " ".join(found.stdout.split())


def test_two_runs_are_one_too_many(pinned: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    found = invoke(pinned, monkeypatch, "one", "two")
    assert "takes one RUN" in str(found.exception)


# --- Without a GPU --------------------------------------------------------------------------------


def static(repository: Repository, base: str = "HEAD", **seams: object) -> GateReport:
    from tirbench import gating_static

    return gating_static.gate_revisions(
        repository.root,
        base,
        (str(repository.root / "workloads"),),
        **seams,  # type: ignore[arg-type]
    )


def rules(found: GateReport) -> dict[str, tuple[int, str]]:
    return {
        name: (one.exit_code, one.rule)
        for name, one in decisions(found).items()
        if one.rule not in {"remeasured", "current"}
    }


def test_pins_of_the_source_that_stands_beside_them_are_current(pinned: Repository) -> None:
    found = static(pinned)
    assert len(found.rows) == 6
    assert rules(found) == {}


def test_code_that_changed_and_was_not_measured_again_names_its_command(
    pinned: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_ours(pinned)
    found = invoke(pinned, monkeypatch, "--static", "HEAD")
    assert found.return_value == 3
    said = " ".join(found.stdout.split())
    assert "on nvidia-h200: tirbench exec workloads/scale.toml::n64 --pin" in said
    assert "6 rows: 3 pass, 3 could not: exit 3" in said


def test_code_that_compiles_to_the_same_is_current(pinned: Repository) -> None:
    change_ours(pinned)
    roots: set[Path] = set()

    def compiled(root: Path, _case: object, _one: str, hardware: str) -> str:
        roots.add(root)
        assert hardware == "nvidia-h200"
        return "sass:0123"

    assert rules(static(pinned, compiled=compiled)) == {}
    assert len(roots) == 2

    def differently(root: Path, _case: object, _one: str, _hardware: str) -> str:
        return "sass:1" if root == pinned.root else "sass:2"

    found = static(pinned, compiled=differently)
    assert set(rules(found).values()) == {(3, "remeasure")}
    assert decisions(found)["n64/ours"].reason.startswith("the code is not what was pinned")


def test_what_a_diff_says_of_a_row_fails_it(pinned: Repository) -> None:
    def weak(_case: object, implementation: str) -> tuple[str, ...]:
        return ("rtol 0.001 → 0.1",) if implementation == "ours" else ()

    assert set(rules(static(pinned, weakenings=weak)).values()) == {(1, "weakened")}


def test_a_number_that_rose_without_a_reason_fails(
    pinned: Repository, make_run: MakeRun, pin: Pin
) -> None:
    pin(make_run({"n64/ours": 12.0}))
    found = static(pinned)
    assert rules(found) == {"n64/ours": (1, "slower-row")}
    assert "rose by 20 % without a reason" in decisions(found)["n64/ours"].reason


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
        'requires = { device = "cpu" }\n\n[check.oracle]',
    )
    assert rules(static(pinned)) == {}


def test_broken_seals_stale_pins_and_orphans_fail_without_a_gpu_too(pinned: Repository) -> None:
    text = (pinned.root / BASELINE).read_text()
    pinned.write(BASELINE, text.replace("midmean_us = 10.0", "midmean_us = 9.0", 1))
    assert rules(static(pinned)) == {"n128/ours": (1, "seal")}
    pinned.write(BASELINE, text)
    pinned.edit("workloads/scale.toml", "n = [64, 128, 256]", "n = [128, 256]")
    assert set(rules(static(pinned)).values()) == {(1, "orphan")}
    pinned.edit("workloads/scale.toml", 'init = "normal"', 'init = "uniform"')
    assert rules(static(pinned))["n128/ours"] == (1, "stale")


def test_no_such_revision_is_said_before_anything_is_read(
    pinned: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = invoke(pinned, monkeypatch, "--static", "--upload-pack=x")
    assert "no revision of this repository" in str(found.exception)
