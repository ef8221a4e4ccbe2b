"""The JSON Schema of what `dump` writes, derived from the declared types."""

from __future__ import annotations

import inspect
from typing import Any, Final

from tirbench.codec.declared import (
    Choice,
    Fixed,
    Member,
    Named,
    Sequence,
    fields_of,
    is_record,
    members_of,
    tag_of,
    tagged,
)

_SCALARS: Final[dict[type, dict[str, Any]]] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}


def json_schema(kind: type) -> dict[str, Any]:
    """The schema of a dataclass that holds no bound values, such as a `Run`; draft 2020-12.

    Every field is required, since `dump` leaves none out, and no other is allowed.
    """
    definitions: dict[str, Any] = {}
    _define(kind, definitions)
    root = definitions.pop(kind.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _define(kind: type, definitions: dict[str, Any]) -> None:
    if kind.__name__ in definitions:
        return
    definitions[kind.__name__] = {}  # so that a type that refers to itself ends
    properties = {"type": {"const": tag_of(kind)}} if kind in tagged() else {}
    for name, annotation, _ in fields_of(kind):
        properties[name] = _either(members_of(annotation), definitions)
    definitions[kind.__name__] = {
        "description": inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " "),
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _either(members: tuple[Member, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    schemas = [_schema(member, definitions) for member in members]
    simple = [schema["type"] for schema in schemas if set(schema) == {"type"}]
    if len(simple) == len(schemas):
        return {"type": simple[0] if len(simple) == 1 else simple}
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _schema(member: Member, definitions: dict[str, Any]) -> dict[str, Any]:
    match member:
        case Choice(values=values):
            return {"enum": list(values)}
        case Sequence(element=element):
            return {"type": "array", "items": _either(members_of(element), definitions)}
        case Named(value=value):
            inner = _either(members_of(value), definitions)
            return {"type": "object", "additionalProperties": inner}
        case Fixed(elements=elements):
            items = [_either(members_of(element), definitions) for element in elements]
            return {"type": "array", "prefixItems": items, "items": False}
    if is_record(member):
        _define(member, definitions)
        return {"$ref": f"#/$defs/{member.__name__}"}
    return dict(_SCALARS[member])
