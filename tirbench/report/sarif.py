"""Problems of workload files as SARIF 2.1.0, which code hosts and editors show beside the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tirbench import __version__
from tirbench.diagnostics import CODES
from tirbench.diagnostics.explanations import EXPLANATIONS, explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.diagnostics import Diagnostic

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LIMIT: Final = 5_000
"""Results of a run that GitHub keeps, the others it drops (docs, "SARIF results exceed … limits")."""


def document(problems: Sequence[Diagnostic]) -> dict[str, Any]:
    """A log with one run; the rules are the codes that occur, each with its explanation."""
    codes = sorted({one.code for one in problems})
    left = len(problems) - LIMIT
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if left > 0:
        message = {"text": f"{left} more problems; a run holds {LIMIT:,}"}
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": message}]
    driver = {"name": "tirbench", "version": __version__, "rules": [_rule(code) for code in codes]}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"ROOT": {"description": {"text": "The project's folder."}}},
                "invocations": [invocation],
                "results": [_result(one, codes.index(one.code)) for one in problems[:LIMIT]],
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    return {
        "id": code,
        "shortDescription": {"text": CODES[code]},
        "fullDescription": {"text": EXPLANATIONS[code].text},
        "help": {"text": explain(code)},
    }


def _result(problem: Diagnostic, rule: int) -> dict[str, Any]:
    """One problem; a code host shows the hint below the message."""
    text = f"{problem.message}\n{problem.hint}" if problem.hint else problem.message
    region: dict[str, Any] = {
        "startLine": problem.line,
        "startColumn": problem.column,
        "endLine": problem.line,
        "endColumn": problem.column + problem.length,
    }
    if problem.text:
        region["snippet"] = {"text": problem.text}
    return {
        "ruleId": problem.code,
        "ruleIndex": rule,
        "level": problem.severity,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(problem.file), "uriBaseId": "ROOT"},
                    "region": region,
                }
            }
        ],
    }
