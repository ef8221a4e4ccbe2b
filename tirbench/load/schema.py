"""Hold a document against the schema, and say in our own words what does not fit."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tirbench.diagnostics import closest, did_you_mean, without_quotes
from tirbench.load.accept import Accepts, compile_schema
from tirbench.load.kinds import KINDS, with_plug_ins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tirbench.diagnostics import Problems
    from tirbench.model import Path as TomlPath

SchemaError: TypeAlias = Any
"""A `jsonschema.ValidationError`, whose fields the type stubs leave half open."""

SCHEMA_FILE: Final = Path(__file__).parent.parent / "schema" / "workload.schema.json"

_TYPES: Final = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
}

_FREE_TABLES: Final = {
    "params": "a param",
    "matrix": "an axis",
    "case": "a name of a case",
    "derive": "a derived name",
    "tensors": "a tensor",
    "kernels": "a kernel",
    "references": "a reference",
    "select": "a selection",
}


@lru_cache(maxsize=1)
def workload_schema() -> dict[str, Any]:
    """The JSON Schema of a workload, with the kinds of registered plug-ins."""
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return with_plug_ins(loaded)


def warm() -> None:
    """Compile the schema, so that processes that are forked have it."""
    _accepts()


def forget() -> None:
    """Forget the compiled schema: the kinds have changed."""
    for cached in (workload_schema, _accepts, _validator):
        cached.cache_clear()


def validate(document: dict[str, Any], problems: Problems) -> dict[str, Any] | None:
    """The document if the checks of meaning can go on with it, after noting what does not fit.

    Misspelt keys and words are noted and then read as what they were most likely meant to be, so that
    one slip does not hide the other problems of a file.
    """
    if _accepts()(document):
        return document
    errors: list[SchemaError] = list(_validator().iter_errors(document))
    meant = {
        (*_path(error), closest(key, _known_keys(error)))
        for error in errors
        if error.validator == "additionalProperties"
        for key in _unknown_keys(error)
    }
    for error in errors:
        _explain(error, document, meant, problems)
    if not problems:  # accepted by the judge after all
        return document
    for error in errors:
        _repair(document, error)
    return document if _accepts()(document) else None


@lru_cache(maxsize=1)
def _accepts() -> Accepts:
    return compile_schema(workload_schema())


@lru_cache(maxsize=1)
def _validator() -> Any:
    from jsonschema import Draft202012Validator  # 90 ms, so only for an error

    return Draft202012Validator(workload_schema())


def _path(error: SchemaError) -> TomlPath:
    return tuple(error.absolute_path)


def _explain(
    error: SchemaError,
    document: dict[str, Any],
    meant: set[tuple[str | int | None, ...]],
    problems: Problems,
) -> None:
    """Note one error of the schema; a missing key that a misspelt one was `meant` to be is no news."""
    path, value, limit = _path(error), error.instance, error.validator_value
    if "propertyNames" in error.absolute_schema_path:
        _explain_name(error, document, problems)
        return
    match error.validator:
        case "additionalProperties":
            for key in _unknown_keys(error):
                hint = did_you_mean(key, _known_keys(error), "the keys here are")
                problems.add("TB010", (*path, key), f"unknown key '{key}'", hint=hint, at="key")
        case "required":
            for key in limit:
                if key not in value and (*path, key) not in meant:
                    _explain_missing(path, key, problems)
        case "type":
            allowed = [limit] if isinstance(limit, str) else limit
            wanted = [_TYPES[name] for name in allowed]
            listed = ", ".join(wanted[:-1]) + " or " * (len(wanted) > 1) + wanted[-1]
            hint = _instead(path, value, allowed)
            problems.add("TB012", path, f"must be {listed}, got {_shown(value)}", hint=hint)
        case "enum" | "const":
            _explain_word(path, value, limit if isinstance(limit, list) else [limit], problems)
        case _:
            _explain_bound(error, problems)


def _instead(path: TomlPath, value: object, allowed: list[str]) -> str:
    """How a value of the wrong type may have been meant."""
    if "array" in allowed and isinstance(value, str | int | float):
        return f"write a list: [{json.dumps(value, ensure_ascii=False)[:60]}]"
    if "object" in allowed and path and not isinstance(path[-1], int):
        return f"write a table: [{'.'.join(str(part) for part in path)}]"
    if isinstance(value, list) and len(value) == 1 and "array" not in allowed:
        return "leave out the brackets"
    if isinstance(value, str) and not {"string", "array", "object"} & {*allowed}:
        return without_quotes(value)
    return ""


def _explain_bound(error: SchemaError, problems: Problems) -> None:
    """Note a number, a size or a text out of bounds."""
    path, value, limit = _path(error), error.instance, error.validator_value
    match error.validator:
        case "minimum" | "exclusiveMinimum" | "maximum":
            words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
            message = f"must be {words[error.validator]} {limit}, got {_shown(value)}"
            problems.add("TB014", path, message)
        case "minItems" | "maxItems":
            word = "at least" if error.validator == "minItems" else "at most"
            entries = "entry" if limit == 1 else "entries"
            problems.add("TB015", path, f"must have {word} {limit} {entries}, got {len(value)}")
        case "minProperties":
            problems.add("TB015", path, "must have at least one entry")
        case "minLength":
            problems.add("TB016", path, "must not be empty")
        case "pattern":
            message = f"{value!r} is not of the form that is read here"
            problems.add("TB016", path, message, hint=error.schema.get("description", ""))
        case _:  # pragma: no cover - a test holds the schema's keywords against this list
            problems.add("TB013", path, error.message)


def _unknown_keys(error: SchemaError) -> list[str]:
    """The keys that an object may not have."""
    known = error.schema.get("properties", {})
    return [key for key in error.instance if key not in known]


def _known_keys(error: SchemaError) -> list[str]:
    """The keys an object may have; of a launch those of its kind."""
    keys = list(error.schema.get("properties", {}))
    if "target" in keys and "kind" in keys:
        named = str(error.instance.get("kind", "call"))
        kind = KINDS.get(named) or KINDS.get(closest(named, KINDS) or "")
        others = {key for other in KINDS.values() for key in other.options}
        return [key for key in keys if key not in others or (kind and key in kind.options)]
    return keys


def _explain_name(error: SchemaError, document: dict[str, Any], problems: Problems) -> None:
    """Note a key that is no name, or that belongs to another kind."""
    path, key = _path(error), str(error.instance)
    if error.validator == "pattern":
        what = _FREE_TABLES.get(str(path[0]) if path else "", "a name")
        problems.add(
            "TB016",
            (*path, key),
            f"'{key}' cannot name {what}",
            hint="names are letters, digits and underscores, a letter first",
            at="key",
        )
        return
    allowed = error.validator_value
    owners = [kind.name for kind in KINDS.values() if key in kind.options]
    launch = key in ("kind", "target", "args") or owners
    if launch and "steps" in allowed and "kind" not in allowed:
        message = "'steps' stands instead of kind, target, args and options"
        hint = "each step has its own"
        problems.add("TB017", (*path, "steps"), message, hint=hint, at="key")
    elif owners:
        hint = f"it belongs to kind {' and '.join(owners)}"
        message = f"'{key}' is not an option of this kind"
        if "kind" not in _at(document, path):
            message = f"'{key}' is not an option of kind call, which is meant where none is given"
            hint = f'write kind = "{owners[0]}"'
        problems.add("TB054", (*path, key), message, hint=hint, at="key")
    elif _is_init_parameter(key):
        listed = ", ".join(name for name in allowed if name != "kind") or "none"
        hint = f"its parameters: {listed}"
        problems.add("TB054", (*path, key), f"this initialiser has no '{key}'", hint=hint, at="key")
    # a key that nothing knows is already noted as unknown


def _is_init_parameter(key: str) -> bool:
    return key in workload_schema()["$defs"]["init"]["else"]["properties"]


def _explain_missing(path: TomlPath, key: str, problems: Problems) -> None:
    """Note a key that must be there."""
    hints = {
        "check": '[check.oracle] says what is right; without one: disabled = "reason"',
        "kernels": "[kernels.NAME] is what is timed",
        "tensors": "[tensors] holds what the kernels work on",
        "grid": 'grid = ["cdiv(n, BLOCK)"]',
        "target": 'target = "kernels/file.py:function"',
        "returns": "name the tensors whose right contents it returns",
        "description": "say in a sentence what is measured",
        "reason": "a reader of the report must know why",
    }
    problems.add("TB011", path, f"missing key '{key}'", hint=hints.get(key, ""), at="key")


def _explain_word(path: TomlPath, value: object, allowed: list[Any], problems: Problems) -> None:
    """Note a word that is not one of those allowed."""
    if not isinstance(value, str):
        listed = " or ".join(str(word) for word in allowed)
        problems.add("TB012", path, f"must be {listed}, got {_shown(value)}")
        return
    words = [str(word) for word in allowed]
    name = str(path[-1]) if path and not isinstance(path[-1], int) else "word that is known"
    name = "timer" if path == ("timer", "name") else name
    if name == "init":
        words = list(workload_schema()["$defs"]["init"]["else"]["properties"]["kind"]["enum"])
    close = closest(value, words)
    hint = f"did you mean '{close}'?" if close else "one of " + ", ".join(words)
    article = "an" if name[0] in "aeiou" else "a"
    message = f"'{value}' is not {article} {name}"
    if name == "init" and value in words:
        message, hint = f"'{value}' needs parameters", f'init = {{ kind = "{value}", … }}'
    problems.add("TB013", path, message, hint=hint)


def _shown(value: object) -> str:
    """A value as a message shows it."""
    match value:
        case dict():
            return "a table"
        case list():
            return "a list"
        case bool():
            return str(value).lower()
        case str():
            return f"the text {value[:40]!r}"
        case int() | float():
            return f"{value!r}"[:40]
        case _:
            return f"a {type(value).__name__}"


def _repair(document: dict[str, Any], error: SchemaError) -> None:
    """Read a misspelt key or word as what it was meant to be; drop a key that nothing is like."""
    if error.validator == "additionalProperties":
        holder = _at(document, _path(error))
        for key in _unknown_keys(error):
            meant = closest(key, _known_keys(error))
            if isinstance(holder, dict) and key in holder:
                value = holder.pop(key)
                if meant is not None and meant not in holder:
                    holder[meant] = value
    elif error.validator == "enum" and isinstance(error.instance, str) and error.absolute_path:
        if "propertyNames" in error.absolute_schema_path:
            holder = _at(document, _path(error))
            if isinstance(holder, dict):
                holder.pop(error.instance, None)
            return
        *path, last = _path(error)
        meant = closest(error.instance, [str(word) for word in error.validator_value])
        holder = _at(document, tuple(path))
        if meant is not None and isinstance(holder, dict) and last in holder:
            holder[str(last)] = meant


def _at(document: Mapping[str, Any], path: TomlPath) -> Any:
    """What stands at a path of the document, if it still does."""
    value: Any = document
    try:
        for key in path:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        return None
    return value
