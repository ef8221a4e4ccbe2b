"""Everything about a workload that can be judged without binding a case."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal

from tirbench.load.cases import check_cases
from tirbench.load.checks import check_checks
from tirbench.load.kinds import KINDS
from tirbench.load.names import check_expressions, collect_names, names_in
from tirbench.load.targets import check_targets
from tirbench.load.tensors import check_tensors

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.model import Workload

_STEM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def check_meaning(workload: Workload, document: dict[str, Any], problems: Problems) -> None:
    """Note everything that is wrong with a well-formed workload.

    Args:
        workload: as built from the document.
        document: what the file says, for what a default hides: which keys a tensor states itself.
        problems: where they are noted.
    """
    if not _STEM.fullmatch(workload.name):
        message = f"'{workload.name}' cannot name a workload"
        hint = "the file's name is the workload's: letters, digits, underscores, dots and dashes"
        problems.add("TB006", (), message, hint=hint)
    names = collect_names(workload, problems)
    check_cases(workload, names, problems)
    grid_names = check_targets(workload, names, problems)
    check_expressions(workload, names, grid_names, problems)
    written = {name: frozenset(table) for name, table in document["tensors"].items()}
    check_tensors(workload, written, problems)
    check_checks(workload, problems)
    _check_derive(workload, problems)
    _check_timer(workload, problems)
    _check_deadlines(workload, problems)


def _check_derive(workload: Workload, problems: Problems) -> None:
    """No derived name is defined through itself."""
    derive = dict(workload.derive)
    for start in derive:
        chain = [start]
        seen: set[str] = set()
        while chain:
            reads = sorted(names_in(derive[chain[-1]]) & derive.keys())
            if start in reads:
                if start == min(chain):
                    message = (
                        f"derived names that define each other: {' -> '.join([*chain, start])}"
                    )
                    problems.add("TB025", ("derive", start), message, at="key")
                break
            onward = [name for name in reads if name not in seen]
            if onward:
                seen.add(onward[0])
                chain.append(onward[0])
            else:
                chain.pop()


def _check_timer(workload: Workload, problems: Problems) -> None:
    """The timer can time what is launched; budgets are finite (TOML has `inf` and `nan`)."""
    name = workload.timer.name
    if name is not None:
        device = _device(workload)
        wanted = "cpu" if name == "wall" else "cuda"
        if device not in (None, wanted):
            whats = {"cpu": "the CPU", "cuda": "a GPU"}
            message = f"'{name}' times work of {whats[wanted]}, and this runs on {whats[device]}"
            hint = "leave it out: a timer of the device is chosen"
            problems.add("TB054", ("timer", "name"), message, hint=hint)
        if workload.timer.cudagraph_rep is not None and name != "cudagraph_proton":
            message = f"'{name}' replays no graph, so nothing reads 'cudagraph_rep'"
            hint = 'name = "cudagraph_proton", or repeat'
            problems.add("TB054", ("timer", "cudagraph_rep"), message, hint=hint, at="key")
    for key in ("warmup", "repeat", "cudagraph_rep", "cooldown_s"):
        value = getattr(workload.timer, key)
        if value is not None and not 0 <= value < float("inf"):
            problems.add("TB014", ("timer", key), f"must be finite, got {value}")


def _device(workload: Workload) -> Literal["cuda", "cpu"] | None:
    """The one device that every kernel requires, by itself or by its kind."""
    if workload.requires.device is not None:
        return workload.requires.device
    found = set()
    for kernel in workload.kernels:
        by_kind = {KINDS[step.kind].device for step in kernel.steps} - {None}
        found.add(kernel.requires.device or next(iter(by_kind), None))
    return found.pop() if len(found) == 1 else None


def _check_deadlines(workload: Workload, problems: Problems) -> None:
    """Deadlines are finite: what nobody ends is not left alone overnight."""
    for stage in fields(workload.deadlines):
        seconds = getattr(workload.deadlines, stage.name)
        if seconds is not None and not 0 < seconds < float("inf"):
            problems.add("TB014", ("deadlines", stage.name), f"must be finite, got {seconds}")
