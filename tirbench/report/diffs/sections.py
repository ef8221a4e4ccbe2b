"""What every format says of a comparison, in the order in which a reviewer needs it."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tirbench.model import MeasureCause
from tirbench.report import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tirbench.model import Change, CodeChange, Diff, PinChange, Weakening

CLASSES: Final = {
    "identity": "Another question: the numbers of these rows mean something else",
    "implementation": "Another answer: what is timed",
    "contract": "Another promise: what must hold, and for which cases",
    "evidence": "Another measurement",
    "cosmetic": "Nothing for the numbers",
}
"""Heads of the classes, in the order in which they matter."""

VERDICTS: Final = ("slower", "environment", "incomparable", "removed", "faster", "added", "same")
"""In the order in which a reviewer wants to see them."""

CAUSES: Final[dict[MeasureCause, str]] = {
    "new": "new here",
    "problem": "another problem than at BASE",
    "protocol": "measured otherwise than at BASE",
    "code": "other code than at BASE, and not pinned since",
    "pin": "its pin is gone, broken, or of neither revision",
}
"""Why a row must be measured, in words."""

MOST_CASES: Final = 4


def verdict(diff: Diff) -> str:
    """One line: what was weakened, what moved, what cannot stand, and how much is as it was."""
    parts = []
    bare = sum(not one.reason for one in diff.weakenings)
    explained = len(diff.weakenings) - bare
    if diff.invalid:
        parts.append(f"{text.count(len(diff.invalid), 'workload')} cannot be read")
    if bare:
        parts.append(f"{text.count(bare, 'weakening')} without a reason")
    if explained:
        parts.append(f"{text.count(explained, 'weakening')} with a reason")
    kinds = Counter(one.kind for one in diff.problems)
    parts += [f"{kinds[kind]} {kind}" for kind in ("broken", "stale", "missing") if kinds[kind]]
    moved = Counter(one.verdict for one in diff.pins)
    parts += [f"{moved[word]} {word}" for word in VERDICTS if moved[word] and word != "same"]
    if diff.measure:
        parts.append(f"{text.count(len(diff.measure), 'row')} to measure")
    told = [one for one in diff.changes if one.kind != "cosmetic"]
    if not parts and told:
        parts.append(text.count(len(told), "change"))
    parts.append(f"{diff.unchanged} of {text.count(diff.rows, 'row')} unchanged")
    return "; ".join(parts)


def selected(diff: Diff) -> str:
    """How much must be measured: `41 of 44 kernels unchanged; measure 3 rows, about 40 s`."""
    moved = {
        (one.row.workload, one.row.implementation)
        for one in diff.measure
        if one.row.role == "kernel"
    }
    kept = f"{diff.kernels - len(moved)} of {text.count(diff.kernels, 'kernel')} unchanged"
    return f"{kept}; {f'measure {_amount(diff)}' if diff.measure else 'nothing to measure'}"


def _amount(diff: Diff) -> str:
    """`3 rows, about 40 s`; without the seconds where those of any are not known."""
    rows = text.count(len(diff.measure), "row")
    return rows if diff.seconds is None else f"{rows}, about {_duration(diff.seconds)}"


def _duration(seconds: float) -> str:
    """A foretold time, no more exact than it is: `4 s`, `40 s`, `6 min`."""
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds, -1):.0f} s" if seconds < 95 else f"{max(2, round(seconds / 60))} min"


def to_do(diff: Diff, code: int) -> list[str]:
    """What comes next, most urgent first; says so where nothing does."""
    steps = []
    if diff.invalid:
        steps.append("mend the files that cannot be read: `tirbench check`")
    if any(not one.reason for one in diff.weakenings):
        steps.append(
            "undo each weakening, or say why it is right: a `reason` beside the rule, "
            "`tirbench pin --accept ROW --reason …`, or a line `Tirbench-Reason: WORKLOAD/CASE: …` "
            "in a commit message"
        )
    if diff.measure:
        where = "".join(f" on {name}" for name in _hardware(diff))
        steps.append(f"measure {_amount(diff)}{where}: `{_command(diff)} --pin`")
    elif any(one.kind != "broken" for one in diff.problems):
        steps.append("measure on the pinned hardware: `tirbench exec FILES --pin`")
    elif diff.problems:
        steps.append("pin the broken rows again: `tirbench exec FILES --pin`")
    slower = any(one.verdict == "slower" for one in diff.pins)
    if slower and not steps:
        steps.append("judge the reasons of the slower rows")
    if not steps:
        steps.append("nothing" if code == 0 else "see below")
    return steps


def _hardware(diff: Diff) -> list[str]:
    """The hardware that is to be measured on, where it is one class for all rows."""
    names = {name for one in diff.measure for name in one.hardware}
    return sorted(names) if len(names) == 1 else []


def _command(diff: Diff) -> str:
    """What measures exactly the rows that must be; of two folders, the files that hold them."""
    name, of_git, _ = diff.base.partition(" (")
    if of_git:
        return f"tirbench exec --changed {name}"
    return f"tirbench exec {' '.join(diff.measure_files)}"


# --- Lines ----------------------------------------------------------------------------------------


def weakening_line(one: Weakening) -> str:
    """One weakening with the cases it touches and its reason."""
    cases = f" ({_cases(one.cases)})" if one.cases and not one.subject.startswith("pin ") else ""
    reason = f" — reason: {one.reason}" if one.reason else ""
    return f"{one.workload}: {one.subject}: {one.text}{cases}{reason}"


def _change(one: Change) -> str:
    where = f"{one.subject}: {one.what}" if one.what else one.subject
    if one.old is None and one.new in {"there", "added", "edited"}:
        moved = {"there": "added"}.get(one.new or "", one.new)
    elif one.new is None and one.old == "there":
        moved = "removed"
    else:
        moved = f"{_shown(one.old)} → {_shown(one.new)}"
    cases = f" ({_cases(one.cases)})" if one.cases else ""
    return f"{where} {moved}{cases}"


def _shown(value: str | None) -> str:
    if value is None:
        return "none"
    return value if len(value) <= 100 else f"{value[:97]}…"


def _cases(cases: Sequence[str]) -> str:
    more = f" and {len(cases) - MOST_CASES} more" if len(cases) > MOST_CASES else ""
    return ", ".join(cases[:MOST_CASES]) + more


def _code(one: CodeChange) -> str:
    return f"{one.row.key} on {one.arch}: {_moved(one.changed)}"


def _moved(changed: Sequence[tuple[str, str, str]]) -> str:
    """`registers 96 → 128, spills 0 → 24 bytes`."""
    return ", ".join(f"{name} {old} → {new}" for name, old, new in changed)


def _joined(changes: Sequence[Change]) -> list[str]:
    """The lines of changes; the cases of a workload that were added are one line."""
    added = [one for one in changes if one.subject.startswith("case ") and one.new == "added"]
    lines = [_change(one) for one in changes if one not in added]
    if added:
        names = [one.subject.removeprefix("case ") for one in added]
        lines.append(f"{text.count(len(added), 'case')} added: {_cases(names)}")
    return lines


def _by_workload(changes: Sequence[Change]) -> Iterator[tuple[str, list[str]]]:
    ordered = sorted(changes, key=lambda one: one.workload)
    for name, group in groupby(ordered, key=lambda one: one.workload):
        yield name, _joined(list(group))


def pins(diff: Diff) -> list[PinChange]:
    """Rows whose number is another one, most notable first; the others are counted."""

    def weight(one: PinChange) -> tuple[int, float, str]:
        band = one.old.band if one.old else 1.0
        factor = abs((one.ratio or 1.0) - 1) / band
        return VERDICTS.index(one.verdict), -factor, f"{one.workload}/{one.case}"

    return sorted((one for one in diff.pins if _is_told(one)), key=weight)


def _is_told(one: PinChange) -> bool:
    if one.old is None or one.new is None:
        return one.old is not None
    return one.verdict != "same" or one.old.midmean_us != one.new.midmean_us


def _untold(diff: Diff) -> str:
    """The count of rows that are not shown, with why."""
    added = sum(one.verdict == "added" for one in diff.pins)
    same = sum(not _is_told(one) for one in diff.pins) - added
    parts = [f"{text.count(added, 'row')} pinned for the first time"] if added else []
    if same:
        their = "it" if same == 1 else "they"
        parts.append(f"{text.count(same, 'row')} with the number {their} had and other evidence")
    return "; ".join(parts)


HEADS: Final = (
    "row",
    "hardware",
    "old µs",
    "new µs",
    "new/old",
    "band",
    "verdict",
    "code",
    "besides",
)


def cells(one: PinChange) -> tuple[str, ...]:
    """A row of the table of baselines, by `HEADS`."""
    old, new = one.old, one.new
    ratio = "" if one.ratio is None else text.significant(one.ratio)
    code = ""
    if old is not None and new is not None:
        code = "same" if old.code == new.code else "other"
    return (
        f"{one.workload}/{one.case}/{one.implementation}",
        one.hardware,
        "" if old is None else text.significant(old.midmean_us),
        "" if new is None else text.significant(new.midmean_us),
        ratio,
        "" if old is None else f"±{100 * old.band:.1f} %",
        one.verdict,
        code,
        "; ".join(note for note in one.notes if note != "other code"),
    )


def _code_lines(diff: Diff) -> list[str]:
    """What the compilers say otherwise: here, and where the rows were measured."""
    here = [_code(one) for one in diff.code]
    named = {one.row.key for one in diff.code}
    pinned = [
        f"{name} on {one.hardware}, as pinned: {_moved(one.resources)}"
        for one in diff.pins
        if one.resources
        and (name := f"{one.workload}/{one.case}/{one.implementation}") not in named
    ]
    return [*here, *pinned]


# --- Sections -------------------------------------------------------------------------------------


def sections(diff: Diff) -> Iterator[tuple[str, list[str]]]:
    """Titles and their lines, the loudest first; without those that have none."""
    if diff.invalid:
        yield "Cannot be read", list(diff.invalid)
    bare = [one for one in diff.weakenings if not one.reason]
    if bare:
        yield "Weakened without a reason", [f"{one.place}  {weakening_line(one)}" for one in bare]
    explained = [one for one in diff.weakenings if one.reason]
    if explained:
        yield "Weakened with a reason", [f"{one.place}  {weakening_line(one)}" for one in explained]
    if diff.problems:
        lines = [f"{one.kind}: {one.subject}: {one.text}" for one in diff.problems]
        yield "Cannot stand", lines
    if diff.notices:
        yield "Notice", list(diff.notices)
    rows = [cells(one) for one in pins(diff)]
    if rows:
        yield "Baselines", list(_aligned([HEADS, *rows]))
    if _untold(diff):
        yield "Baselines besides", [_untold(diff)]
    if code := _code_lines(diff):
        yield "Machine code", code
    for kind, head in CLASSES.items():
        changes = [one for one in diff.changes if one.kind == kind]
        if changes:
            yield (
                head,
                [f"{name}: {line}" for name, lines in _by_workload(changes) for line in lines],
            )
    if diff.measure:
        names = [f"{one.key}: {CAUSES[one.cause]}" for one in diff.measure]
        yield "To measure", names


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    right = {"old µs", "new µs", "new/old", "band"}
    for row in rows:
        cells = [
            f"{cell:>{width}}" if head in right else f"{cell:<{width}}"
            for head, cell, width in zip(HEADS, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
