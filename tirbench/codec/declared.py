"""What the declared types of the model allow at a place, read from their annotations.

The annotations are texts and the aliases among them refer to themselves, so they are read as syntax
trees and followed one step at a time instead of being evaluated.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import cache
from typing import Any, Final, Literal, TypeAlias, cast, get_args, get_origin

from tirbench import model, values
from tirbench.expression import Expression

LOCAL: Final = {("Source", "root"): ""}
"""Fields that never leave this machine, with what stands for them after loading."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One of a few literal values."""

    values: tuple[object, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """A tuple of any length, or a frozen set, whose elements have one type."""

    element: str
    set_: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """A tuple of (name, value) pairs with distinct names."""

    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """A tuple of so many elements, each of its own type."""

    elements: tuple[str, ...]


Member: TypeAlias = "type | Choice | Sequence | Named | Fixed"

_NAMES: Final[dict[str, object]] = {
    "None": type(None),
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "object": object,
    "Expression": Expression,
    **vars(values),
    **{name: getattr(model, name) for name in model.__all__},
}


@cache
def members_of(annotation: str) -> tuple[Member, ...]:
    """The alternatives that an annotation of the model allows, its aliases followed."""
    return _merged(tuple(_alternatives(ast.parse(annotation, mode="eval").body)))


def _alternatives(node: ast.expr) -> list[Member]:
    """The alternatives of one part of an annotation, a union flattened."""
    if isinstance(node, ast.BinOp):
        return _alternatives(node.left) + _alternatives(node.right)
    if isinstance(node, ast.Constant) and node.value is None:
        return [type(None)]
    if isinstance(node, ast.Name):
        return _named(_NAMES[node.id])
    if not isinstance(node, ast.Subscript):
        raise TypeError(f"the codec does not know the annotation {ast.unparse(node)}")
    return [_generic(node)]


def _generic(node: ast.Subscript) -> Member:
    """`Literal[…]`, `frozenset[…]` or one of the forms of `tuple[…]`."""
    base = ast.unparse(node.value)
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if base == "Literal":
        return Choice(tuple(ast.literal_eval(item) for item in inner))
    if base == "frozenset":
        return Sequence(ast.unparse(inner[0]), set_=True)
    if ast.unparse(inner[-1]) != "...":
        return Fixed(tuple(ast.unparse(item) for item in inner))
    element = inner[0]
    if isinstance(element, ast.Subscript) and ast.unparse(element).startswith("tuple[str, "):
        value = ast.unparse(cast("ast.Tuple", element.slice).elts[1])
        if value != "...":
            return Named(value)
    return Sequence(ast.unparse(element))


def _named(target: object) -> list[Member]:
    if isinstance(target, str):  # an alias, written as text because it refers to itself
        return _alternatives(ast.parse(target, mode="eval").body)
    if get_origin(target) is Literal:
        return [Choice(get_args(target))]
    if isinstance(target, type):
        return [target]
    raise TypeError(f"the codec does not know the type {target!r}")


def _merged(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Give a union of several tuple types one, as nothing in the data would tell them apart."""
    sequences = [member for member in members if isinstance(member, Sequence)]
    if len(sequences) < 2:
        return members
    others = tuple(member for member in members if not isinstance(member, Sequence))
    return (*others, Sequence(" | ".join(member.element for member in sequences)))


@cache
def tagged() -> frozenset[type]:
    """The dataclasses that stand beside others in a union of the model."""
    found: set[type] = set()
    for alias in ("Argument", "Bound", "Outcome"):
        beside = [member for member in members_of(alias) if is_record(member)]
        if len(beside) > 1:
            found.update(cast("list[type]", beside))
    return frozenset(found)


@cache
def records() -> dict[str, type]:
    """Every dataclass of the model by its tag."""
    return {tag_of(kind): cast("type", kind) for kind in _NAMES.values() if is_record(kind)}


def is_record(kind: object) -> bool:
    """Whether `kind` is a dataclass that is written as an object; an `Expression` is a text."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind is not Expression


def tag_of(kind: object) -> str:
    """`TensorRef` → `tensor_ref`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cast("type", kind).__name__).lower()


@cache
def fields_of(kind: type[Any]) -> tuple[tuple[str, str, bool], ...]:
    """Name, annotation and whether it is required, of every field that is written."""
    return tuple(
        (
            field.name,
            str(field.type),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
        if (kind.__name__, field.name) not in LOCAL
    )
