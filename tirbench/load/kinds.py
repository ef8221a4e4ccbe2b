"""The launch kinds, as far as a workload file can tell: their options and how they take arguments.

This table is the one place where loading and expansion know a kind. The schema spells the built-in
ones out for editors; a kind registered here by a plug-in is added to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tirbench.values import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

Form: TypeAlias = Literal["expr", "exprs", "text", "texts", "grad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One key of a launch kind.

    `form`: an expression, a list of them, literal text, a list of it, or a `grad` table. `latest` is the
    latest phase its expressions may read; `tuned` whether constants that a tuner sets may appear.
    """

    form: Form
    latest: Phase = Phase.DATA
    tuned: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One launch kind.

    `arguments` says how `args` may be written; `suffix` which file a target names (empty: a dotted path
    is allowed as well as a `.py` file); `c_scalars` whether numbers need a C width.
    """

    name: str
    options: Mapping[str, Option]
    arguments: Literal["any", "named", "positional"] = "any"
    suffix: Literal["", ".py", ".cu"] = ""
    c_scalars: bool = False


_MODULE: Final = {"compile": Option(form="text"), "grad": Option(form="grad")}
_WHILE_COMPILING: Final = Option(form="expr", latest=Phase.DEVICE)
_GRID: Final = Option(form="exprs", tuned=True)

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind(name="call", options=_MODULE),
        Kind(name="build", options=_MODULE),
        Kind(
            name="triton",
            suffix=".py",
            options={
                "grid": _GRID,
                "num_warps": _WHILE_COMPILING,
                "num_stages": _WHILE_COMPILING,
                "num_ctas": _WHILE_COMPILING,
                "maxnreg": _WHILE_COMPILING,
            },
        ),
        Kind(
            name="cuda",
            suffix=".cu",
            arguments="positional",
            c_scalars=True,
            options={
                "grid": Option(form="exprs"),
                "block": Option(form="exprs"),
                "cluster": Option(form="exprs", latest=Phase.DEVICE),
                "shared_bytes": Option(form="expr"),
                "template": Option(form="exprs", latest=Phase.DEVICE),
                "flags": Option(form="texts"),
                "include": Option(form="texts"),
            },
        ),
        Kind(name="tirx", suffix=".py", arguments="named", options={}),
    )
}

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
                common.append("unchecked")
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
