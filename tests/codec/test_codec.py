"""The codec: every type of the model becomes JSON and comes back equal."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tirbench import codec, model
from tirbench.codec import declared
from tirbench.expression import Expression
from tirbench.values import DTYPES, OMIT, Code, CScalar, Dtype, Omit, Phase, TensorRef

RECORDS = sorted(declared.records().values(), key=lambda kind: kind.__name__)
NAMES = st.sampled_from(["x", "y", "hidden", "type", "name", "µ\u2028 ]["])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
EXPRESSIONS = st.sampled_from(["hidden // 2", "omit", "'NHD'", "nbytes(x)"]).map(Expression)


def values_of(annotation: str, depth: int) -> st.SearchStrategy[Any]:
    """Values that may stand where the model declares `annotation`, nested up to `depth`."""
    return st.one_of([_member_values(m, depth) for m in declared.members_of(annotation)])


def _member_values(member: Any, depth: int) -> st.SearchStrategy[Any]:
    size = 2 if depth > 0 else 0
    if isinstance(member, declared.Choice):
        return st.sampled_from(member.values)
    if isinstance(member, declared.Fixed):
        return st.tuples(*(values_of(element, depth - 1) for element in member.elements))
    if isinstance(member, declared.Named):
        inner = values_of(member.value, depth - 1) if size else st.nothing()
        return st.dictionaries(NAMES, inner, max_size=size).map(lambda d: tuple(d.items()))
    if isinstance(member, declared.Sequence):
        inner = values_of(member.element, depth - 1) if size else st.nothing()
        if member.set_:
            return st.frozensets(inner, max_size=size)
        return st.lists(inner, max_size=size).map(tuple)
    if member is object:
        return st.sampled_from([None, True, 3, 0.5, "text", Dtype("float16"), OMIT, (1, ("a",))])
    plain: dict[Any, st.SearchStrategy[Any]] = {
        type(None): st.none(),
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**63 - 1),
        float: NUMBERS,
        str: NAMES,
        Dtype: st.sampled_from(sorted(DTYPES)).map(Dtype),
        Omit: st.just(OMIT),
        Phase: st.sampled_from(Phase),
        Expression: EXPRESSIONS,
    }
    return plain[member] if member in plain else records_of(member, depth - 1)


def records_of(kind: type, depth: int = 3) -> st.SearchStrategy[Any]:
    """Instances of one dataclass of the model."""
    if depth < -4:  # the types are finite: only Bound refers to itself, through CScalar
        return st.just(TensorRef(name="x"))

    def later(annotation: str) -> st.SearchStrategy[Any]:
        return st.deferred(lambda: values_of(annotation, depth))

    fields = {name: later(annotation) for name, annotation, _ in declared.fields_of(kind)}
    if kind is model.Source:
        fields["root"] = st.just("/somewhere")
    return st.builds(kind, **fields)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_dataclass_of_the_model_survives_json(kind: type) -> None:
    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(records_of(kind))
    def check(value: Any) -> None:
        text = json.dumps(codec.dump(value), allow_nan=False)
        assert codec.load(kind, json.loads(text)) == value

    check()


def test_every_dataclass_of_the_model_is_known_to_the_codec() -> None:
    declared = {
        value
        for value in (getattr(model, name) for name in model.__all__)
        if dataclasses.is_dataclass(value) and value is not Expression
    }
    assert declared <= set(RECORDS)
    assert {TensorRef, CScalar, Code} <= set(RECORDS)


def row() -> model.Row:
    return model.Row(workload="add", case="n4096", implementation="triton", role="kernel")


def test_an_outcome_says_which_it_is_and_loads_by_the_union() -> None:
    outcome = model.Skipped(row=row(), reason="needs device cuda")
    data = codec.dump(outcome)
    assert data == {
        "type": "skipped",
        "row": {"workload": "add", "case": "n4096", "implementation": "triton", "role": "kernel"},
        "reason": "needs device cuda",
    }
    assert codec.load(model.Outcome, data) == outcome


def test_texts_dtypes_tensors_and_omit_stay_apart_in_an_argument() -> None:
    arguments = model.BoundArguments(
        positional=(
            "float16",
            Dtype("float16"),
            TensorRef(name="x"),
            OMIT,
            None,
            True,
            1,
            1.0,
            (1, ("a",)),
        ),
        named=(("n", CScalar(ctype="int", value=4096)),),
    )
    loaded = codec.load(model.BoundArguments, json.loads(json.dumps(codec.dump(arguments))))
    assert loaded == arguments
    assert [type(value) for value in loaded.positional] == [
        type(value) for value in arguments.positional
    ]


def test_an_expression_is_written_as_its_text_where_no_other_text_can_stand() -> None:
    work = model.Work(flops=Expression("2 * m * n"), bytes=4096)
    assert codec.dump(work) == {"flops": "2 * m * n", "bytes": 4096, "roof": None}
    assert codec.load(model.Work, codec.dump(work)) == work


def test_launch_options_of_any_kind_survive() -> None:
    launch = model.Launch(
        kind="triton",
        target="k.py:f",
        path=("kernels", "triton"),
        options=(("grid", (Expression("cdiv(n, 4)"), 1)), ("compile", "default"), ("n", None)),
    )
    assert codec.load(model.Launch, codec.dump(launch)) == launch


def test_the_folder_of_this_machine_is_never_written() -> None:
    source = model.Source(root="/private/folder", path="workloads/add.toml", text="schema = 1")
    data = codec.dump(source)
    assert "root" not in str(data)
    assert "/private" not in str(data)
    assert codec.load(model.Source, data).root == ""


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_measured_number_that_is_not_finite_is_refused_both_ways(number: float) -> None:
    with pytest.raises(codec.CodecError, match=r"Rates\.tflops: a measured number is finite"):
        codec.dump(model.Rates(tflops=number))
    with pytest.raises(codec.CodecError, match=r"Rates\.tflops: must be finite"):
        codec.load(model.Rates, {"tflops": number})


def test_an_infinity_written_in_a_workload_is_kept() -> None:
    init = model.BoundInit(kind="full", parameters=(("value", float("-inf")),))
    text = json.dumps(codec.dump(init), allow_nan=False)
    assert codec.load(model.BoundInit, json.loads(text)) == init


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (model.Rates, {"tflop": 1.0}, "Rates: unknown field 'tflop'; did you mean 'tflops'?"),
        (
            model.Skipped,
            {"row": {"workload": "a", "case": "b", "implementation": "c", "role": "kernal"}},
            None,
        ),
        (model.Row, {"workload": "a", "case": "b"}, "Row: the field 'implementation' is missing"),
        (model.Rates, {"tflops": "1"}, "Rates.tflops: must be float or null, got '1'"),
        (model.Rates, {"tflops": True}, "Rates.tflops: must be float or null, got True"),
        (model.Outcome, {"type": "timd"}, "value: unknown type 'timd'; did you mean 'timed'?"),
        (
            model.Outcome,
            [],
            "value: must be Timed or Verified or Wrong or Failed or Skipped, got an array",
        ),
        (
            model.Row,
            {"workload": "a", "case": "b", "implementation": "c", "role": "kernal"},
            "Row.role: must be 'kernel' or 'reference', got 'kernal'",
        ),
        (
            model.BoundTensor,
            {"name": "x", "path": [], "role": "in", "dtype": "float15", "shape": []},
            "BoundTensor.dtype: 'float15' is not a dtype; one of " + ", ".join(DTYPES),
        ),
    ],
)
def test_wrong_data_names_the_place_and_the_fault(
    kind: Any, data: Any, message: str | None
) -> None:
    with pytest.raises(codec.CodecError) as raised:
        codec.load(kind, data)
    if message is not None:
        assert str(raised.value) == message


def test_two_values_of_one_name_are_refused() -> None:
    with pytest.raises(codec.CodecError, match="the name 'x' stands twice"):
        codec.dump(model.BoundInit(kind="full", parameters=(("x", 1), ("x", 2))))


def test_a_foreign_object_is_refused() -> None:
    with pytest.raises(codec.CodecError, match=r"BoundInit\.parameters\.x: must be"):
        codec.dump(model.BoundInit(kind="full", parameters=(("x", object()),)))  # type: ignore[arg-type]
