"""References: built once, and whatever goes wrong with one is its own result."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tirbench.timing.plan import Closure


def print_to_stderr(line: str) -> None:
    """Write a line where people look for trouble; stdout belongs to the caller."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201  # part of the public protocol


@dataclass(slots=True, kw_only=True)
class Failures:
    """What references failed with or why they are missing; our own kernels never appear here.

    Args:
        report: told each failure in one line, `BASELINE_ERROR: name: …`.
    """

    report: Callable[[str], None] = print_to_stderr
    errors: dict[str, str] = field(default_factory=dict)
    error_types: dict[str, str] = field(default_factory=dict)
    tracebacks: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, error: Exception, stage: str) -> None:
        """Record that the reference failed in that stage: type, message and traceback."""
        kind = type(error).__name__
        self.errors[name] = str(error) or kind
        self.error_types[name] = kind
        self.tracebacks[name] = "".join(traceback.format_exception(error))
        message = " ".join(str(error).split()) or "(no message)"
        self.report(f"BASELINE_ERROR: {name}: {kind} at {stage}: {message}")


def build(builders: Mapping[str, Closure], failures: Failures) -> dict[str, Closure]:
    """Run every builder once, in order, and keep the launch closures of those that succeed.

    Raises:
        TypeError: a builder returned something that is neither a callable nor None.
    """
    launches: dict[str, Closure] = {}
    for name, builder in builders.items():
        try:
            launch = builder()
        except Exception as error:  # noqa: BLE001  # foreign code: its failure is a row, not ours
            failures.add(name, error, "build")
            continue
        if launch is None:
            failures.skipped[name] = "its builder returned None"
        elif callable(launch):
            launches[name] = launch
        else:
            raise TypeError(
                f"the builder of reference {name!r} must return a no-argument callable or None, "
                f"got {type(launch).__name__}"
            )
    return launches
