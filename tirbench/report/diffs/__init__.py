"""A comparison of two revisions for a reviewer: the verdict on top, then what to do, then the weakening.

Every format is cut by whole lines at most, and says what it left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tirbench import codec
from tirbench.report import text
from tirbench.report.diffs.annotations import annotate
from tirbench.report.diffs.markdown import MARKER, markdown
from tirbench.report.diffs.sections import CLASSES, sections, selected, to_do, verdict
from tirbench.report.markdown import COMMENT_BYTES, SUMMARY_BYTES

if TYPE_CHECKING:
    from tirbench.model import Diff

FORMAT: Final = 1
"""Of the JSON."""


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
            return markdown(diff, code, COMMENT_BYTES)
        case "summary":
            return markdown(diff, code, SUMMARY_BYTES)
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


def needed(diff: Diff, form: str) -> str:
    """The rows that must be measured: a key a line, or JSON with the cause and the seconds of each."""
    if form != "json":
        return "".join(f"{text.plain(one.key)}\n" for one in diff.measure)
    rows = [{"key": one.key, **_without_row(codec.dump(one))} for one in diff.measure]
    data = {
        "schema": FORMAT,
        "summary": selected(diff),
        "files": list(diff.measure_files),
        "rows": rows,
    }
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def _without_row(data: codec.Json) -> dict[str, codec.Json]:
    assert isinstance(data, dict)  # noqa: S101 - a dataclass is always an object
    return {name: value for name, value in data.items() if name != "row"}


def _text(diff: Diff, code: int, *, color: bool) -> str:
    def bold(line: str, style: str = "1") -> str:
        return f"\x1b[{style}m{line}\x1b[0m" if color else line

    lines = [bold(verdict(diff), "1;31" if code else "1")]
    lines += [text.plain(f"{diff.base} → {diff.head}: {selected(diff)}")]
    lines += [f"next: {step}" for step in to_do(diff, code)]
    for head, content in sections(diff):
        style = "1;31" if head.startswith(("Weakened", "Cannot")) else "1"
        lines += ["", bold(text.plain(head), style), *(text.plain(f"  {line}") for line in content)]
    return "\n".join(lines) + "\n"


__all__ = ["CLASSES", "MARKER", "annotate", "needed", "render", "selected", "verdict"]
