"""Whether the axes, extra cases, skips and the id template can name the cases of a workload."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tirbench.diagnostics import did_you_mean
from tirbench.values import Dtype

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.load.names import Names
    from tirbench.model import Workload
    from tirbench.values import Value

_FIELD: Final = re.compile(r"\{([^{}]*)\}")


def check_cases(workload: Workload, names: Names, problems: Problems) -> None:
    """Note what is wrong with the cases before any is bound."""
    _check_axes(workload, problems)
    _check_extra_cases(workload, problems)
    _check_id(workload, names, problems)
    known = [item.name for item in (*workload.kernels, *workload.references)]
    for skip in workload.skips:
        for index, name in enumerate(skip.implementations):
            if name not in known:
                problems.add(
                    "TB056",
                    (*skip.path, "implementations", index),
                    f"no kernel or reference is named '{name}'",
                    hint=did_you_mean(name, known, "there are"),
                )


def _check_axes(workload: Workload, problems: Problems) -> None:
    """Each axis binds the same names in every point, to values of one kind, each once."""
    for axis, points in workload.matrix:
        first = [name for name, _ in points[0]]
        columns: dict[str, str] = {}
        seen: set[frozenset[tuple[str, Value]]] = set()
        for index, point in enumerate(points):
            path = ("matrix", axis, index)
            bound = [name for name, _ in point]
            if sorted(bound) != sorted(first):
                missing = [name for name in first if name not in bound]
                extra = [name for name in bound if name not in first]
                what = f"lacks '{missing[0]}'" if missing else f"binds '{extra[0]}' as well"
                message = f"this point {what}; all points of an axis bind the same names"
                problems.add("TB030", path, message)
                continue
            if frozenset(point) in seen:
                problems.add("TB030", path, "this point is there already")
            seen.add(frozenset(point))
            for name, value in point:
                kind = _kind(value)
                place = (*path, name) if name != axis or len(point) > 1 else path
                if columns.setdefault(name, kind) != kind:
                    message = f"'{name}' is {columns[name]} in the first point and {kind} here"
                    hint = "write 1.0 for a whole number among fractions" * (kind != "text")
                    problems.add("TB030", place, message, hint=hint)


def _kind(value: Value) -> str:
    """What kind of value an axis holds."""
    match value:
        case bool():
            return "true or false"
        case Dtype():
            return "a dtype"
        case str():
            return "text"
        case int():
            return "a whole number"
        case float():
            return "a fraction"
        case _:
            return "a list"


def _check_extra_cases(workload: Workload, problems: Problems) -> None:
    """Each `[[case]]` binds exactly the names that the axes bind."""
    if workload.matrix:
        wanted = [name for _, points in workload.matrix for name, _ in points[0]]
    else:
        wanted = [name for name, _ in workload.cases[0]] if workload.cases else []
    for index, case in enumerate(workload.cases):
        bound = dict(case)
        for name in wanted:
            if name not in bound:
                message = f"a case binds every name of the axes; '{name}' is missing"
                problems.add("TB031", ("case", index), message, at="key")
        for name in bound:
            if name not in wanted:
                message = f"no axis binds '{name}'; a case only adds points"
                hint = did_you_mean(name, wanted, "the axes bind")
                problems.add("TB031", ("case", index, name), message, hint=hint, at="key")


def _check_id(workload: Workload, names: Names, problems: Problems) -> None:
    """The template names what a case knows, and braces stand in pairs."""
    if workload.id is None:
        return
    for match in _FIELD.finditer(workload.id):
        name, at = match[1], (match.start() + 1, max(1, len(match[1])))
        what = names.defined.get(name, ("", ()))[0]
        if not what and name != "seed":
            known = [n for n, (kind, _) in names.defined.items() if kind != "a tensor"]
            hint = did_you_mean(name, known, "the names are")
            problems.add("TB032", ("id",), f"unknown name '{name}' in the id", hint=hint, span=at)
        elif what == "a tensor":
            problems.add(
                "TB032", ("id",), f"'{name}' is a tensor, not a value of the case", span=at
            )
    rest = _FIELD.sub("", workload.id)
    if "{" in rest or "}" in rest:
        problems.add("TB032", ("id",), "a brace without its partner in the id")
