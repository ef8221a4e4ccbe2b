"""The schema: every key documented, no key without a field, and the fast path no wider than the judge."""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tirbench import model
from tirbench.launch import Option
from tirbench.load import kinds
from tirbench.load.accept import compile_schema
from tirbench.load.kinds import KINDS, Kind
from tirbench.load.schema import SCHEMA_FILE, forget, workload_schema

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]  # only there before 3.11

SCHEMA: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
DEFS = SCHEMA["$defs"]
JUDGE = Draft202012Validator(SCHEMA)
ACCEPTS = compile_schema(SCHEMA)
TESTS = Path(__file__).parents[1]
DOCUMENTS = [
    tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted((TESTS / "load" / "examples").glob("*.toml"))
]


def objects(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of the schema that describes a value, `if` and `then` left out."""
    if isinstance(schema, dict):
        yield path, schema
        for key in ("properties", "$defs"):
            for name, part in schema.get(key, {}).items():
                yield from objects(part, f"{path}/{name}")
        for key in ("items", "additionalProperties", "else"):
            if isinstance(schema.get(key), dict):
                yield from objects(schema[key], f"{path}/{key}")


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_every_key_has_a_description() -> None:
    bare = [
        f"{path}/{name}"
        for path, part in objects(SCHEMA)
        for name, value in part.get("properties", {}).items()
        if "description" not in value and "description" not in DEFS.get(_target(value), {})
    ]
    assert bare == []


def _target(value: dict[str, Any]) -> str:
    return str(value.get("$ref", "")).rpartition("/")[2]


def test_every_object_says_whether_it_takes_other_keys() -> None:
    open_ended = [
        path
        for path, part in objects(SCHEMA)
        if ("properties" in part or part.get("type") == "object")
        and "additionalProperties" not in part
    ]
    assert open_ended == []


def test_there_is_no_one_of() -> None:
    text = SCHEMA_FILE.read_text(encoding="utf-8")
    assert "oneOf" not in text
    assert "anyOf" not in text


@pytest.mark.parametrize(
    ("holder", "kind", "elsewhere"),
    [
        ("tensor", model.Tensor, {"name", "path"}),
        ("output", model.OutputCheck, {"tensor", "path"}),
        ("requires", model.Requirements, set()),
        ("function", model.Function, {"path", "returns"}),
    ],
)
def test_the_keys_of_a_table_are_the_fields_of_its_type(
    holder: str, kind: Any, elsewhere: set[str]
) -> None:
    assert DEFS[holder]["properties"].keys() == {f.name for f in fields(kind)} - elsewhere


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("timer", model.TimerChoice),
        ("deadlines", model.DeadlineChoice),
        ("gate", model.Gate),
        ("work", model.Work),
        ("ranks", model.Ranks),
    ],
)
def test_the_keys_of_a_top_level_table_are_the_fields_of_its_type(table: str, kind: Any) -> None:
    assert SCHEMA["properties"][table]["properties"].keys() == {f.name for f in fields(kind)}


def test_the_timers_of_the_schema_are_those_of_the_model() -> None:
    assert tuple(SCHEMA["properties"]["timer"]["properties"]["name"]["enum"]) == model.TIMERS


@pytest.mark.parametrize("holder", ["kernel", "reference", "step"])
def test_the_options_of_a_kind_are_those_of_its_table(holder: str) -> None:
    part = DEFS[holder]
    branches = part["allOf"] if holder == "step" else part["else"]["allOf"]
    common = {"kind", "target", "args", "returns", "context", "requires", "unchecked"}
    common |= {"looser", "reason"}  # of references, as `unchecked` is
    named = {
        branch["if"]["properties"]["kind"]["const"]: set(branch["then"]["propertyNames"]["enum"])
        for branch in branches
    }
    without = {"grad"} if holder == "step" else set()
    assert {kind: names - common for kind, names in named.items()} == {
        name: set(kind.options) - without for name, kind in KINDS.items()
    }
    assert set(part["properties"]["kind"]["enum"]) == KINDS.keys()


def test_the_fast_path_agrees_with_the_judge_on_the_corpus() -> None:
    for path in sorted((TESTS / "bad").glob("*.toml")):
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            continue
        assert ACCEPTS(document) == JUDGE.is_valid(document), path.name


def places(value: Any) -> list[tuple[Any, Any]]:
    found = []
    items: Any = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, item in items:
        found.append((value, key))
        found += places(item)
    return found


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_the_fast_path_accepts_nothing_that_the_judge_refuses(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - damage, not secrets
    document = copy.deepcopy(rng.choice(DOCUMENTS))
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(places(document))
        junk = rng.choice(
            [None, 1, -1, 0.5, "x", "", [], {}, ["x"], {"kind": "normal"}, True, "triton"]
        )
        match rng.randint(0, 2):
            case 0:
                holder[key] = junk
            case 1:
                del holder[key]
            case _ if isinstance(holder, dict):
                holder[rng.choice(["kind", "extra", "steps", "shape", "grid", "a-b"])] = junk
            case _:
                holder.append(junk)
    assert ACCEPTS(document) == JUDGE.is_valid(document)


def test_a_registered_kind_is_known_to_schema_and_table() -> None:
    kinds.register(Kind(name="tile", options={"waves": Option(form="expr")}))
    try:
        schema = workload_schema()
        Draft202012Validator.check_schema(schema)
        document = copy.deepcopy(next(d for d in DOCUMENTS if "softmax" in str(d).lower()))
        document["kernels"] = {"tile": {"kind": "tile", "target": "k.py:f", "waves": 2}}
        assert compile_schema(schema)(document)
        assert Draft202012Validator(schema).is_valid(document)
        document["kernels"]["tile"]["grid"] = [1]
        assert not compile_schema(schema)(document)
    finally:
        del KINDS["tile"]
        forget()


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(ValueError, match="exists already"):
        kinds.register(Kind(name="triton", options={}))
