"""`gate`: runs made by hand against baselines in real repositories."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import pytest
from click.testing import CliRunner, Result

from tirbench import again, gating, store
from tirbench.commands import gate, shared
from tirbench.commands import pin as pin_command
from tirbench.model import (
    Failed,
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


def test_a_workload_that_cannot_be_read_is_invalid_and_its_rows_do_not_pass(
    pinned: Repository, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run()
    pinned.edit("workloads/scale.toml", "schema = 1", "schema = 1\nunheard_of = 2")
    found = invoke(pinned, monkeypatch)
    assert found.return_value == 2
    assert "workloads/scale.toml:2:1: error[TB" in found.stdout


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


def test_a_machine_that_cannot_resolve_the_threshold_refuses_and_says_what_it_could(
    pinned: Repository, make_run: MakeRun
) -> None:
    asked: list[tuple[str, float]] = []

    def resolve(timed: Timed, slower_than: float) -> str:
        asked.append((timed.row.key, slower_than))
        return "slower_than = 0.02 would be resolved" if timed.row.case == "n64" else ""

    found = report(pinned, make_run({"n64/ours": 10.5}), resolve=resolve, measure=refuse)
    assert odd(found) == {"n64/ours": (3, "unresolved"), "n64/theirs": (3, "unresolved")}
    assert gating.code_of(found) == 3
    assert ("scale/n64/ours", 0.01) in asked


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


# --- Numbers that crept up -----------------------------------------------------------------------------


def creep(repository: Repository, make_run: MakeRun, pin: Pin) -> tuple[str, str]:
    """Two changes of a kernel, each pinned with its number: 10.15, 10.3; the anchor stays at 10 µs."""
    commits = []
    for factor, us in (("2.0", 10.15), ("2.00", 10.3)):
        text = (repository.root / "workloads/kernels/ops.py").read_text()
        (line,) = (line for line in text.splitlines() if "torch.mul(x" in line)
        repository.edit("workloads/kernels/ops.py", line, f"    torch.mul(x, {factor}, out=y)")
        pin(make_run({"n64/ours": us}))
        commits.append(repository.commit(f"{us} µs"))
    return commits[0], commits[1]


def test_a_number_that_crept_up_is_compared_with_the_code_of_its_anchor(
    pinned: Repository, make_run: MakeRun, pin: Pin
) -> None:
    anchor = pinned.git("rev-parse", "HEAD").strip()
    creep(pinned, make_run, pin)
    asked: list[gating.Suspect] = []

    def confirm(suspects: Sequence[gating.Suspect]) -> Mapping[str, Verdict]:
        asked.extend(suspects)
        return {one.row.key: verdict(one.row, "slower") for one in suspects}

    found = report(pinned, make_run({"n64/ours": 10.3}), measure=refuse, confirm=confirm)
    assert odd(found) == {"n64/ours": (1, "confirmed")}
    assert [(one.row.key, one.commit) for one in asked] == [("scale/n64/ours", anchor)]
    reason = decisions(found)["n64/ours"].reason
    assert reason.startswith("+3.00 % to its anchor, beyond 2 %")
    assert reason.endswith("`tirbench pin --accept` with a reason takes it as it is")


def test_the_code_of_the_anchor_itself_that_is_slower_today_is_measured_again(
    pinned: Repository, make_run: MakeRun, pin: Pin
) -> None:
    code = (pinned.root / "workloads/kernels/ops.py").read_text()
    creep(pinned, make_run, pin)
    pinned.write("workloads/kernels/ops.py", code)
    kept = make_run({"n64/ours": 10.3})
    twice = measuring(pinned, {"n64/ours": 10.3})
    found = report(pinned, kept, measure=twice, confirm=lambda _: {})
    assert odd(found) == {"n64/ours": (3, "environment")}


def test_what_is_accepted_with_a_reason_is_the_new_anchor(
    pinned: Repository, make_run: MakeRun, pin: Pin, monkeypatch: pytest.MonkeyPatch
) -> None:
    creep(pinned, make_run, pin)
    make_run({"n64/ours": 10.3})
    assert invoke(pinned, monkeypatch, "--no-confirm").return_value == 3
    accept = ("--accept", "scale/n64/ours", "--reason", "reads twice for accuracy")
    done = CliRunner().invoke(pin_command.command, accept, standalone_mode=False)
    assert done.return_value == 0, done.output
    assert 'reason = "reads twice for accuracy"' in (pinned.root / BASELINE).read_text()
    assert invoke(pinned, monkeypatch).return_value == 0
    without = CliRunner().invoke(pin_command.command, accept[:2], standalone_mode=False)
    assert "needs a reason" in str(without.exception)


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


def test_a_pin_that_is_not_committed_leads_to_the_code_of_head_where_it_is_that(
    repository: Repository, make_run: MakeRun, pin: Pin
) -> None:
    head = repository.git("rev-parse", "HEAD").strip()
    pin(make_run())
    change_ours(repository)
    kept = make_run({"n64/ours": 10.5})
    found = decisions(report(repository, kept, why_not="nobody may"))["n64/ours"]
    assert f"this decides it: tirbench ab {head[:10]} workloads" in found.reason


def test_code_that_git_has_not_is_measured_alone_on_ten_placements(
    repository: Repository, make_run: MakeRun, pin: Pin
) -> None:
    repository.edit(
        "workloads/kernels/ops.py", "torch.mul(x, 2, out=y)", "torch.mul(x, 2.0, out=y)"
    )
    pin(make_run())  # of code that is never committed
    repository.git("checkout", "--quiet", "workloads/kernels")
    kept = make_run({"n64/ours": 10.5})
    seen: list[tuple[str, int]] = []
    still = measuring(repository, {"n64/ours": 10.4}, seen)
    found = report(repository, kept, measure=still, confirm=lambda _: {})
    assert odd(found) == {"n64/ours": (1, "unpaired")}
    assert seen == [("scale/n64/ours", 10)]
    gone = measuring(repository, {"n64/ours": 10.01})
    found = report(repository, kept, measure=gone, confirm=lambda _: {})
    assert odd(found) == {"n64/ours": (0, "recovered")}


@pytest.mark.parametrize(
    ("kind", "expected"), [("wrong", (1, "wrong")), ("taken", (3, "unmeasured"))]
)
def test_a_row_that_cannot_be_measured_again_is_what_became_of_it(
    pinned: Repository, make_run: MakeRun, kind: str, expected: tuple[int, str]
) -> None:
    def measure(rows: Sequence[Row], _: int) -> Sequence[Outcome]:
        (row,) = rows
        if kind == "wrong":
            return [Wrong(row=row, reason="y: 3 elements off", stage="verify")]
        return [Failed(row=row, stage="time", reason="others use it", cause="interfered")]

    kept = make_run({"n64/ours": 10.5})
    assert odd(report(pinned, kept, measure=measure)) == {"n64/ours": expected}


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


def test_another_unit_of_the_product_is_judged_wider(pinned: Repository, make_run: MakeRun) -> None:
    other = replace(MACHINE, unit="another")
    assert odd(report(pinned, make_run({"n64/ours": 10.2}, machine=other))) == {}


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


def test_what_is_measured_again_leaves_the_run_that_is_judged_the_latest(
    pinned: Repository, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two gates in a row judge the same run."""
    kept = make_run({"n64/ours": 10.5})
    made: list[str] = []

    def can_measure(_: Machine) -> str:
        return ""

    def run_rows(*_: object) -> Sequence[Outcome]:
        again_ = make_run({})
        made.append(again_.run.id)
        return again_.run.outcomes

    monkeypatch.setattr(shared, "can_measure", can_measure)
    monkeypatch.setattr(shared, "run_rows", run_rows)
    for _ in range(2):
        found = invoke(pinned, monkeypatch)
        assert f"gate of run {kept.run.id}: 6 rows: 6 pass: exit 0" in found.stdout
    assert len(set(made)) == 2


def test_the_self_test_of_the_hardware_refuses_what_it_cannot_resolve_and_stands_beside_the_rows(
    pinned: Repository, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of kernels of 10 µs, 40 of 100 slowdowns of 1 % were missed."""
    from tirbench import selftest
    from tirbench.digest import PROTOCOL_VERSION
    from tirbench.selftest.shares import ALL, EqualShare, OfClass, PlantedShare, Spread

    common: dict[str, Any] = {
        "rows": 4,
        "unfinished": 0,
        "same": 1.0,
        "undecided": 0.0,
        "gpu_s": 0.1,
    }
    equal = EqualShare(
        **common, gpu_s_most=0.1, decisions=3000, screened=0.0, flagged=0, at_most=0.001
    )
    planted = PlantedShare(
        **common,
        gpu_s_most=0.1,
        decisions=200,
        found=120,
        independent=100,
        independent_found=60,
        at_least=0.5,
        truth=0.0105,
    )
    spread = Spread(quads=0.01, again=0.01, worker=0.0005)
    every = OfClass(name=ALL, limit_us=None, equal=equal, planted=planted, spread=spread)
    kept = selftest.Kept(
        hardware=MACHINE.hardware,
        device=MACHINE.device,
        dates=("2025-01-31",),
        versions="torch 2.11.0",
        protocol=PROTOCOL_VERSION,
        runs=1,
        units=1,
        workers=5,
        disjoint=equal,
        classes=(every, replace(every, name="2–10 µs", limit_us=10.0)),
    )
    make_run({"n64/ours": 9.99, **dict.fromkeys(("n64/theirs", "n128/ours", "n128/theirs"), 11.0)})
    assert invoke(pinned, monkeypatch, "--no-confirm").return_value == 3
    selftest.keep(pinned.root, kept)
    found = invoke(pinned, monkeypatch, "--format", "json")
    assert found.return_value == 3
    data = json.loads(found.stdout)
    rows = {
        f"{row['decision']['case']}/{row['decision']['implementation']}": row["decision"]
        for row in data["rows"]
    }
    assert rows["n64/ours"]["rule"] == "unresolved"
    assert rows["n64/ours"]["reason"].endswith("2–10 µs: slower_than = 0.021 would be resolved")
    assert any(note.startswith("self-test of nvidia-h200 (2025-01-31)") for note in data["notes"])
