"""Literals of the harness: values become literals, and only compiled code becomes code."""

from __future__ import annotations

import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.launch.emit import Source, emit, emit_arguments, emit_tuple, literal, names_in, wrap
from tirbench.model import BoundArguments
from tirbench.values import OMIT, Code, CScalar, Dtype, Phase, TensorRef

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.tuples(inner) | st.tuples(inner, inner)))
def test_a_literal_evaluates_to_the_value_it_was_made_from(value: object) -> None:
    tree = ast.parse(literal(value), mode="eval")
    evaluated = eval(compile(tree, "literal", "eval"), {"float": float})  # noqa: S307 - the point
    assert repr(evaluated) == repr(value)


@given(st.text())
def test_no_text_of_a_workload_becomes_code(text: str) -> None:
    tree = ast.parse(emit(text), mode="eval")
    assert isinstance(tree.body, ast.Constant)
    assert tree.body.value == text


def test_a_dtype_is_written_for_the_module_that_takes_it() -> None:
    assert emit(Dtype("float8_e4m3fn")) == "torch.float8_e4m3fn"
    assert emit(Dtype("float8_e4m3fn"), dtypes="tl") == "tl.float8e4nv"
    assert emit(Dtype("bfloat16"), dtypes="tl") == "tl.bfloat16"


def test_arrays_are_lists_in_arguments_and_tuples_in_grids_and_shapes() -> None:
    assert emit((4096,)) == "[4096]"
    assert emit_tuple((4096,)) == "(4096,)"
    assert emit((TensorRef(name="x"), (Dtype("float16"),)), dtypes="tl") == "(x, (tl.float16,))"
    assert (
        emit_tuple((2, Code(text="device.sm_count", phase=Phase.DEVICE))) == "(2, device.sm_count)"
    )


def test_arguments_stand_by_position_then_by_name() -> None:
    args = BoundArguments(
        positional=(TensorRef(name="x"), 1e-6),
        named=(("n", CScalar(ctype="int32", value=7)), ("out", None)),
    )
    assert emit_arguments(args) == ("x", "1e-06", "n=tb.CScalar('int32', 7)", "out=None")


def test_an_omitted_argument_never_reaches_the_harness() -> None:
    with pytest.raises(TypeError, match="dropped when a case is bound"):
        emit(OMIT)


def test_what_has_no_literal_is_refused() -> None:
    with pytest.raises(TypeError, match="no literal for object"):
        literal(object())


def test_infinities_and_nan_survive() -> None:
    assert literal(-math.inf) == "float('-inf')"
    assert literal(math.nan) == "float('nan')"


def test_names_in_lists_each_tensor_once_in_order() -> None:
    code = Code(text="f.sum(lens) + f.sum(q)", phase=Phase.DATA, tensors=("lens", "q"))
    args = BoundArguments(
        positional=(TensorRef(name="q"), code), named=(("k", TensorRef(name="k")),)
    )
    assert names_in(args) == ("q", "lens", "k")


def test_a_long_call_is_written_one_argument_a_line() -> None:
    items = [Source(f"argument_{i}=tensor_{i}") for i in range(6)]
    text = wrap("kernel[(128,)](", items, ")", 12)
    assert text.splitlines()[0] == "kernel[(128,)]("
    assert text.splitlines()[1] == " " * 16 + "argument_0=tensor_0,"
    assert text.splitlines()[-1] == " " * 12 + ")"
    assert wrap("f(", items[:1], ")", 12) == "f(argument_0=tensor_0)"
