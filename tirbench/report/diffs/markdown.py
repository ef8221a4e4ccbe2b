"""A comparison as Markdown: cut by whole lines to what a host takes, and the rest counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tirbench.report import text
from tirbench.report.diffs.sections import (
    HEADS,
    cells,
    pins,
    sections,
    selected,
    to_do,
    verdict,
    weakening_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tirbench.model import Diff, Weakening

MARKER: Final = "<!-- tirbench diff -->"
"""The first line: how a workflow finds the comment that it has to edit."""


def markdown(diff: Diff, code: int, limit_bytes: int) -> str:
    """The whole comparison, or as much as fits.

    Args:
        diff: what was found.
        code: the exit code it leads to.
        limit_bytes: of the result in UTF-8.
    """
    sign = "❌" if code else "✅"
    head = f"{MARKER}\n### {sign} {text.markdown(verdict(diff))}\n\n"
    head += f"{text.markdown(diff.base)} → {text.markdown(diff.head)}: "
    head += f"{text.markdown(selected(diff))}\n\n"
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
    for head, content in sections(diff):
        if head == "Baselines":
            heads = "| " + " | ".join(text.markdown(cell) for cell in HEADS) + " |"
            rules = "|" + "".join(
                " ---: |" if cell in {"old µs", "new µs", "new/old", "band"} else " --- |"
                for cell in HEADS
            )
            rows = ["| " + " | ".join(map(text.markdown, cells(one))) + " |" for one in pins(diff)]
            yield head, [heads, rules, *rows], False
            continue
        loud = head.startswith(("Weakened without", "Cannot", "Notice"))
        lines = [f"- {text.markdown(line)}" for line in content]
        if head.startswith("Weakened"):
            explained = head.startswith("Weakened with a")
            lines = [_weakened(one) for one in diff.weakenings if bool(one.reason) == explained]
        yield head, lines, not loud


def _weakened(one: Weakening) -> str:
    """What was weakened first, and where it stands behind it."""
    return f"- **{text.markdown(weakening_line(one))}** {_place(one.place)}"


def _place(place: str) -> str:
    """A file and line as code; no name can end it."""
    return f"`{text.plain(place).replace('`', '')}`" if place else ""


def _fitted(head: str, parts_: list[tuple[str, list[str], bool]], limit_bytes: int) -> str:
    """As many lines of as many sections as fit, and a line that counts the rest."""
    room = limit_bytes - len(head.encode()) - 200  # the counting line
    parts, left = [head], 0
    for title, lines, folded in parts_:
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
