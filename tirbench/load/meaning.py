"""Everything about a workload that can be judged without binding a case."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.model import Workload


def check_meaning(workload: Workload, problems: Problems) -> None:
    """Note everything that is wrong with a well-formed workload."""
