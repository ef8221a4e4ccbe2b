"""A run as JSON, for programs: `schema/run.schema.json` describes it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tirbench import codec
from tirbench.codec.schema import json_schema
from tirbench.model import Run
from tirbench.report.table import KINDS, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tirbench.codec import Json

SCHEMA: Final = 1


def document(run: Run, *, notes: tuple[str, ...] = ()) -> dict[str, Json]:
    """The run as data: its fields, what is missing from it, and how many rows became what."""
    data = codec.dump(run)
    assert isinstance(data, dict)  # noqa: S101 - a dataclass is always an object
    counts = Counter(kind_of(outcome) for outcome in run.outcomes)
    return {
        "schema": SCHEMA,
        **data,
        "notes": list(notes),
        "summary": {kind: counts[kind] for kind in KINDS},
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of `document`; `schema/run.schema.json` is its text."""
    described = json_schema(Run)
    counts = {kind: {"type": "integer", "minimum": 0} for kind in KINDS}
    described["title"] = "A run of tirbench"
    described["properties"] = {
        "schema": {"const": SCHEMA},
        **described["properties"],
        "notes": {"type": "array", "items": {"type": "string"}},
        "summary": {
            "description": "How many rows became what.",
            "type": "object",
            "additionalProperties": False,
            "required": list(KINDS),
            "properties": counts,
        },
    }
    described["required"] = list(described["properties"])
    return described


def to_json(run: Run, *, notes: tuple[str, ...] = ()) -> str:
    """One indented JSON document."""
    return json.dumps(document(run, notes=notes), allow_nan=False, indent=2) + "\n"


def to_jsonl(run: Run, *, notes: tuple[str, ...] = ()) -> Iterator[str]:
    """The run without its outcomes as one line, then each outcome as a line."""
    data = document(run, notes=notes)
    outcomes = data.pop("outcomes")
    assert isinstance(outcomes, list)  # noqa: S101 - a tuple is always an array
    for line in (data, *outcomes):
        yield json.dumps(line, allow_nan=False) + "\n"
