"""Baseline files: readable, stable to the byte, merged by git without a conflict."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.model import Baseline, Machine, PinnedRow, Source, Workload
from tirbench.store.baseline import (
    KEYS,
    BaselineError,
    baseline_path,
    device_path,
    is_sealed,
    read_baseline,
    render_baseline,
    sealed,
    write_baseline,
    write_device,
)

DIGESTS = st.text("0123456789abcdef", min_size=16, max_size=16)
NUMBERS = st.floats(min_value=1e-3, max_value=1e9)
BANDS = st.floats(min_value=0.005, max_value=0.05)
# TOML has no lone surrogates; everything else must come back.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
IDS = st.one_of(st.text(string.ascii_letters + string.digits + "_-=.,", min_size=1), TEXTS)
RATIOS = st.one_of(st.just((None, None)), st.tuples(NUMBERS, BANDS))
Golden = Callable[[Path, str], None]
PATH = "workloads/baselines/nvidia-h200/rmsnorm.toml"


@st.composite
def pinned_rows(draw: st.DrawFn) -> PinnedRow:
    ratio, ratio_band = draw(RATIOS)
    return sealed(
        PinnedRow(
            case=draw(IDS),
            implementation=draw(IDS),
            midmean_us=draw(NUMBERS),
            band=draw(BANDS),
            anchor_us=draw(NUMBERS),
            problem=draw(DIGESTS),
            protocol=draw(DIGESTS),
            source=draw(DIGESTS),
            code="sass:" + draw(DIGESTS),
            env=draw(TEXTS),
            unit=draw(TEXTS),
            ratio=ratio,
            ratio_band=ratio_band,
            resources=draw(st.sampled_from([(), (("registers", 32), ("spills", 0))])),
            configuration=draw(st.none() | TEXTS),
            reason=draw(st.none() | TEXTS),
            session_sd=draw(st.none() | st.floats(min_value=0, max_value=0.009)),
        )
    )


def baseline_of(*rows: PinnedRow) -> Baseline:
    ordered = sorted(rows, key=lambda row: (row.case, row.implementation))
    return Baseline(workload="rmsnorm", hardware="nvidia-h200", rows=tuple(ordered))


def plain_row(case: str, midmean_us: float = 3.412, **changes: object) -> PinnedRow:
    row = PinnedRow(
        case=case,
        implementation="triton",
        midmean_us=midmean_us,
        band=0.0098,
        anchor_us=midmean_us,
        problem="00000000000000aa",
        protocol="00000000000000bb",
        code="sass:0123456789abcdef",
        source="00000000000000cc",
        env="driver 580.159 · torch 2.11.0 · triton 3.6.0",
        unit="3f9a",
        resources=(("registers", 32), ("shared_bytes", 128), ("spills", 0)),
    )
    return sealed(replace(row, **changes))  # type: ignore[arg-type]


def test_every_field_of_a_pinned_row_has_its_key() -> None:
    assert {field.name for field in fields(PinnedRow)} == {*KEYS, "case", "implementation"}


@given(rows=st.lists(pinned_rows(), max_size=4, unique_by=lambda r: (r.case, r.implementation)))
def test_a_baseline_survives_its_file(
    rows: list[PinnedRow], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    baseline = baseline_of(*rows)
    write_baseline(root, PATH, baseline)
    found = read_baseline(root, PATH)
    assert found == (baseline if rows else None)
    assert found is None or all(is_sealed(row) for row in found.rows)


def test_a_baseline_reads_like_this(golden: Golden) -> None:
    text = render_baseline(
        baseline_of(
            plain_row("b=2,d.f", 1380.04, ratio=0.81234, ratio_band=0.01, reason='say "why"'),
            plain_row("hs4096_bs128"),
        )
    )
    golden(Path(__file__).parent / "baseline.toml", text)


def test_a_file_that_says_the_same_is_not_written_again(tmp_path: Path) -> None:
    baseline = baseline_of(plain_row("a"))
    assert write_baseline(tmp_path, PATH, baseline)
    assert not write_baseline(tmp_path, PATH, baseline)
    assert [path.name for path in (tmp_path / PATH).parent.iterdir()] == ["rmsnorm.toml"]


def test_a_baseline_without_rows_is_not_begun_but_can_become_empty(tmp_path: Path) -> None:
    assert not write_baseline(tmp_path, PATH, baseline_of())
    write_baseline(tmp_path, PATH, baseline_of(plain_row("a")))
    assert write_baseline(tmp_path, PATH, baseline_of())
    assert read_baseline(tmp_path, PATH) == baseline_of()


@pytest.mark.parametrize("change", ["midmean_us = 3.412", 'unit = "3f9a"', "spills = 0"])
def test_an_edit_by_hand_breaks_the_seal(change: str, tmp_path: Path) -> None:
    write_baseline(tmp_path, PATH, baseline_of(plain_row("a")))
    text = (tmp_path / PATH).read_text(encoding="utf-8")
    key, _, value = change.partition(" = ")
    edited = text.replace(change, f"{key} = " + ('"x"' if '"' in value else "7"))
    assert edited != text
    (tmp_path / PATH).write_text(edited, encoding="utf-8")
    found = read_baseline(tmp_path, PATH)
    assert found is not None
    assert not is_sealed(found.rows[0])


def test_a_comment_or_another_order_of_keys_breaks_no_seal(tmp_path: Path) -> None:
    write_baseline(tmp_path, PATH, baseline_of(plain_row("a")))
    head, *rows = (tmp_path / PATH).read_text(encoding="utf-8").splitlines()
    keys = [line for line in rows if " = " in line]
    (tmp_path / PATH).write_text("\n".join([head, "[a.triton] # good", *reversed(keys)]))
    found = read_baseline(tmp_path, PATH)
    assert found is not None
    assert is_sealed(found.rows[0])


def test_neighbouring_rows_pinned_on_two_branches_merge_without_a_conflict(
    git: Callable[..., str], tmp_path: Path
) -> None:
    rows = [plain_row("a"), plain_row("b"), plain_row("c")]

    def commit(branch: str, *changed: PinnedRow) -> None:
        write_baseline(tmp_path, PATH, baseline_of(*changed))
        git("add", "-A")
        git("commit", "--quiet", "-m", branch)

    def moved(row: PinnedRow) -> PinnedRow:
        return plain_row(row.case, 2.5, source="00000000000000dd", code="sass:ff", env="torch 3")

    commit("base", *rows)
    git("switch", "--quiet", "-c", "first")
    commit("first", moved(rows[0]), *rows[1:])
    git("switch", "--quiet", "main")
    commit("second", rows[0], moved(rows[1]), rows[2])
    git("merge", "--quiet", "--no-edit", "first")
    assert read_baseline(tmp_path, PATH) == baseline_of(moved(rows[0]), moved(rows[1]), rows[2])


def test_a_patch_of_one_row_applies_after_its_neighbour_has_moved(
    git: Callable[..., str], tmp_path: Path
) -> None:
    rows = [plain_row("a"), plain_row("b")]
    new = [plain_row("a", 2.5, source="00000000000000dd"), plain_row("b", 2.5, env="torch 3")]
    for name, pair in (("base", rows), ("first", [new[0], rows[1]]), ("second", [rows[0], new[1]])):
        git("switch", "--quiet", "-c", name) if name != "base" else None
        write_baseline(tmp_path, PATH, baseline_of(*pair))
        git("add", "-A")
        git("commit", "--quiet", "-m", name)
        if name == "first":
            (tmp_path / "first.patch").write_text(git("diff", "main", "first"))
            git("switch", "--quiet", "main")
    git("apply", "--check", "first.patch")


def test_a_row_pinned_on_two_branches_is_a_conflict_answered_with_the_recipe(
    git: Callable[..., str], tmp_path: Path
) -> None:
    for branch, time in (("main", 3.0), ("first", 2.5), ("main", 2.0)):
        git(
            "switch", "--quiet", *(["-c"] if branch == "first" else []), branch
        ) if time < 3 else None
        write_baseline(tmp_path, PATH, baseline_of(plain_row("a", time)))
        git("add", "-A")
        git("commit", "--quiet", "-m", "pin")
    git("merge", "--no-edit", "first", check=False)
    with pytest.raises(BaselineError) as raised:
        read_baseline(tmp_path, PATH)
    assert str(raised.value) == (
        f"{PATH}:5: conflict marker of a merge. Both sides measured the same row, and neither\n"
        "number is that of the merged code. Take one side, then measure and pin again:\n"
        f"    git checkout --ours -- {PATH}\n"
        "    tirbench exec workloads/rmsnorm.toml --pin\n"
        f"    git add {PATH}"
    )


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("midmean_us = 3.412", "midmean_us = -1.0"), "a.triton.midmean_us: -1.0 is less than"),
        (("unit =", "unti ="), "a.triton: Additional properties are not allowed ('unti' was"),
        (("unit =", "unti ="), "a.triton: 'unit' is a required property"),
        (("[a.triton]", "[a.triton"), f"{PATH}: "),
        (("band = 0.0098", "band = 0.5"), "a.triton.band: 0.5 is greater than the maximum of 0.05"),
    ],
)
def test_a_file_that_is_no_baseline_names_the_place(
    edit: tuple[str, str], message: str, tmp_path: Path
) -> None:
    write_baseline(tmp_path, PATH, baseline_of(plain_row("a")))
    text = (tmp_path / PATH).read_text(encoding="utf-8")
    (tmp_path / PATH).write_text(text.replace(*edit), encoding="utf-8")
    with pytest.raises(BaselineError) as raised:
        read_baseline(tmp_path, PATH)
    assert str(raised.value).startswith(PATH)
    assert message in str(raised.value)


def test_baselines_lie_beside_their_workload() -> None:
    def workload(path: str) -> Workload:
        source = Source(root="", path=path, text="")
        return Workload(name="add", source=source, description="")

    nested = workload("suite/workloads/add.toml")
    assert baseline_path(nested, "nvidia-h200") == "suite/workloads/baselines/nvidia-h200/add.toml"
    assert device_path(nested, "cpu") == "suite/workloads/baselines/cpu/device.toml"
    assert baseline_path(workload("add.toml"), "cpu") == "baselines/cpu/add.toml"


def test_the_facts_of_a_device_are_written_once_and_name_no_unit(
    tmp_path: Path, machine: Machine
) -> None:
    assert write_device(tmp_path, "b/device.toml", machine)
    text = (tmp_path / "b/device.toml").read_text()
    assert text == (
        "# Facts of the device that the baselines in this folder were measured on.\n\n"
        'product = "NVIDIA H200"\nmemory_bytes = 150754820096\ncapability = "9.0"\nsm_count = 132\n'
    )
    assert not write_device(tmp_path, "b/device.toml", replace(machine, device="other"))
    assert (tmp_path / "b/device.toml").read_text() == text
