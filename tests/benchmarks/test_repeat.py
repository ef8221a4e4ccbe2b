"""`benchmarks/repeat.py`: which rows of later runs lie within their pins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.commands.conftest import MakeRun, Repository
from tirbench import store
from tirbench.model import CodeFacts, Outcome, Timed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repeat(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    module = import_module("benchmarks.repeat")
    monkeypatch.setattr(module, "ROOT", repository.root)
    return module


Pin = Callable[[store.KeptRun], None]


def other_code(outcome: Outcome) -> Outcome:
    """One row as another machine compiles it."""
    assert isinstance(outcome, Timed)
    if outcome.row.key != "scale/n256/theirs":
        return outcome
    return replace(outcome, code=CodeFacts(digest="sass:another"))


def test_rows_of_pinned_code_are_held_against_their_bands(
    repeat: ModuleType, repository: Repository, make_run: MakeRun, pin: Pin
) -> None:
    pin(make_run())
    later = make_run({"n64/ours": 10.05, "n128/ours": 10.2}, change=other_code)
    found = repeat.study(repository.root, [later.run.id])
    assert len(found.held) == 5
    assert found.others == ((later.run.id, "scale/n256/theirs"),)
    away = {one.key: one.excess > 0 for one in found.held if one.change}
    assert away == {"scale/n64/ours": False, "scale/n128/ours": True}


def test_another_unit_of_the_product_is_allowed_more(
    repeat: ModuleType, repository: Repository, make_run: MakeRun, pin: Pin
) -> None:
    pin(make_run())

    def elsewhere(outcome: Outcome) -> Outcome:
        assert isinstance(outcome, Timed)
        return replace(outcome, unit="another")

    later = make_run({"n64/ours": 10.2, "n128/ours": 10.3}, change=elsewhere)
    found = repeat.study(repository.root, [later.run.id])
    assert all(one.other_unit for one in found.held)
    outside = [one.key for one in found.held if one.excess]
    assert outside == ["scale/n128/ours"]


def test_the_page_says_shares_by_run_and_class_and_who_is_outside(
    repeat: ModuleType,
    make_run: MakeRun,
    pin: Pin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pin(make_run())
    later = make_run({"n64/ours": 10.2}, change=other_code)
    monkeypatch.setattr(sys, "argv", ["repeat", later.run.id, "--out", str(tmp_path / "out")])
    assert repeat.main() == 1
    text = (tmp_path / "out" / "repeat_h200.md").read_text(encoding="utf-8")
    assert text == capsys.readouterr().out.removesuffix("\n")
    assert "| 5 | 5 | 80.0 % | 80.0 % | +0.00 % | 0.00 % | +2.00 % |" in text
    assert "| to 10 µs | 5 | 80.0 % | 80.0 % | +0.00 % | 0.00 % | +2.00 % |" in text
    assert "| scale/n64/ours | 10 | +2.00 % |" in text
    assert text.count("OUTSIDE") == 1
    assert "* scale/n256/theirs" in text


def test_runs_without_a_pinned_row_say_so(
    repeat: ModuleType,
    make_run: MakeRun,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["repeat", make_run().run.id])
    assert repeat.main() == 3
    assert "no row of these runs is of pinned code" in capsys.readouterr().err
