"""Whether the axes, extra cases, skips and the id template can name the cases of a workload."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tirbench.diagnostics import closest, did_you_mean, without_quotes
from tirbench.load.names import dtype_hint
from tirbench.values import Dtype

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.load.names import Names
    from tirbench.model import Axis, Workload
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
        kinds = _kinds(points)
        seen: set[frozenset[tuple[str, Value]]] = set()
        for index, point in enumerate(points):
            path = ("matrix", axis, index)
            bound = [name for name, _ in point]
            if sorted(bound) != sorted(first):
                _note_other_names(first, bound, path, problems)
                continue
            if frozenset(point) in seen:
                problems.add("TB030", path, "this point is there already")
            seen.add(frozenset(point))
            for name, value in point:
                if _kind(value) != kinds[name]:
                    place = (*path, name) if name != axis or len(point) > 1 else path
                    _note_other_kind(name, value, kinds[name], place, problems)


def _kinds(points: Axis) -> dict[str, str]:
    """What kind of value each name of an axis has in most points; of equally many, in the first.

    Among texts a dtype is no chance: the others are then misspelt.
    """
    columns: dict[str, list[str]] = {}
    for point in points:
        for name, value in point:
            columns.setdefault(name, []).append(_kind(value))
    return {
        name: "a dtype" if {*kinds} == {"a dtype", "text"} else max(kinds, key=kinds.count)
        for name, kinds in columns.items()
    }


def _note_other_names(
    first: list[str], bound: list[str], path: tuple[str | int, ...], problems: Problems
) -> None:
    """Note a point that binds other names than the first of its axis."""
    missing = [name for name in first if name not in bound]
    extra = [name for name in bound if name not in first]
    what = f"lacks '{missing[0]}'" if missing else f"binds '{extra[0]}' as well"
    hint = ""
    for name in extra if missing else ():
        close = closest(name, missing)
        if close is not None:
            what, hint = f"binds '{name}'", f"did you mean '{close}'?"
            path = (*path, name)
    message = f"this point {what}; all points of an axis bind the same names"
    problems.add("TB030", path, message, hint=hint, at="key" if hint else "value")


def _note_other_kind(
    name: str, value: Value, kind: str, path: tuple[str | int, ...], problems: Problems
) -> None:
    """Note a value that is of another kind than most of its axis."""
    message = f"'{name}' is {kind} in the other points and {_kind(value)} here"
    hint = ""
    if kind == "a dtype" and isinstance(value, str):
        message, hint = f"'{value}' is not a dtype", dtype_hint(value)
    elif isinstance(value, str) and kind in ("a whole number", "a fraction", "true or false"):
        hint = without_quotes(value)
    elif {kind, _kind(value)} == {"a whole number", "a fraction"}:
        hint = "write 1.0 for a whole number among fractions"
    problems.add("TB030", path, message, hint=hint)


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
