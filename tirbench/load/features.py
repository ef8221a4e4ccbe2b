"""Which file uses which feature of the language: keys, words, and the functions and names of expressions.

`python -m tirbench.load.features > docs/features.md`, in the repository, writes the committed page; a test
holds it current and refuses a key that no file uses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from tirbench.expression import (
    CONSTANT_NAMES,
    DEVICE_NAMES,
    FUNCTIONS,
    Expression,
    ExpressionError,
)
from tirbench.load.read import parse, read_text
from tirbench.load.reference import LAYOUT_FUNCTIONS, SECTIONS, section
from tirbench.load.schema import workload_schema
from tirbench.values import DTYPES

Feature: TypeAlias = "tuple[str, str]"
"""A group (`[tensors.T]`) and what is used of it (`view`, `role = "inout"`)."""

EXPRESSIONS: Final = "Expressions"

_CHOICE: Final = "a if b else c"
_CONTENTS: Final = "contents of a tensor"
_C_SCALAR: Final = "int32"
"""Stands for all C scalars."""
_AXES: Final = {object: "a value", list: "a list", dict: "a row of several names"}
"""Of what form the points of an axis are, by their type."""
_LAUNCHES: Final = "Launches: `[kernels.K]`, `[references.R]`, `steps`"
_GROUPS: Final = {
    "`[kernels.K]`": _LAUNCHES,
    "`[references.R]`": _LAUNCHES,
    "`steps` of a kernel or reference": _LAUNCHES,
}
"""Tables of nearly the same keys count as one: what a step can do, a kernel can."""


@dataclass(frozen=True, slots=True)
class Used:
    """One file: how the table calls it, what it uses, and whether it is a shipped workload."""

    name: str
    features: frozenset[Feature]
    shipped: bool


def known() -> tuple[Feature, ...]:
    """Every feature of the language, group by group: each key, then its words but for the default."""
    schema = workload_schema()
    found: dict[str, dict[str, None]] = {}
    for heading, path in SECTIONS.items():
        group = found.setdefault(_GROUPS.get(heading, heading), {})
        for key, part in section(path, schema)["properties"].items():
            group[key] = None
            words = [word for word in part.get("enum", ()) if word != part.get("default")]
            group.update(dict.fromkeys(_word(key, word) for word in words))
    found[_LAUNCHES].update(dict.fromkeys(("args: a list", "args: a table")))
    found["The file"].update(dict.fromkeys(f"axis: {form}" for form in _AXES.values()))
    found[EXPRESSIONS] = dict.fromkeys(
        (
            *(f"{name}()" for name in (*FUNCTIONS, _C_SCALAR)),
            *sorted(CONSTANT_NAMES),
            *("seed", *sorted(DEVICE_NAMES)),
            *(_CHOICE, _CONTENTS),
        )
    )
    return tuple((group, feature) for group, features in found.items() for feature in features)


def keys() -> frozenset[Feature]:
    """The features that are keys of the schema, without their words."""
    schema = workload_schema()
    return frozenset(
        (_GROUPS.get(heading, heading), key)
        for heading, path in SECTIONS.items()
        for key in section(path, schema)["properties"]
    )


def used(document: Mapping[str, Any]) -> frozenset[Feature]:
    """What a valid document uses."""
    schema = workload_schema()
    tensors = frozenset(document.get("tensors", {}))
    return frozenset(_walk(document, schema, _headings(schema), tensors))


def features(files: Sequence[Used]) -> str:
    """The page, in Markdown: each feature with the shipped workloads that use it, or else other files."""
    lines = [
        "# Which workload uses what",
        "",
        "Written by `python -m tirbench.load.features` from the files of `workloads/`. Where none of them",
        "uses a feature, the programs of `tests/golden/` whose workloads do are named in brackets; those lie",
        "in `tests/render/` and `tests/load/examples/`. What a feature means is in",
        "[language.md](language.md).",
    ]
    group = ""
    for feature in known():
        if feature[0] != group:
            group = feature[0]
            lines += ["", f"## {group}", "", "| feature | used by |", "|---|---|"]
        lines.append(f"| `{feature[1]}` | {', '.join(_users(feature, files))} |")
    return "\n".join(lines) + "\n"


def _users(feature: Feature, files: Sequence[Used]) -> list[str]:
    """Up to six files that use a feature; those that are no shipped workload only where none is."""
    if all(feature in one.features for one in files if one.shipped):
        return ["all"]
    for shipped in (True, False):
        names = [
            one.name if shipped else f"({one.name})"
            for one in files
            if one.shipped is shipped and feature in one.features
        ]
        if names:
            more = len(names) - 6
            return [*names[:6], *([f"{more} more"] if more > 0 else [])]
    return ["—"]


def read(root: Path) -> tuple[Used, ...]:
    """The files of the repository at `root`, those of `workloads/` first."""
    from tirbench.diagnostics import Problems

    found = []
    for folder, label in (
        ("workloads", "{}"),
        ("tests/render", "tests/golden/{}.py"),
        ("tests/load/examples", "tests/golden/examples/{}.py"),
    ):
        for path in sorted((root / folder).glob("*.toml")):
            problems = Problems(path.name)
            document = parse(read_text(path, problems) or "", problems)
            name = label.format(path.stem)
            found.append(Used(name, used(document or {}), shipped=folder == "workloads"))
    return tuple(found)


def _word(key: str, word: str) -> str:
    return f'{key} = "{word}"'


def _headings(schema: Mapping[str, Any]) -> Mapping[int, str]:
    """The group of each table, by the identity of the part of the schema that describes it."""
    return {
        id(section(path, schema)): _GROUPS.get(heading, heading)
        for heading, path in SECTIONS.items()
    }


def _walk(
    value: Any, part: Mapping[str, Any], headings: Mapping[int, str], tensors: frozenset[str]
) -> Iterator[Feature]:
    """The features of a value that a part of the schema describes."""
    definition = str(part.get("$ref", "")).rpartition("/")[2]
    if definition in ("expr", "argument"):
        yield from _in_expressions(value, tensors)
        return
    if definition:
        part = workload_schema()["$defs"][definition]
    if definition == "init":
        part, value = part["else"], value if isinstance(value, dict) else {"kind": value}
    if isinstance(value, dict):
        heading = headings.get(id(part), "")
        if heading == _LAUNCHES and "steps" not in value and "kind" not in value:
            yield heading, _word("kind", "call")
        for key, item in value.items():
            named = part.get("properties", {}).get(key)
            if named is not None and heading:
                yield from _of_key(heading, key, item)
            if key == "assert" and heading == "The file":
                yield from _in_expressions(item, tensors)
            inner = named or part.get("additionalProperties")
            if isinstance(inner, dict):
                yield from _walk(item, inner, headings, tensors)
    elif isinstance(value, list) and isinstance(part.get("items"), dict):
        for item in value:
            yield from _walk(item, part["items"], headings, tensors)


def _of_key(heading: str, key: str, value: Any) -> Iterator[Feature]:
    """A key of a table, its word, and the form of its value where that matters."""
    yield heading, key
    if isinstance(value, str):
        yield heading, _word(key, value)
    if key == "args" and heading == _LAUNCHES:
        yield heading, f"args: a {'table' if isinstance(value, dict) else 'list'}"
    if key == "matrix":
        yield from _of_axes(value)


def _of_axes(matrix: Mapping[str, Sequence[Any]]) -> Iterator[Feature]:
    """Of what form the points of axes are."""
    for points in matrix.values():
        yield "The file", f"axis: {_AXES.get(type(points[0]), _AXES[object])}"


def _in_expressions(value: Any, tensors: frozenset[str]) -> Iterator[Feature]:
    """The functions and names of an expression, or of several."""
    import ast

    if isinstance(value, list):
        for item in value:
            yield from _in_expressions(item, tensors)
    if not isinstance(value, str):
        return
    try:
        tree = Expression(value).tree
    except ExpressionError:
        return
    whole = isinstance(tree, ast.Name)
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    of_layout = {
        id(argument)
        for node in called.values()
        for argument in node.args
        if isinstance(node.func, ast.Name) and node.func.id in LAYOUT_FUNCTIONS
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            yield EXPRESSIONS, _CHOICE
        if not isinstance(node, ast.Name):
            continue
        if id(node) in called:
            yield EXPRESSIONS, f"{_C_SCALAR}()" if node.id in DTYPES else f"{node.id}()"
        elif node.id in CONSTANT_NAMES | DEVICE_NAMES | {"seed"}:
            yield EXPRESSIONS, node.id
        elif node.id in tensors and not whole and id(node) not in of_layout:
            yield EXPRESSIONS, _CONTENTS


if __name__ == "__main__":
    sys.stdout.write(features(read(Path.cwd())))
