"""A comparison of two revisions for a reviewer: the verdict on top, then what to do, then the weakening.

Every format is cut by whole sections at most, and says what it left out.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tirbench import codec
from tirbench.report import text
from tirbench.report.github import LIMIT, _message, _property
from tirbench.report.markdown import COMMENT_BYTES, SUMMARY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tirbench.model import Change, CodeChange, Diff, PinChange, Weakening

FORMAT: Final = 1
"""Of the JSON."""

MARKER: Final = "<!-- tirbench diff -->"
"""The first line of the Markdown: how a workflow finds the comment that it has to edit."""

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

MOST_CASES: Final = 4


def render(diff: Diff, form: str, *, code: int, color: bool = False) -> str:
    """A comparison in one of the formats, with its last line ended.

    Args:
        diff: what was found.
        form: `text`, `markdown` (fits a comment), `summary` (Markdown that fits a job summary), `json`
            or `github` (annotations, then the text).
        code: the exit code it leads to.
        color: whether the text has colours.
    """
    match form:
        case "markdown":
            return _markdown(diff, code, COMMENT_BYTES)
        case "summary":
            return _markdown(diff, code, SUMMARY_BYTES)
        case "json":
            data = {
                "schema": FORMAT,
                "exit": code,
                "verdict": verdict(diff),
                "diff": codec.dump(diff),
            }
            return json.dumps(data, ensure_ascii=False, indent=1) + "\n"
        case "github":
            return "".join(f"{line}\n" for line in annotate(diff)) + _text(diff, code, color=False)
        case _:
            return _text(diff, code, color=color)


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
    if diff.measure or any(one.kind != "broken" for one in diff.problems):
        files = " ".join(diff.measure_files) or "FILES"
        steps.append(f"measure on the pinned hardware: `tirbench exec {files} --pin`")
    elif diff.problems:
        steps.append("pin the broken rows again: `tirbench exec FILES --pin`")
    slower = any(one.verdict == "slower" for one in diff.pins)
    if slower and not steps:
        steps.append("judge the reasons of the slower rows")
    if not steps:
        steps.append("nothing" if code == 0 else "see below")
    return steps


# --- Lines that every format shares ---------------------------------------------------------------


def _weakening(one: Weakening) -> str:
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
    numbers = ", ".join(f"{name} {old} → {new}" for name, old, new in one.changed)
    return f"{one.row.key} on {one.arch}: {numbers}"


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


def _pins(diff: Diff) -> list[PinChange]:
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
        parts.append(f"{text.count(same, 'row')} with the number it had and other evidence")
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


def _cells(one: PinChange) -> tuple[str, ...]:
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
    return [_code(one) for one in diff.code]


# --- Text -----------------------------------------------------------------------------------------


def _text(diff: Diff, code: int, *, color: bool) -> str:
    def bold(line: str, style: str = "1") -> str:
        return f"\x1b[{style}m{line}\x1b[0m" if color else line

    lines = [bold(verdict(diff), "1;31" if code else "1"), f"{diff.base} → {diff.head}"]
    lines += [f"next: {step}" for step in to_do(diff, code)]
    for head, content in _sections(diff):
        style = "1;31" if head.startswith(("Weakened", "Cannot")) else "1"
        lines += ["", bold(text.plain(head), style), *(text.plain(f"  {line}") for line in content)]
    return "\n".join(lines) + "\n"


def _sections(diff: Diff) -> Iterator[tuple[str, list[str]]]:
    if diff.invalid:
        yield "Cannot be read", list(diff.invalid)
    bare = [one for one in diff.weakenings if not one.reason]
    if bare:
        yield "Weakened without a reason", [f"{one.place}  {_weakening(one)}" for one in bare]
    explained = [one for one in diff.weakenings if one.reason]
    if explained:
        yield "Weakened with a reason", [f"{one.place}  {_weakening(one)}" for one in explained]
    if diff.problems:
        lines = [f"{one.kind}: {one.subject}: {one.text}" for one in diff.problems]
        yield "Cannot stand", lines
    if diff.notices:
        yield "Notice", list(diff.notices)
    rows = [_cells(one) for one in _pins(diff)]
    if rows:
        yield "Baselines", list(_aligned([HEADS, *rows]))
    if _untold(diff):
        yield "Baselines besides", [_untold(diff)]
    if diff.code:
        yield "Machine code", _code_lines(diff)
    for kind, head in CLASSES.items():
        changes = [one for one in diff.changes if one.kind == kind]
        if changes:
            yield (
                head,
                [f"{name}: {line}" for name, lines in _by_workload(changes) for line in lines],
            )
    if diff.measure:
        names = [row.key for row in diff.measure]
        yield f"To measure ({len(names)})", names


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    right = {"old µs", "new µs", "new/old", "band"}
    for row in rows:
        cells = [
            f"{cell:>{width}}" if head in right else f"{cell:<{width}}"
            for head, cell, width in zip(HEADS, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()


# --- Markdown -------------------------------------------------------------------------------------


def _markdown(diff: Diff, code: int, limit_bytes: int) -> str:
    sign = "❌" if code else "✅"
    head = f"{MARKER}\n### {sign} {text.markdown(verdict(diff))}\n\n"
    head += f"{text.markdown(diff.base)} → {text.markdown(diff.head)}\n\n"
    head += "".join(f"- **next:** {_with_code(step)}\n" for step in to_do(diff, code)) + "\n"
    return _fitted(head, list(_markdown_sections(diff)), limit_bytes)


def _with_code(step: str) -> str:
    """A step whose commands stay commands."""
    parts = step.split("`")
    return "".join(
        f"`{text.plain(part)}`" if index % 2 else text.markdown(part)
        for index, part in enumerate(parts)
    )


def _markdown_sections(diff: Diff) -> Iterator[tuple[str, list[str], bool]]:
    """Title, lines and whether they are folded away."""
    for head, content in _sections(diff):
        if head == "Baselines":
            heads = "| " + " | ".join(text.markdown(cell) for cell in HEADS) + " |"
            rules = "|" + "".join(
                " ---: |" if cell in {"old µs", "new µs", "new/old", "band"} else " --- |"
                for cell in HEADS
            )
            rows = [
                "| " + " | ".join(map(text.markdown, _cells(one))) + " |" for one in _pins(diff)
            ]
            yield head, [heads, rules, *rows], False
            continue
        loud = head.startswith(("Weakened without", "Cannot", "Notice"))
        yield head, [f"- {text.markdown(line)}" for line in content], not loud


def _fitted(head: str, sections: list[tuple[str, list[str], bool]], limit_bytes: int) -> str:
    """As many lines of as many sections as fit, and a line that counts the rest."""
    room = limit_bytes - len(head.encode()) - 200  # the counting line
    parts, left = [head], 0
    for title, lines, folded in sections:
        open_, close = _frame(title, len(lines), folded=folded)
        room -= len((open_ + close).encode())
        kept = 0
        for line in lines:
            room -= len(line.encode()) + 1
            if room < 0:
                break
            kept += 1
        heads = 2 if title == "Baselines" else 0  # lines of a table that are no row
        if kept > heads:
            parts.append(open_ + "".join(f"{line}\n" for line in lines[:kept]) + close)
            left += len(lines) - kept
        else:
            left += len(lines) - heads
    if left:
        parts.append(f"\n*{text.count(left, 'more line')} did not fit here: `tirbench diff`.*\n")
    return "".join(parts)


def _frame(title: str, count: int, *, folded: bool) -> tuple[str, str]:
    if folded:
        return (
            f"<details><summary>{text.markdown(title)} ({count})</summary>\n\n",
            "\n</details>\n\n",
        )
    return f"#### {text.markdown(title)}\n\n", "\n"


# --- Annotations ----------------------------------------------------------------------------------


def annotate(diff: Diff) -> tuple[str, ...]:
    """Errors at the lines that must change, warnings at explained weakening, within GitHub's limits."""
    errors = [_annotation("error", one.place, "weakening", _weakening(one)) for one in _bare(diff)]
    errors += [
        _annotation("error", one.path, one.kind, f"{one.subject}: {one.text}")
        for one in diff.problems
    ]
    errors += [
        _annotation("error", line.partition(": ")[0], "unreadable", line) for line in diff.invalid
    ]
    warnings = [
        _annotation("warning", one.place, "weakening", _weakening(one))
        for one in diff.weakenings
        if one.reason
    ]
    warnings += [f"::warning title=notice::{_message(line)}" for line in diff.notices]
    return (*_limited(errors, "error"), *_limited(warnings, "warning"))


def _bare(diff: Diff) -> list[Weakening]:
    return [one for one in diff.weakenings if not one.reason]


def _annotation(command: str, place: str, title: str, content: str) -> str:
    file, _, line = place.rpartition(":")
    at = [f"file={_property(file)}", f"line={line}"] if line.isdecimal() else []
    if not at and place:
        at = [f"file={_property(place)}"]
    return f"::{command} {','.join([*at, f'title={_property(title)}'])}::{_message(content)}"


def _limited(lines: list[str], command: str) -> list[str]:
    if len(lines) <= LIMIT:
        return lines
    rest = len(lines) - LIMIT + 1
    return [*lines[: LIMIT - 1], f"::{command}::{text.count(rest, 'more finding')} in the summary"]
