"""What `tirbench doctor` found, for a person and for programs."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Final

from tirbench import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.model import Finding

MARKS: Final = {"yes": "yes", "limited": "limited", "no": "NO"}
FORMAT: Final = 1


def findings_text(findings: Sequence[Finding], width: int = 100) -> str:
    """One line a finding, and below it what to do, where there is something."""
    mark = max(len(word) for word in MARKS.values())
    name = max((len(finding.name) for finding in findings), default=0)
    indent = " " * (mark + name + 4)
    lines = []
    for finding in findings:
        head = f"{MARKS[finding.status]:<{mark}}  {finding.name:<{name}}  "
        detail = finding.detail + (" (optional)" if finding.optional else "")
        lines.append(textwrap.fill(detail, width, initial_indent=head, subsequent_indent=indent))
        if finding.remedy:
            lines.append(
                textwrap.fill(
                    finding.remedy,
                    width,
                    initial_indent=f"{indent}→ ",
                    subsequent_indent=f"{indent}  ",
                    break_long_words=False,
                )
            )
    return "\n".join(lines) + "\n"


def findings_json(findings: Sequence[Finding]) -> str:
    """The same for programs."""
    data = {"schema": FORMAT, "findings": [codec.dump(finding) for finding in findings]}
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
