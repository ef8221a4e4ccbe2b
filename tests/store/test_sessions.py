"""Sessions as files: a line a row, one file each, so that branches never meet in one; no day in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.bands import SESSION_SD, Taught
from tirbench.model import CodeFacts, Machine, Timed
from tirbench.store.baseline import BaselineError, is_sealed, parse_baseline, render_baseline
from tirbench.store.pin import Pinning, apply, plan_pin
from tirbench.store.sessions import (
    Entry,
    KeptSession,
    digest_of_pinned,
    digest_of_timed,
    parse_session,
    read_sessions,
    render_session,
    sessions_path,
    taught,
    write_session,
)

MakeTimed: TypeAlias = "Callable[..., Timed]"
PATH = "workloads/baselines/nvidia-h200/sessions"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ROWS = [f"rmsnorm/hs{number}/triton" for number in range(6)]


def session(us: float, *, unit: str = "3f9a", rows: list[str] = ROWS) -> KeptSession:
    entries = {row: Entry(us=us, repeat=0.001, row="0123456789ab") for row in rows}
    return KeptSession(unit=unit, env="torch 2.11.0", rows=entries)


@given(
    unit=TEXTS,
    env=TEXTS,
    rows=st.dictionaries(
        TEXTS,
        st.builds(
            Entry,
            us=st.floats(min_value=1e-3, max_value=1e9),
            repeat=st.floats(min_value=0, max_value=1),
            row=TEXTS,
        ),
    ),
)
def test_a_session_survives_its_file(unit: str, env: str, rows: dict[str, Entry]) -> None:
    made = KeptSession(unit=unit, env=env, rows=rows)
    text = render_session(made)
    assert parse_session(text, "x.json") == made
    assert render_session(parse_session(text, "x.json")) == text
    assert len(text.split("\n")) == len(rows or [""]) + 4


def test_a_session_reads_like_this() -> None:
    text = render_session(session(3.412, rows=ROWS[:2]))
    assert text == (
        '{"schema": 1, "unit": "3f9a", "env": "torch 2.11.0",\n'
        ' "rows": {\n'
        '  "rmsnorm/hs0/triton": {"us": 3.412, "repeat": 0.001, "row": "0123456789ab"},\n'
        '  "rmsnorm/hs1/triton": {"us": 3.412, "repeat": 0.001, "row": "0123456789ab"}\n'
        " }}\n"
    )


def test_the_runs_of_a_unit_on_a_day_find_the_same_file() -> None:
    one = session(3.4)
    assert one.id("20250131") == replace(one, rows={}).id("20250131")
    others = {
        one.id("20250131"),
        one.id("20250201"),
        replace(one, unit="other").id("20250131"),
        replace(one, env="torch 2.12.0").id("20250131"),
    }
    assert len(others) == 4
    assert "2025" not in one.id("20250131")


def test_a_row_has_the_same_digest_measured_and_pinned(timed: MakeTimed, machine: Machine) -> None:
    measured = [
        timed(),
        replace(timed(implementation="plain"), code=None),
        timed(implementation="tuned", code=CodeFacts(digest="sass:1", configuration="BLOCK=64")),
    ]
    rows = apply(plan_pin("rmsnorm", None, measured, Pinning(machine=machine))).baseline.rows
    pinned = {row.implementation: digest_of_pinned(row) for row in rows}
    assert pinned == {one.row.implementation: digest_of_timed(one) for one in measured}
    changed = [
        timed(problem="00000000000000ee"),
        timed(protocol="00000000000000ee"),
        timed(source="00000000000000ee"),
        timed(code=CodeFacts(digest="sass:other")),
        timed(code=CodeFacts(digest="sass:0123", configuration="BLOCK=64")),
    ]
    assert len({digest_of_timed(one) for one in (timed(), *changed)}) == 6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2, "unit": "a", "env": "b", "rows": {}}',
        '{"schema": 1, "unit": "a", "env": "b", "rows": {"x": {"us": 1.0}}}',
        '{"schema": 1, "unit": "a", "env": "b", "rows": {"x": {"us": 0, "repeat": 0, "row": ""}}}',
        '{"schema": 1, "unit": "a", "env": "b", "rows": {"x": {"us": NaN, "repeat": 0, "row": ""}}}',
        "<<<<<<< HEAD\n" + render_session(session(1.0)),
    ],
)
def test_a_file_that_is_no_session_is_named_with_what_to_do(text: str, tmp_path: Path) -> None:
    (tmp_path / PATH).mkdir(parents=True)
    (tmp_path / PATH / "0123.json").write_text(text, encoding="utf-8")
    with pytest.raises(BaselineError, match=rf"^{PATH}/0123\.json is no session .*delete it"):
        read_sessions(tmp_path, PATH)


def test_sessions_of_two_branches_never_conflict(git: Callable[..., str], tmp_path: Path) -> None:
    def commit(name: str, us: float) -> None:
        write_session(tmp_path, PATH, name, session(us))
        git("add", "-A")
        git("commit", "--quiet", "-m", name)

    commit("aaaa", 3.40)
    git("checkout", "--quiet", "-b", "branch")
    commit("bbbb", 3.41)
    git("checkout", "--quiet", "main")
    commit("cccc", 3.42)
    git("merge", "--quiet", "-m", "merge", "branch")
    assert sorted(read_sessions(tmp_path, PATH)) == ["aaaa", "bbbb", "cccc"]
    assert taught(tmp_path, PATH).draws == 2


def test_where_nothing_is_kept_nothing_is_taught(tmp_path: Path) -> None:
    assert sessions_path("workloads", "nvidia-h200") == PATH
    assert sessions_path("", "nvidia-h200") == "baselines/nvidia-h200/sessions"
    assert read_sessions(tmp_path, PATH) == {}
    assert taught(tmp_path, PATH) == Taught()


# --- The row --------------------------------------------------------------------------------------


def loud(row: str) -> Taught:
    """A history in which one row moves by twice the prior."""
    from tirbench.bands import Own

    return Taught(
        sessions=21,
        draws=20,
        own={row: Own(sessions=21, draws=20.0, variance=(2 * SESSION_SD) ** 2)},
    )


def test_a_number_that_is_written_gets_its_band_by_what_sessions_show(
    timed: MakeTimed, machine: Machine
) -> None:
    row = timed(100.0)
    name = f"{row.row.key} {digest_of_timed(row)}"
    teaching = Pinning(machine=machine, taught=loud(name))
    (new,) = apply(plan_pin("rmsnorm", None, [row], teaching)).baseline.rows
    (plain,) = apply(plan_pin("rmsnorm", None, [row], Pinning(machine=machine))).baseline.rows
    assert (plain.session_sd, plain.band) == (None, 0.009767)
    assert new.session_sd == pytest.approx(SESSION_SD * (1 + 4 * 2 / 3) ** 0.5, rel=1e-3)
    assert new.band > 1.8 * plain.band
    assert is_sealed(new)
    # Another row, and the same one with other code, have what the class has.
    (other,) = apply(
        plan_pin("rmsnorm", None, [timed(source="00000000000000ee")], teaching)
    ).baseline.rows
    assert (other.session_sd, other.band) == (SESSION_SD, plain.band)


def test_a_number_that_stays_keeps_its_band_to_the_byte(timed: MakeTimed, machine: Machine) -> None:
    row = timed(100.0)
    base = apply(plan_pin("rmsnorm", None, [row], Pinning(machine=machine))).baseline
    teaching = Pinning(machine=machine, taught=loud(f"{row.row.key} {digest_of_timed(row)}"))
    again = apply(plan_pin("rmsnorm", base, [timed(100.5)], teaching)).baseline
    assert render_baseline(again) == render_baseline(base)
    learnt = apply(plan_pin("rmsnorm", None, [row], teaching)).baseline
    unlearnt = apply(plan_pin("rmsnorm", learnt, [row], Pinning(machine=machine))).baseline
    assert render_baseline(unlearnt) == render_baseline(learnt)


@pytest.mark.parametrize("accepted", [False, True])
def test_a_number_that_moves_takes_the_learnt_band_along(
    accepted: bool, timed: MakeTimed, machine: Machine
) -> None:
    base = apply(plan_pin("rmsnorm", None, [timed(100.0)], Pinning(machine=machine))).baseline
    key = ("hs4096_bs128", "triton")
    teaching = Pinning(
        machine=machine,
        accept=((key, "checks its input now"),) if accepted else (),
        taught=loud(f"rmsnorm/{'/'.join(key)} {digest_of_timed(timed())}"),
    )
    (row,) = apply(
        plan_pin("rmsnorm", base, [timed(110.0)], teaching), [timed(110.0)]
    ).baseline.rows
    assert row.midmean_us == 110.0
    assert row.session_sd == pytest.approx(0.005745, rel=1e-3)
    assert row.band > 1.8 * base.rows[0].band


def test_the_ratio_of_two_rows_is_as_wide_as_the_wider_of_them(
    timed: MakeTimed, machine: Machine
) -> None:
    run = [timed(4.0), timed(5.0, implementation="torch", role="reference")]
    name = f"{run[1].row.key} {digest_of_timed(run[1])}"
    wide = Pinning(machine=machine, reference="torch", taught=loud(name))
    plain = Pinning(machine=machine, reference="torch")
    bands = [
        [row.ratio_band for row in apply(plan_pin("rmsnorm", None, run, how)).baseline.rows][1]
        for how in (plain, wide)
    ]
    assert bands[0] is not None
    assert bands[1] is not None
    assert bands[1] > 1.7 * bands[0]


def test_the_committed_baselines_are_as_pin_writes_them() -> None:
    """Rows without the field are those of a class of hardware that nothing was learnt of."""
    root = Path(__file__).parents[2]
    files = [
        file for file in root.glob("workloads/baselines/*/*.toml") if file.name != "device.toml"
    ]
    rows = 0
    for file in files:
        text = file.read_text(encoding="utf-8")
        baseline = parse_baseline(text, file.relative_to(root).as_posix())
        assert render_baseline(baseline) == text
        assert all(is_sealed(row) for row in baseline.rows)
        rows += len(baseline.rows)
    assert rows >= 200
