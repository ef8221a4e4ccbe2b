"""`pin --learn` and `history`: from kept runs to bands, by files that are committed and reviewed."""

from __future__ import annotations

import json
import shutil
from calendar import timegm
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import click
import pytest
from click.testing import CliRunner, Result

from tirbench import store
from tirbench.bands import SESSION_SD
from tirbench.commands import history, pin
from tirbench.model import Machine, Outcome, PinnedRow, Timed
from tirbench.store.baseline import is_sealed

from .conftest import MACHINE, Repository, Times, outcomes_of

Invoke: TypeAlias = "Callable[..., Result]"
OnDay: TypeAlias = "Callable[..., store.KeptRun]"
BASELINE = "workloads/baselines/nvidia-h200/scale.toml"
SESSIONS = "workloads/baselines/nvidia-h200/sessions"
KEYS = [f"{case}/{name}" for case in ("n64", "n128", "n256") for name in ("ours", "theirs")]
LOUD = "n64/ours"


@pytest.fixture
def invoke(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.chdir(repository.root)
    monkeypatch.setenv("COLUMNS", "250")

    def start(command: click.Command, *arguments: str) -> Result:
        return CliRunner().invoke(command, arguments, standalone_mode=False)

    return start


@pytest.fixture
def on_day(repository: Repository) -> OnDay:
    """Keeps a run of all rows, as of a day of January 2025."""

    def make(
        day: int,
        times: Times | None = None,
        *,
        hour: int = 12,
        machine: Machine = MACHINE,
        change: Callable[[Outcome], Outcome] = lambda outcome: outcome,
    ) -> store.KeptRun:
        outcomes = [change(one) for one in outcomes_of(repository, times or {})]
        root = repository.root
        with store.open_run(
            root,
            machine=machine,
            rows=[outcome.row for outcome in outcomes],
            tree=store.read_tree(root),
            workload_paths=[c.workload.source.path for c in repository.reading.chosen],
            now=lambda: timegm((2025, 1, day, hour, 0, 0)),
        ) as writer:
            writer.outcome(*outcomes)
        return store.read_run(root, writer.id)

    return make


def moved(*, loud: float = 1.0, others: float = 1.0) -> Times:
    """The rows at 10 µs, half of the others up and half down, the loud one by a share of its own."""
    shifts = {key: others if index % 2 else 1 / others for index, key in enumerate(KEYS)}
    return {key: 10 * (loud if key == LOUD else shifts[key]) for key in KEYS}


def pinned(repository: Repository, path: str = BASELINE) -> dict[str, PinnedRow]:
    baseline = store.read_baseline(repository.root, path)
    assert baseline is not None
    return {f"{row.case}/{row.implementation}": row for row in baseline.rows}


def sessions(repository: Repository) -> dict[str, store.KeptSession]:
    return store.read_sessions(repository.root, SESSIONS)


def document(found: Result) -> dict[str, Any]:
    assert found.exception is None, found.exception
    read: dict[str, Any] = json.loads(found.stdout)
    return read


@pytest.fixture
def committed(repository: Repository, on_day: OnDay, invoke: Invoke) -> Repository:
    """The rows of the first of January, pinned and committed."""
    on_day(1, moved())
    assert invoke(pin.command).exception is None
    repository.commit("Baselines")
    return repository


# --- Keeping --------------------------------------------------------------------------------------


def test_learning_keeps_a_session_for_each_day_and_leaves_quiet_rows_alone(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    before = (committed.root / BASELINE).read_bytes()
    on_day(2, moved(others=1.001))
    on_day(3, moved(others=0.999))
    first = invoke(pin.command, "--learn")
    assert "learnt on nvidia-h200: 18 time(s) new, 3 session(s); s_session 0." in first.stderr
    assert "by 3 sessions, worth 2 draws" in first.stderr
    assert [len(one.rows) for one in sessions(committed).values()] == [6, 6, 6]
    assert (committed.root / BASELINE).read_bytes() == before
    text = "".join(path.read_text() for path in (committed.root / SESSIONS).glob("*"))
    assert "2025" not in text
    status = committed.git("status", "--porcelain")
    assert status == f"?? {SESSIONS}/\n"
    second = invoke(pin.command, "--learn")
    assert "nothing new" in second.stderr
    assert committed.git("status", "--porcelain") == status


def test_what_is_measured_again_on_a_day_is_no_second_draw(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    """A row is measured again because of what the first time said: it would be chosen by its size."""
    on_day(2, moved(loud=1.02), hour=9)
    on_day(2, moved(loud=1.0), hour=15)
    invoke(pin.command, "--learn")
    times = sorted(one.rows[f"scale/{LOUD}"].us for one in sessions(committed).values())
    assert times == [10.0, 10.2]


def test_only_times_of_the_code_that_is_pinned_are_kept(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    committed.edit(
        "workloads/kernels/theirs.py", "torch.add(x, x, out=y)", "torch.mul(x, 2, out=y)"
    )
    on_day(2, moved())
    committed.edit("workloads/scale.toml", 'init = "normal"', 'init = "uniform"')
    on_day(3, moved())
    on_day(4, moved(), machine=replace(MACHINE, hardware="nvidia-b200"))
    invoke(pin.command, "--learn")
    kept = [sorted(one.rows) for one in sessions(committed).values()]
    every = sorted(f"scale/{key}" for key in KEYS)
    assert sorted(kept) == sorted([every, [key for key in every if key.endswith("ours")]])


def test_each_unit_of_a_run_has_a_session_of_its_own(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    def spread(outcome: Outcome) -> Outcome:
        assert isinstance(outcome, Timed)
        return replace(outcome, unit="other") if outcome.row.case == "n64" else outcome

    on_day(2, moved(), change=spread)
    on_day(3, moved(), machine=replace(MACHINE, versions=(("torch", "2.12.0"),)))
    invoke(pin.command, "--learn")
    kept = sorted((one.unit, one.env, len(one.rows)) for one in sessions(committed).values())
    assert kept == [("3f9a", "", 4), ("3f9a", "", 6), ("3f9a", "torch 2.12.0", 6), ("other", "", 2)]


def test_a_run_that_cannot_be_read_is_said_and_left_out(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    kept = on_day(2, moved())
    (kept.folder / "run.json").write_text("{", encoding="utf-8")
    said = invoke(pin.command, "--learn").stderr
    assert f"left out: run {kept.run.id} has no readable run.json" in said
    assert len(sessions(committed)) == 1


@pytest.mark.parametrize(
    "arguments", [("latest",), ("--prune",), ("--allow-dirty",), ("--accept", "a")]
)
def test_learning_accepts_no_run(
    arguments: tuple[str, ...], committed: Repository, invoke: Invoke
) -> None:
    error = invoke(pin.command, "--learn", *arguments).exception
    assert "reads every kept run" in str(error)
    assert sessions(committed) == {}


def test_without_a_baseline_there_is_nothing_to_learn_of(
    repository: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    on_day(1)
    assert "nothing is pinned" in invoke(pin.command, "--learn").stderr
    assert "nothing is pinned" in invoke(history.command).stderr
    assert not (repository.root / "workloads/baselines").exists()


# --- Bands ----------------------------------------------------------------------------------------


def loud_days(on_day: OnDay, count: int = 12) -> None:
    """Days on which one row moves by 0.8 % up and down, and the others by hardly anything."""
    for day in range(2, 2 + count):
        on_day(day, moved(loud=1.008 if day % 2 else 1.0, others=1 + 0.001 * (day % 3)))


def test_a_band_that_is_narrower_than_what_was_shown_is_widened_by_learning_alone(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    loud_days(on_day)
    before = pinned(committed)
    said = invoke(pin.command, "--learn", "--reason", "moves by itself").stderr
    after = pinned(committed)
    assert f"wider: scale/{LOUD} band 0.92 % → " in said
    assert [key for key in KEYS if after[key] != before[key]] == [LOUD]
    row = after[LOUD]
    assert (row.midmean_us, row.anchor_us, row.reason) == (10.0, 10.0, "moves by itself")
    assert row.session_sd is not None
    assert 1.3 * SESSION_SD < row.session_sd < 0.008
    assert row.band > 1.3 * before[LOUD].band
    assert is_sealed(row)
    status = committed.git("diff", "--stat")
    assert "1 file changed, 4 insertions(+), 2 deletions(-)" in status


def test_a_row_that_was_edited_by_hand_stays_as_it_is_until_it_is_pinned_again(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    loud_days(on_day)
    text = (committed.root / BASELINE).read_text(encoding="utf-8")
    committed.write(BASELINE, text.replace("anchor_us = 10.0", "anchor_us = 11.0"))
    edited = (committed.root / BASELINE).read_bytes()
    said = invoke(pin.command, "--learn").stderr
    assert "nothing new" in said
    assert "wider" not in said
    assert (committed.root / BASELINE).read_bytes() == edited


def test_an_ordinary_pin_of_unchanged_numbers_writes_nothing_whatever_was_learnt(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    loud_days(on_day)
    invoke(pin.command, "--learn")
    committed.git("checkout", "--quiet", BASELINE)  # the sessions stay, the wider band does not
    before = (committed.root / BASELINE).read_bytes()
    on_day(20, moved())
    assert invoke(pin.command, "--allow-dirty").exception is None
    text = (committed.root / BASELINE).read_text(encoding="utf-8")
    assert text.encode() == before


def test_a_row_that_is_accepted_gets_the_learnt_band_and_its_neighbours_keep_theirs(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    loud_days(on_day)
    invoke(pin.command, "--learn")
    committed.git("checkout", "--quiet", BASELINE)
    before = pinned(committed)
    on_day(20, moved(loud=1.05))
    accepted = invoke(pin.command, "--accept", f"scale/{LOUD}", "--reason", "checks its input")
    assert accepted.exception is None
    after = pinned(committed)
    assert [key for key in KEYS if after[key] != before[key]] == [LOUD]
    assert after[LOUD].midmean_us == 10.5
    assert after[LOUD].band > 1.3 * before[LOUD].band


def test_bands_come_from_committed_files_and_from_nobodys_folder_of_runs(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    """Another clone, with the same commit and no runs but its own, pins the same band."""
    loud_days(on_day)
    invoke(pin.command, "--learn")
    committed.git("checkout", "--quiet", BASELINE)
    committed.commit("What sessions show")
    arguments = ("--accept", f"scale/{LOUD}", "--reason", "checks its input")
    on_day(20, moved(loud=1.05))
    invoke(pin.command, *arguments)
    ours = (committed.root / BASELINE).read_bytes()
    committed.git("checkout", "--quiet", BASELINE)
    shutil.rmtree(committed.root / ".tirbench")
    on_day(20, moved(loud=1.05))
    invoke(pin.command, *arguments)
    assert (committed.root / BASELINE).read_bytes() == ours


def test_branches_that_learn_and_pin_neighbours_merge_without_a_conflict(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    """One branch learns and widens a row, the other brings sessions of its own and accepts the next row."""
    committed.git("checkout", "--quiet", "-b", "theirs")
    on_day(20, {**moved(), "n64/theirs": 10.6})
    invoke(pin.command, "--accept", "scale/n64/theirs", "--reason", "checks its input")
    invoke(pin.command, "--learn")
    committed.commit("A slower kernel")
    shutil.rmtree(committed.root / ".tirbench")
    committed.git("checkout", "--quiet", "main")
    loud_days(on_day)
    invoke(pin.command, "--learn")
    committed.commit("What sessions show")
    mine = len(sessions(committed))
    committed.git("merge", "--quiet", "-m", "merge", "theirs")
    rows = pinned(committed)
    assert all(is_sealed(row) for row in rows.values())
    assert rows["n64/theirs"].midmean_us == 10.6
    assert rows[LOUD].session_sd is not None
    assert len(sessions(committed)) == mine + 2


def test_a_session_that_no_branch_can_have_written_stops_pinning_with_what_to_do(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    committed.write(f"{SESSIONS}/0123456789ab.json", "<<<<<<< HEAD\n")
    before = (committed.root / BASELINE).read_bytes()
    on_day(2, moved(loud=1.05))
    for command in ((pin.command, "--allow-dirty"), (pin.command, "--learn"), (history.command,)):
        assert "is no session that was kept here" in str(invoke(*command).exception)
    assert (committed.root / BASELINE).read_bytes() == before


# --- Showing --------------------------------------------------------------------------------------


def test_history_shows_what_sessions_say_of_a_row_beside_its_numbers(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    loud_days(on_day)
    invoke(pin.command, "--learn")
    committed.git("checkout", "--quiet", BASELINE)
    found = document(invoke(history.command, f"scale/{LOUD}", "--format", "json"))
    assert [one["row"]["midmean_us"] for one in found["pinnings"]] == [10.0]
    (known,) = found["sessions"]
    (row,) = known["rows"]
    assert (known["hardware"], known["sessions"], known["draws"]) == ("nvidia-h200", 13, 12)
    assert (row["key"], row["sessions"], row["in_band"]) == (f"scale/{LOUD}", 13, SESSION_SD)
    assert row["session_sd"] > 1.3 * known["session_sd"]
    text = invoke(history.command, "scale/n64").stdout
    numbers, _, shown = text.partition("\n\n")
    assert "Baselines" in numbers
    assert shown.startswith("nvidia-h200: s_session 0.")
    assert [line.split()[0] for line in shown.splitlines()[3:]] == [
        f"scale/{LOUD}",
        "scale/n64/theirs",
    ]


def test_history_of_no_case_names_the_rows_that_differ_from_their_class(
    committed: Repository, on_day: OnDay, invoke: Invoke
) -> None:
    said = "nvidia-h200: s_session 0.30 %, which no sessions beside its baselines say otherwise\n"
    assert invoke(history.command).stdout == f"{said}6 row(s) as their class, within a tenth\n"
    loud_days(on_day)
    invoke(pin.command, "--learn")
    lines = invoke(history.command).stdout.splitlines()
    assert [line.split()[0] for line in lines[3:]] == [f"scale/{LOUD}", "5"]
    found = document(invoke(history.command, "--format", "json"))
    assert found["pinnings"] == []
    assert [row["key"] for row in found["sessions"][0]["rows"]] == sorted(
        f"scale/{key}" for key in KEYS
    )
    assert Path(committed.root / found["sessions"][0]["folder"]).is_dir()
