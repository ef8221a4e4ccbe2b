"""Say quickly that a document is valid.

`jsonschema` takes 90 ms to import and a millisecond a file; valid files, nearly all of them, need
neither. The schema is compiled to closures that only answer yes or no. A no is never shown to anyone:
`jsonschema` then judges and explains, so a fault here could cost time but not a wrong message; that a
yes here is a yes there is tested on every file of the corpus and on random damage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Accepts: TypeAlias = "Callable[[Any], bool]"

_IGNORED: Final = frozenset(
    {"$schema", "$id", "$defs", "title", "description", "default", "x-tombi-toml-version"}
)


def compile_schema(schema: Mapping[str, Any]) -> Accepts:
    """A function that tells whether a document is valid.

    Raises:
        ValueError: the schema has a keyword that this compiler does not know.
    """
    return _Compiler(schema["$defs"]).compile(schema)


_CLASSES: Final[dict[str, frozenset[type]]] = {
    "object": frozenset({dict}),
    "array": frozenset({list}),
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "number": frozenset({int, float}),
    "integer": frozenset({int}),
}
"""What a TOML parser makes of each type of JSON Schema."""


def _always(*, answer: bool) -> Accepts:
    return lambda _: answer


def _all_of(parts: list[Accepts]) -> Accepts:
    return lambda v: all(part(v) for part in parts)


def _is_one_of(names: list[str]) -> Accepts:
    """`type`: one of these; 3.0 is an integer, too."""
    classes = frozenset[type]().union(*(_CLASSES[name] for name in names))
    if "integer" not in names or "number" in names:
        return lambda v: v.__class__ in classes
    return lambda v: v.__class__ in classes or (v.__class__ is float and v.is_integer())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Compiler:
    """Compiles one schema; definitions are compiled once, and may refer to themselves."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions = definitions
        self.compiled: dict[str, Accepts] = {}

    def compile(self, schema: Mapping[str, Any]) -> Accepts:
        """One schema, all of whose keywords must accept."""
        tests: list[Accepts] = []
        done = {"then", "else", "additionalProperties"}
        for keyword, value in schema.items():
            if keyword in _IGNORED or keyword in done:
                continue
            tests.append(self.keyword(keyword, value, schema))
        if "additionalProperties" in schema and "properties" not in schema:
            tests.append(self.properties({}, schema))
        if len(tests) == 1:
            return tests[0]
        checks = tuple(tests)

        def accepts(value: Any) -> bool:
            for check in checks:  # noqa: SIM110 - a generator would double the cost
                if not check(value):
                    return False
            return True

        return accepts

    def keyword(self, keyword: str, value: Any, schema: Mapping[str, Any]) -> Accepts:  # noqa: PLR0911 - a table
        """One keyword of a schema."""
        match keyword:
            case "$ref":
                return self.reference(value)
            case "type":
                return _is_one_of([value] if isinstance(value, str) else value)
            case "enum":
                words = frozenset(value)
                return lambda v: isinstance(v, str) and v in words
            case "const":
                return lambda v: v == value and isinstance(v, bool) == isinstance(value, bool)
            case "properties":
                return self.properties(value, schema)
            case "items":
                item = self.compile(value)
                return lambda v: not isinstance(v, list) or all(map(item, v))
            case "propertyNames":
                key = self.compile(value)
                return lambda v: not isinstance(v, dict) or all(map(key, v))
            case "required":
                names = frozenset(value)
                return lambda v: not isinstance(v, dict) or names <= v.keys()
            case "allOf":
                parts = [self.compile(part) for part in value]
                return _all_of(parts)
            case "if":
                return self.condition(schema)
            case _:
                return _bound(keyword, value)

    def reference(self, pointer: str) -> Accepts:
        """A definition, compiled when it is first used."""
        name = pointer.removeprefix("#/$defs/")
        compiled = self.compiled

        def accepts(value: Any) -> bool:
            if name not in compiled:
                compiled[name] = self.compile(self.definitions[name])
            return compiled[name](value)

        return accepts

    def properties(self, properties: Mapping[str, Any], schema: Mapping[str, Any]) -> Accepts:
        """`properties` with `additionalProperties`."""
        known = {name: self.compile(part) for name, part in properties.items()}
        rest = schema.get("additionalProperties", True)
        other = self.compile(rest) if isinstance(rest, dict) else _always(answer=rest)

        def accepts(value: Any) -> bool:
            if not isinstance(value, dict):
                return True
            for name, item in value.items():  # noqa: SIM110 - a generator would double the cost
                if not known.get(name, other)(item):
                    return False
            return True

        return accepts

    def condition(self, schema: Mapping[str, Any]) -> Accepts:
        """`if`, `then` and `else`."""
        test = self.compile(schema["if"])
        then = self.compile(schema.get("then", {}))
        otherwise = self.compile(schema.get("else", {}))
        return lambda v: then(v) if test(v) else otherwise(v)


def _bound(keyword: str, limit: Any) -> Accepts:
    """A keyword that limits a size, a number or a text; other types pass."""
    match keyword:
        case "pattern":
            search = re.compile(limit).search
            return lambda v: not isinstance(v, str) or search(v) is not None
        case "minLength":
            return lambda v: not isinstance(v, str) or len(v) >= limit
        case "minItems":
            return lambda v: not isinstance(v, list) or len(v) >= limit
        case "maxItems":
            return lambda v: not isinstance(v, list) or len(v) <= limit
        case "minProperties":
            return lambda v: not isinstance(v, dict) or len(v) >= limit
        case "minimum":
            return lambda v: not _is_number(v) or not v < limit
        case "maximum":
            return lambda v: not _is_number(v) or not v > limit
        case "exclusiveMinimum":
            return lambda v: not _is_number(v) or not v <= limit
        case _:
            raise ValueError(f"unknown keyword {keyword!r} in the schema")
