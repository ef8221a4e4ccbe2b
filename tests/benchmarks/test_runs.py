"""What benchmarks say of runs: partial ones, planted faults, and rows that are the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tirbench.model import BuiltAhead

sys.path.insert(0, str(Path(__file__).parents[2]))  # `benchmarks` is no installed package
from benchmarks.ahead import page as ahead_page
from benchmarks.planted.__main__ import judged, page
from benchmarks.runs import Ran, compared, executed

sys.path.pop(0)


def timed(us: float, half_width_us: float = 0.001, digest: str = "sass:a") -> dict[str, Any]:
    estimate = {"midmean_us": us, "half_width_us": half_width_us}
    return {"type": "timed", "estimate": estimate, "notes": [], "code": {"digest": digest}}


def failed(stage: str, cause: str, reason: str) -> dict[str, Any]:
    return {"type": "failed", "stage": stage, "cause": cause, "reason": reason}


@pytest.mark.parametrize(
    ("new", "old", "kind"),
    [
        (timed(1.009), timed(1.0), "same"),
        (timed(1.02), timed(1.0), "DIFFERENT"),
        (timed(1.02, 0.015), timed(1.0, 0.01), "same"),
        (timed(0.98), timed(1.0), "DIFFERENT"),
    ],
)
def test_rows_are_the_same_within_the_threshold_or_their_intervals(
    new: dict[str, Any], old: dict[str, Any], kind: str
) -> None:
    assert compared(new, old)[0] == kind


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (failed("verify", "hung", "hung: no progress in 10 s in stage verify"), "bad"),
        (failed("verify", "crashed", "crashed: SIGSEGV"), "NOT AS EXPECTED"),
        (timed(1.0), "NOT AS EXPECTED"),
    ],
)
def test_a_planted_kernel_must_fail_as_it_was_planted(row: dict[str, Any], kind: str) -> None:
    assert judged("planted/endless/planted", row, {})[0] == kind


def test_good_rows_are_held_against_the_case_without_a_fault() -> None:
    clean = {"planted/none_before/after": timed(1.0), "softmax/a/torch": timed(2.0)}
    assert judged("planted/endless/after", timed(1.001), clean)[0] == "same"
    assert judged("softmax/a/torch", failed("time", "raised", "x"), clean)[0] == "LOST"
    assert judged("softmax/b/torch", timed(1.0), clean)[0] == "NOT COMPARED"


def test_a_page_says_what_the_time_did_not_reach_to() -> None:
    clean = Ran({"softmax/a/torch": timed(1.0)}, ("softmax/b/torch",), 50.0)
    text = "\n".join(page(Ran(clean.rows, (), 40.0), clean, (), "By a test.", 115.0))
    assert "1 rows: 1 same" in text
    assert "NOT REACHED within 115 s: softmax/b/torch (clean)." in text


def test_other_machine_code_is_named() -> None:
    without = Ran({"softmax/a/triton": timed(1.0)}, (), 100.0)
    built = BuiltAhead(cases=3, kernels=5, compiled=4, seconds=2.5, found=4, late=1)
    with_ = Ran({"softmax/a/triton": timed(1.0, digest="sass:b")}, (), 80.0, built)
    text = "\n".join(ahead_page(without, with_))
    assert "4 kernels of 3 cases in 2.5 s, 0 failed, 0 replaced | 4 | 1 in 0.0 s" in text
    assert "- softmax/a/triton: same" in text
    assert "other machine code" in text


def test_a_run_that_takes_too_long_is_what_it_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `exec` that keeps a run and then waits for a signal."""
    (tmp_path / "tirbench").mkdir()
    root = Path(__file__).parents[2]
    program = f"""
import sys, time
sys.path.insert(0, {str(root)!r})
sys.modules.pop("tirbench")
from pathlib import Path
from tirbench import store
from tirbench.model import Machine, Row, Skipped
rows = [Row(workload="w", case="c", implementation=name, role="kernel") for name in "ab"]
machine = Machine(hardware="cpu-some", device="Some", kind="cpu")
with store.open_run(Path.cwd(), machine=machine, rows=rows, tree=store.Tree(commit=None)) as kept:
    kept.outcome(Skipped(row=rows[0], reason="so"))
    time.sleep(60)
"""
    (tmp_path / "tirbench" / "__init__.py").touch()
    (tmp_path / "tirbench" / "__main__.py").write_text(program)
    monkeypatch.setattr("benchmarks.runs.ROOT", tmp_path)
    monkeypatch.setattr("benchmarks.runs.ENDING_S", 5.0)
    ran = executed(["w.toml"], [], limit_s=3.0)
    assert list(ran.rows) == ["w/c/a"]
    assert ran.missing == ("w/c/b",)
    assert ran.seconds < 30
