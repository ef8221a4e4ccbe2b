"""Every field that a person can write has a class, and every class is one that a reviewer is told of."""

from __future__ import annotations

import dataclasses
import re
import typing

import pytest

from tirbench import model
from tirbench.diff.classes import CLASSES, EVIDENCE
from tirbench.expression import Expression
from tirbench.model import FieldClass, PinnedRow, Workload
from tirbench.report import diffs


def reached(kind: type) -> set[type]:
    """The dataclasses of the model that a value of `kind` can hold."""
    found: set[type] = set()
    waiting: list[object] = [kind]
    seen: set[str] = set()
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):  # an alias of the model, written as text
            texts = [current]
        elif isinstance(current, type) and dataclasses.is_dataclass(current):
            if current in found or current is Expression:
                continue
            found.add(current)
            texts = [str(field.type) for field in dataclasses.fields(current)]
        else:
            continue
        names = {name for text in texts for name in re.findall(r"\w+", text)} - seen
        seen |= names
        waiting += [getattr(model, name) for name in names if hasattr(model, name)]
    return found


def test_every_type_that_a_workload_is_written_with_is_classed() -> None:
    assert reached(Workload) == set(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_field_is_classed(kind: type) -> None:
    assert {field.name for field in dataclasses.fields(kind)} == set(CLASSES[kind])


def test_every_field_of_a_pinned_row_is_evidence_or_its_name() -> None:
    names = {field.name for field in dataclasses.fields(PinnedRow)}
    assert names == EVIDENCE | {"case", "implementation"}


def test_every_class_has_a_head_in_the_report() -> None:
    assert set(diffs.CLASSES) == set(typing.get_args(FieldClass))
