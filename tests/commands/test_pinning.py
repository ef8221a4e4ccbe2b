"""Pinning a run of several workloads: what is measured again, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.commands.conftest import MakeRun, Repository, estimate
from tirbench import pipeline, store
from tirbench.commands import measuring
from tirbench.model import Outcome, Row, Timed
from tirbench.plan import rows_of
from tirbench.reading import Reading


@pytest.fixture
def two(repository: Repository) -> Repository:
    """The workload twice, under two names."""
    text = (repository.root / "workloads/scale.toml").read_text(encoding="utf-8")
    repository.write("workloads/twice.toml", text)
    repository.write("workloads/third.toml", text)
    repository.commit("Two more workloads")
    return repository


def accept(
    reading: Reading, kept: store.KeptRun, measure_again: Callable[..., Sequence[Outcome]]
) -> tuple[store.Pinned, ...]:
    tree = store.Tree(commit=kept.run.commit)
    return pipeline.pin(reading, kept.run, tree, pipeline.PinOptions(), measure_again)


def slower(outcome: Outcome) -> Outcome:
    """In two workloads one row leaves its band."""
    assert isinstance(outcome, Timed)
    row = outcome.row
    moved = row.workload != "third" and (row.case, row.implementation) == ("n64", "ours")
    return replace(outcome, estimate=estimate(11.0)) if moved else outcome


def test_rows_of_all_workloads_are_measured_again_together(
    two: Repository, make_run: MakeRun
) -> None:
    accept(two.reading, make_run(), lambda _: pytest.fail("nothing to confirm"))
    asked: list[list[str]] = []
    moved = make_run(change=slower)

    def measure_again(rows: tuple[Row, ...]) -> Sequence[Outcome]:
        asked.append([row.key for row in rows])
        return [one for one in moved.run.outcomes if one.row in rows]

    done = accept(two.reading, moved, measure_again)
    assert asked == [["scale/n64/ours", "twice/n64/ours"]]
    kinds = {
        one.baseline.workload: sorted(
            change.kind for change in one.changes if change.kind != "kept"
        )
        for one in done
    }
    assert kinds == {"scale": ["rewritten"], "third": [], "twice": ["rewritten"]}


def test_what_left_its_band_is_measured_again_in_the_company_it_had(
    two: Repository, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time holds what was measured beside it."""
    accept(two.reading, make_run(), lambda _: pytest.fail("nothing to confirm"))
    ran: list[str] = []
    moved = make_run(change=slower)

    def run(reading: Reading, *_: object) -> store.KeptRun:
        for chosen in reading.chosen:
            for case in chosen.cases:
                ran.extend(row.key for row in rows_of(case))
        return moved

    monkeypatch.setattr(measuring, "run", run)
    tree = store.Tree(commit=moved.run.commit)
    options = pipeline.Options(device="cpu")
    measuring.pin(two.reading, moved, pipeline.PinOptions(), options, tree)
    whole = ("n64/ours", "n64/theirs")
    assert set(ran) == {f"{name}/{row}" for name in ("scale", "twice") for row in whole}


def test_an_interruption_of_the_second_measurement_keeps_what_was_settled(
    two: Repository, make_run: MakeRun
) -> None:
    accept(two.reading, make_run(), lambda _: pytest.fail("nothing to confirm"))
    paths = {
        name: two.root / f"workloads/baselines/nvidia-h200/{name}.toml"
        for name in ("scale", "third")
    }
    paths["third"].unlink()  # its rows are new again: nothing to confirm about them
    before = paths["scale"].read_text(encoding="utf-8")

    def interrupted(_: tuple[Row, ...]) -> Sequence[Outcome]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accept(two.reading, make_run(change=slower), interrupted)
    assert paths["third"].is_file()
    assert paths["scale"].read_text(encoding="utf-8") == before
