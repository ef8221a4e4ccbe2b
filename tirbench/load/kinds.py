"""The launch kinds, as far as a workload file can tell: their options and how they take arguments.

Each kind says it of itself, in its module below `tirbench.launch`. The schema spells the built-in ones
out for editors; a kind registered here by a plug-in is added to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from tirbench import launch
from tirbench.launch import Option, Syntax

__all__ = ["KINDS", "Kind", "Option", "register", "register_installed", "with_plug_ins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Syntax):
    """One launch kind by its name, with what a workload may say of it."""

    name: str


def _named(kind: launch.Kind) -> Kind:
    """A launch kind without how it is written into a harness, which is nothing to a file."""
    said = {field.name: getattr(kind.syntax, field.name) for field in fields(Syntax)}
    return Kind(name=kind.name, **said)


KINDS: Final[dict[str, Kind]] = {name: _named(kind) for name, kind in launch.BUILTIN.items()}

BUILT_IN: Final = frozenset(KINDS)


def register(kind: Kind) -> None:
    """Add a plug-in's kind; files that name it are then valid.

    Raises:
        ValueError: a kind of that name exists.
    """
    if kind.name in KINDS:
        raise ValueError(f"the launch kind '{kind.name}' exists already")
    KINDS[kind.name] = kind
    from tirbench.load.schema import forget  # which imports this module

    forget()


def register_installed(document: Mapping[str, Any]) -> None:
    """Add the kinds of installed packages, where a document names one that is not known yet.

    Looking for packages costs tens of milliseconds and runs their code, so it is not done in vain.

    Raises:
        UsageError: a plug-in cannot be loaded.
    """
    if _kinds_in(document) <= KINDS.keys():
        return
    for name, kind in launch.plug_ins().items():
        if name not in KINDS:
            register(_named(kind))


def _kinds_in(document: Mapping[str, Any]) -> set[str]:
    """The launch kinds that a document names; it may be of any shape yet."""
    found: set[str] = set()
    for table in ("kernels", "references"):
        implementations = document.get(table)
        launches = list(implementations.values()) if isinstance(implementations, dict) else []
        for outer in launches:
            steps = outer.get("steps") if isinstance(outer, dict) else None
            for one in (outer, *(steps if isinstance(steps, list) else ())):
                kind = one.get("kind") if isinstance(one, dict) else None
                found |= {kind} if isinstance(kind, str) else set()
    return found


def with_plug_ins(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the registered kinds of plug-ins added; the argument is changed."""
    for name in sorted(KINDS.keys() - BUILT_IN):
        options = KINDS[name].options
        for holder in ("step", "kernel", "reference"):
            launch = schema["$defs"][holder]
            properties = launch["properties"]
            properties["kind"]["enum"].append(name)
            for key, option in options.items():
                properties.setdefault(key, dict(option.schema) or _schema_of(option))
            branches = launch["allOf"] if holder == "step" else launch["else"]["allOf"]
            common = ["kind", "target", "args"]
            if holder != "step":
                common += ["returns", "context", "requires"]
            if holder == "reference":
                common += ["unchecked", "looser", "reason"]
            then = {"propertyNames": {"enum": [*common, *options]}, "required": ["target"]}
            test = {"properties": {"kind": {"const": name}}, "required": ["kind"]}
            branches.append({"if": test, "then": then})
    return schema


def _schema_of(option: Option) -> dict[str, Any]:
    """The schema of an option whose plug-in gives none."""
    expression = {"$ref": "#/$defs/expr"}
    text = {"type": "string", "minLength": 1}
    match option.form:
        case "expr":
            return expression
        case "exprs":
            return {"type": "array", "minItems": 1, "items": expression}
        case "text":
            return text
        case "texts":
            return {"type": "array", "items": text}
        case "grad":
            return {"$ref": "#/$defs/grad"}
