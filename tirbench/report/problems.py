"""What is wrong with workload files, for people, for programs and for the lines of a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tirbench.diagnostics import shown
from tirbench.report import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.diagnostics import Diagnostic

SCHEMA: Final = 1
"""Version of the JSON form: `schema/check.schema.json` describes it."""


def render(problems: Sequence[Diagnostic], form: str, *, workloads: int, cases: int) -> str:
    """The problems of all files in one of the formats, and how much is right.

    Args:
        problems: of all files, sorted by place; warnings are of files that are right.
        form: `text`, `markdown`, `json`, `github` or `sarif`.
        workloads: files without an error.
        cases: selected cases of these.
    """
    match form:
        case "json":
            return _json(document(problems, workloads=workloads, cases=cases))
        case "sarif":
            from tirbench.report import sarif

            return _json(sarif.document(problems))
        case _:
            pass
    summary = _summary(problems, workloads, cases)
    if not problems:
        return f"{summary}\n"
    match form:
        case "markdown":
            body = shown(problems)
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", body)), 0)
            return f"{fence}\n{body}\n{fence}\n\n{summary}\n"
        case "github":
            from tirbench.report import github

            lines = github.annotate_problems(problems)
            return "".join(f"{line}\n" for line in lines) + f"{summary}\n"
        case _:
            return f"{shown(problems)}\n\n{summary}\n"


def document(problems: Sequence[Diagnostic], *, workloads: int, cases: int) -> dict[str, Any]:
    """The problems as data."""
    from dataclasses import asdict

    listed = [{**asdict(one), "path": list(one.path)} for one in problems]
    return {"schema": SCHEMA, "problems": listed, "workloads": workloads, "cases": cases}


def _json(data: dict[str, Any]) -> str:
    """An indented document, all ASCII: it is also read on terminals, and names may hold anything."""
    import json

    return json.dumps(data, indent=2) + "\n"


def _summary(problems: Sequence[Diagnostic], workloads: int, cases: int) -> str:
    right = f"{text.count(workloads, 'workload')} with {text.count(cases, 'case')} checked"
    errors = sum(one.severity == "error" for one in problems)
    parts = [text.count(errors, "problem")] if errors else []
    if errors < len(problems):
        parts.append(text.count(len(problems) - errors, "warning"))
    parts.append(right)
    return "; ".join(parts)
