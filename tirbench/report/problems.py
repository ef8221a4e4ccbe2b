"""What is wrong with workload files, for people, for programs and for the lines of a pull request."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from tirbench.diagnostics import shown
from tirbench.report import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.diagnostics import Diagnostic


def render(problems: Sequence[Diagnostic], form: str, *, workloads: int, cases: int) -> str:
    """The problems of all files in one of the formats, and how much is right.

    Args:
        problems: of all files, sorted by place.
        form: `text`, `markdown`, `json` or `github`.
        workloads: files without a problem.
        cases: selected cases of these.
    """
    if form == "json":
        listed = [{**asdict(one), "path": list(one.path)} for one in problems]
        data = {"problems": listed, "workloads": workloads, "cases": cases}
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    right = f"{text.count(workloads, 'workload')} with {text.count(cases, 'case')} checked"
    summary = f"{text.count(len(problems), 'problem')}; {right}" if problems else right
    body = shown(problems)
    if form == "markdown":
        return f"```\n{body}\n```\n\n{summary}\n" if problems else f"{summary}\n"
    if form == "github":
        from tirbench.report import github

        return "".join(f"{line}\n" for line in github.annotate_problems(problems)) + f"{summary}\n"
    return f"{body}\n\n{summary}\n" if problems else f"{summary}\n"
