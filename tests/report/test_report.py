"""Reports: complete, aligned, safe to show, the same text every time."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tirbench
from tirbench import report
from tirbench.model import Baseline, Failed, PinnedRow, Row, Run, Skipped, Spent, Timed, Wrong
from tirbench.report import document, github, markdown, pins, terminal, text
from tirbench.report.progress import progress
from tirbench.report.table import summary, tables

HERE = Path(__file__).parent
Golden = Callable[[Path, str], None]
SCHEMA = Path(tirbench.__file__).parent / "schema" / "run.schema.json"
EVIL = "bad[red]\x1b[31m|<b>`@you`\u202e\n::error::x"


def renamed(run: Run, name: str) -> Run:
    """The run with every name and reason of its failures replaced by a hostile one."""
    row = Row(workload=name, case=name, implementation=name, role="kernel")
    wrong = Wrong(row=row, reason=name, stage="verify")
    failed = Failed(
        row=replace(row, implementation=name + "2"),
        stage="build",
        reason=name,
        detail=name,
        place=name,
    )
    return replace(run, outcomes=(wrong, failed, Skipped(row=row, reason=name)))


@pytest.mark.parametrize("width", [60, 100, 140])
def test_the_result_of_a_run_reads_like_this(width: int, run: Run, golden: Golden) -> None:
    shown = terminal.render(
        run,
        terminal.Look(width=width),
        notes=("incomplete: 1 of 17 rows have no outcome",),
        folder=".tirbench/runs/20250131-142503-7f3a1c",
    )
    golden(HERE / f"width_{width}.txt", shown)


def test_a_run_says_where_its_time_went(run: Run) -> None:
    spent = Spent(
        elapsed_s=51.26,
        devices=2,
        stages=(
            ("w", (("load", 20.0), ("verify", 0.1))),
            ("v", (("load", 10.0), ("time", 69.9))),
        ),
    )
    shown = terminal.render(replace(run, spent=spent), terminal.Look(width=120))
    assert "51.3 s on 2 devices: load 30 %, time 70 %" in shown.splitlines()
    nothing = replace(spent, stages=())
    assert "devices:" not in terminal.render(replace(run, spent=nothing), terminal.Look(width=120))


def test_colours_change_nothing_but_colours(run: Run) -> None:
    plain = terminal.render(run, terminal.Look(width=120))
    colored = terminal.render(run, terminal.Look(width=120, color=True))
    assert "\x1b" not in plain
    bare = re.sub(r"\x1b\[\d+m", "", colored)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()


def test_every_row_is_in_every_format(run: Run) -> None:
    for form in ("text", "markdown", "json", "jsonl", "github"):
        shown = report.render(run, form)
        assert shown.endswith("\n")
        for name in ("triton", "torch", "compiled", "liger", "tirx_a", "bad", "interpreted"):
            assert name in shown.replace("\\", "")


def test_columns_are_there_only_if_a_row_has_something_in_them(run: Run) -> None:
    skipped = [outcome for outcome in run.outcomes if isinstance(outcome, Skipped)]
    (table,) = tables(skipped)
    assert [column.key for column in table.columns] == [
        "case",
        "implementation",
        "verified",
        "notes",
    ]


def test_kernels_stand_before_references_and_have_their_ratio(run: Run) -> None:
    (table,) = tables(run.outcomes)
    first = [line.cell("implementation") for line in table.lines[:7]]
    assert first == [
        "triton",
        "tirx_a, tirx_b",
        "bad",
        "interpreted",
        "torch",
        "compiled",
        "liger",
    ]
    assert table.lines[0].cell("ratio:torch") == "0.476"
    assert table.lines[0].cell("ratio:compiled") == "1.02"
    assert table.lines[4].cell("ratio:compiled") == ""


def test_the_summary_counts_every_outcome(run: Run) -> None:
    assert summary(run.outcomes) == (
        "6 timed · 2 verified · 2 wrong · 2 failed · 4 skipped: needs a CPU"
    )
    assert summary(()) == "nothing was asked for"


@pytest.mark.parametrize("form", ["text", "markdown", "github"])
def test_a_hostile_name_drives_no_terminal_and_no_page(form: str, run: Run) -> None:
    shown = report.render(renamed(run, EVIL), form, color=False)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert not any(line.startswith("::error::x") for line in shown.splitlines())
    if form == "markdown":
        table = [line for line in shown.splitlines() if line.startswith("| bad")]
        assert table
        for line in table:
            assert re.search(r"(?<!\\)[<`@\[]", line) is None
        code = [line for line in shown.splitlines() if line.startswith("    ")]
        assert len(code) == 2  # the log, indented: shown as it is
        for line in set(shown.splitlines()) - set(code):
            assert "<b>" not in line.replace("\\<b\\>", "")


def test_a_harness_that_runs_alone_prints_the_same_table(run: Run) -> None:
    alone = terminal.table(run.outcomes)
    assert alone.splitlines()[:20] == terminal.render(run, terminal.Look()).splitlines()[:20]
    assert alone.splitlines()[-1] == summary(run.outcomes)


@pytest.mark.parametrize(
    ("terminal_there", "environment", "look"),
    [
        (False, {}, (140, False)),
        (False, {"COLUMNS": "100"}, (100, False)),
        (False, {"FORCE_COLOR": "1"}, (140, True)),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, (140, False)),
        (True, {"COLUMNS": "100"}, (100, True)),
        (True, {"COLUMNS": "100", "NO_COLOR": "1"}, (100, False)),
        (True, {"COLUMNS": "20", "TERM": "dumb"}, (60, False)),
    ],
)
def test_a_stream_gets_what_it_can_show(
    terminal_there: bool, environment: dict[str, str], look: tuple[int, bool]
) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal_there  # type: ignore[method-assign]
    found = terminal.look_of(stream, environment)
    assert (found.width, found.color) == look


# --- Progress -------------------------------------------------------------------------------------


def events(run: Run) -> list[SimpleNamespace]:
    """What `execute` says of the first case, and a worker that was replaced."""
    first = [outcome for outcome in run.outcomes if outcome.row.case == "hs4096_bs128"]
    of_case = {"workload": "rmsnorm", "case": "hs4096_bs128"}
    return [
        SimpleNamespace(**of_case, implementation="triton", stage="verify"),
        SimpleNamespace(**of_case, reason="it crashed"),
        *(SimpleNamespace(outcome=outcome) for outcome in first),
        SimpleNamespace(**of_case, log="x", elapsed_s=2.14),
    ]


def test_a_pipe_gets_one_line_for_each_finished_case(run: Run) -> None:
    stream = io.StringIO()
    with progress(stream, total=16, environment={"FORCE_COLOR": ""}) as watch:
        for event in events(run):
            watch(event)
    assert stream.getvalue().splitlines() == [
        "rmsnorm/hs4096_bs128: a fresh worker, because it crashed",
        (
            "[ 8/16] rmsnorm/hs4096_bs128  triton 3.412 µs, tirx_a skipped, tirx_b skipped, bad wrong, "
            "interpreted verified, torch 7.165 µs, compiled 3.344 µs, liger BASELINE_ERROR  (2.1 s)"
        ),
    ]


def test_a_terminal_gets_a_live_display_also_without_colours(run: Run) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    environment = {"TERM": "xterm", "COLUMNS": "200", "NO_COLOR": "1"}
    with progress(stream, total=16, environment=environment) as watch:
        for event in events(run):
            watch(event)
    shown = stream.getvalue()
    assert "8/16" in shown
    assert "rmsnorm/hs4096_bs128  triton 3.412 µs" in shown
    assert "\x1b[?25l" in shown  # the cursor is hidden: it is live
    assert "\x1b[3" not in shown.replace("\x1b[32D", "")


# --- Markdown, JSON, annotations ------------------------------------------------------------------


def test_markdown_reads_like_this(run: Run, golden: Golden) -> None:
    golden(HERE / "run.md", markdown.render(run))


def test_markdown_that_is_too_long_counts_what_it_leaves_out(run: Run) -> None:
    many = tuple(
        replace(outcome, row=replace(outcome.row, workload=f"w{index}"))
        for index in range(40)
        for outcome in run.outcomes
    )
    shown = markdown.render(replace(run, outcomes=many), limit_bytes=20_000)
    assert len(shown.encode()) <= 20_000
    kept = shown.count("<details>") + shown.count("### ")
    left = re.search(r"\*(\d+) sections more did not fit here\.\*", shown)
    assert left is not None
    assert kept + int(left[1]) == 40 * (1 + 3)


def test_a_time_that_was_not_repeated_has_no_interval_of_zero() -> None:
    assert text.microseconds(3.4121, None) == "3.412 ±–"
    assert text.microseconds(3.4121, 0.0) == "3.412 ±0"


def test_the_schema_of_runs_is_that_of_the_types() -> None:
    expected = json.dumps(document.schema(), indent=2, ensure_ascii=False) + "\n"
    assert SCHEMA.read_text(encoding="utf-8") == expected


def test_json_is_valid_by_its_schema_and_counts(run: Run) -> None:
    data = json.loads(document.to_json(run, notes=("incomplete",)))
    jsonschema.Draft202012Validator.check_schema(document.schema())
    jsonschema.validate(data, document.schema())
    assert data["summary"] == {"timed": 6, "verified": 2, "wrong": 2, "failed": 2, "skipped": 4}
    data["outcomes"][0]["estimate"]["midmean"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, document.schema())


def test_lines_of_json_are_the_head_and_each_outcome(run: Run) -> None:
    head, *outcomes = [json.loads(line) for line in document.to_jsonl(run)]
    assert head["id"] == run.id
    assert [line["type"] for line in outcomes[:3]] == ["timed", "timed", "failed"]
    assert len(outcomes) == len(run.outcomes)


def test_wrong_kernels_are_errors_and_failed_references_warnings(run: Run) -> None:
    lines = github.annotate(run, lambda row: f"workloads/{row.workload}.toml:27")
    assert lines == (
        (
            "::error file=workloads/rmsnorm.toml,line=27,title=wrong%3A rmsnorm/bad::"
            "y: 12 of 96 elements off in hs4096_bs128 (hs4096_bs128)"
        ),
        (
            "::error file=workloads/rmsnorm.toml,line=27,title=wrong%3A rmsnorm/bad::"
            "y: 12 of 96 elements off in hs8192_bs4113 (hs8192_bs4113)"
        ),
        (
            "::warning file=workloads/rmsnorm.toml,line=41,title=BASELINE_ERROR%3A rmsnorm/liger::"
            "ModuleNotFoundError: No module named 'liger_kernel' (hs4096_bs128, hs8192_bs4113)"
        ),
    )


def test_annotations_beyond_what_is_shown_are_counted(run: Run) -> None:
    row = Row(workload="w", case="c", implementation="k", role="kernel")
    wrong = [Wrong(row=row, reason=f"reason {i}", stage="verify") for i in range(14)]
    lines = github.annotate(replace(run, outcomes=tuple(wrong)), lambda _: None)
    assert len(lines) == github.LIMIT
    assert lines[-1] == "::error::5 more problems in the summary"


# --- Pins -----------------------------------------------------------------------------------------


def test_what_pinning_did_names_what_moved_and_counts_the_rest() -> None:
    def row(midmean_us: float) -> PinnedRow:
        return PinnedRow(
            case="hs4096_bs128",
            implementation="triton",
            midmean_us=midmean_us,
            band=0.01,
            anchor_us=3.0,
            problem="",
            protocol="",
            code="sass:1",
            source="",
            env="",
            unit="",
        )

    def change(kind: str, now: float, old: float | None = None, why: str = "") -> SimpleNamespace:
        return SimpleNamespace(
            kind=kind, row=row(now), old=None if old is None else row(old), why=why
        )

    pinned = SimpleNamespace(
        baseline=Baseline(workload="rmsnorm", hardware="nvidia-h200", rows=()),
        changes=(
            change("added", 1.0),
            change("kept", 1.0, 1.0),
            change("kept", 1.0, 1.0, "outside its band once, not again"),
            change("rewritten", 3.3, 3.0, "time outside the band, and again"),
        ),
        refused=((("a", "x"), "skipped: needs a CPU"), (("b", "x"), "skipped: needs a CPU")),
        orphans=(("gone", "triton"),),
    )
    assert pins.pinned_text(pinned).splitlines() == [
        "pinned rmsnorm on nvidia-h200: 1 added, 1 rewritten, 2 kept, 2 not pinned",
        "  kept: hs4096_bs128/triton 1.000 µs: outside its band once, not again",
        (
            "  rewritten: hs4096_bs128/triton 3.000 → 3.300 µs (ratio 1.100): "
            "time outside the band, and again"
        ),
        "  not pinned: a/x, b/x: skipped: needs a CPU",
        "  orphan: gone/triton (--prune drops it)",
    ]


# --- Numbers and names ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (3.41234, "3.412"),
        (187.41, "187.4"),
        (1380.04, "1380"),
        (123456.7, "123457"),
        (0.050123, "0.05012"),
        (9.99996, "10.00"),
        (0.0, "0.0"),
    ],
)
def test_a_number_has_four_significant_digits(number: float, shown: str) -> None:
    assert text.significant(number) == shown


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_a_number_loses_no_more_than_half_of_its_fourth_digit(number: float) -> None:
    assert float(text.significant(number)) == pytest.approx(number, rel=5.001e-4)


@pytest.mark.parametrize(
    ("time", "width", "shown"),
    [(3.412, 0.0171, "3.412 ±0.017"), (3.412, 0.02, "3.412 ±0.02"), (1380.0, 4.2, "1380 ±4")],
)
def test_an_interval_has_one_digit_or_two_where_it_begins_with_a_one(
    time: float, width: float, shown: str
) -> None:
    assert text.microseconds(time, width) == shown


@given(st.text())
def test_plain_text_holds_no_control_character(content: str) -> None:
    kinds = {unicodedata.category(char) for char in text.plain(content)}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_a_run_without_times_has_no_legend_for_them(run: Run) -> None:
    rest = tuple(outcome for outcome in run.outcomes if not isinstance(outcome, Timed))
    shown = terminal.render(replace(run, outcomes=rest), terminal.Look())
    assert "below 1 is faster" not in shown


def test_the_word_for_a_failure_is_said_once(run: Run) -> None:
    row = Row(workload="scale", case="n64", implementation="ours", role="kernel")
    reason = "hung: no progress in 8 s in stage verify"
    hung = Failed(row=row, stage="verify", reason=reason, cause="hung")
    text = report.render(replace(run, outcomes=(hung,)), "text", width=120)
    assert "hung: scale/ours in verify (n64): no progress in 8 s in stage verify\n" in text
    assert "hung: no progress" not in text
