"""The tables of `benchmarks/verdicts.py simulate` as Markdown."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def markdown(document: Document) -> str:
    """The whole report."""
    return ""
