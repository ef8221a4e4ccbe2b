"""A run as Markdown, for a comment or a job summary: cut by whole tables, never in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tirbench.report import text
from tirbench.report.table import Line, Table, Trouble, headline, summary, tables, troubles

if TYPE_CHECKING:
    from tirbench.model import Run

COMMENT_BYTES: Final = 65_536
"""What GitHub takes as a comment."""

SUMMARY_BYTES: Final = 1_048_576
"""What GitHub takes as a job summary; above it the whole upload is dropped."""

_DETAIL_LINES: Final = 30


def render(run: Run, *, notes: tuple[str, ...] = (), limit_bytes: int = SUMMARY_BYTES) -> str:
    """The tables of a run as Markdown, the summary first.

    Args:
        run: what was measured.
        notes: what is missing from the run.
        limit_bytes: of the result in UTF-8; tables that do not fit are counted instead.
    """
    head = [f"**{text.markdown(summary(run.outcomes))}**", "", text.markdown(headline(run)), ""]
    for note in notes:
        head += [f"> {text.markdown(note)}", ""]
    parts = [_trouble(trouble) for trouble in troubles(run.outcomes)]
    parts += [_table(table) for table in tables(run.outcomes)]
    foot = "`/ name` is the time of the kernel over the time of `name`; below 1 is faster.\n"
    return _fitted("\n".join(head) + "\n", parts, foot, limit_bytes)


def _fitted(head: str, parts: list[str], foot: str, limit_bytes: int) -> str:
    """As many parts as fit, and a line that counts the rest."""
    room = limit_bytes - len((head + foot).encode()) - 100  # the counting line
    kept: list[str] = []
    for part in parts:
        room -= len(part.encode()) + 1
        if room < 0:
            break
        kept.append(part)
    left = len(parts) - len(kept)
    more = f"\n*{text.count(left, 'section')} more did not fit here.*\n" if left else ""
    return head + "\n".join(kept) + more + "\n" + foot


def _table(table: Table) -> str:
    heads = [text.markdown(column.head) for column in table.columns]
    rules = ["---:" if column.right else "---" for column in table.columns]
    lines = [f"### {text.markdown(table.workload)}", "", _row(heads), _row(rules)]
    lines += [_row([_cell(line, column.key) for column in table.columns]) for line in table.lines]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(line: Line, key: str) -> str:
    content = text.markdown(line.cell(key))
    strong = key == "verified" and line.kind in {"wrong", "failed"}
    return f"**{content}**" if strong and content else content


def _trouble(trouble: Trouble) -> str:
    cases = ", ".join(trouble.cases)
    title = f"{trouble.word}: {trouble.implementation} in {trouble.stage} ({cases})"
    lines = [
        "<details>",
        f"<summary>{_html(title)}</summary>",
        "",
        text.markdown(trouble.reason),
        "",
    ]
    if trouble.place:
        lines += [f"asked for at {text.markdown(trouble.place)}", ""]
    if trouble.detail.strip():
        tail = text.plain(trouble.detail.rstrip(), lines=True).split("\n")[-_DETAIL_LINES:]
        # Indented, not fenced: nothing in a log can end an indented block early.
        lines += [*(f"    {line}" for line in tail), ""]
    return "\n".join([*lines, "</details>"]) + "\n"


def _html(title: str) -> str:
    import html

    return html.escape(text.plain(title)).replace("@", "&#64;")
