"""Expressions equal Python's value or are refused, whatever the text."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench.errors import TirbenchError
from tirbench.expression import Expression, ExpressionError, Layout, Scope, bind
from tirbench.expression import functions as f
from tirbench.values import Code, Dtype, Phase

NAMES = {"a": 7, "b": -3, "c": 2.5, "flag": True, "n": 0}

atoms = st.sampled_from(
    [*NAMES, "0", "1", "2", "62", "1.5", "True", "False", "9223372036854775807"]
)
operators = st.sampled_from(
    ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
)


def same(a: Any, b: Any) -> bool:
    """Whether two results are equal, NaN with itself as well."""
    both_floats = isinstance(a, float) and isinstance(b, float)
    return bool(a == b) or (both_floats and math.isnan(a) and math.isnan(b))


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, operators, inner),
        st.builds("(-{})".format, inner),
        st.builds("(not {})".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["abs", "int", "float", "str"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
    )


texts = st.recursive(atoms, grow, max_leaves=12)


@settings(max_examples=400, deadline=None)
@given(texts)
def test_an_expression_equals_python_or_is_refused(text: str) -> None:
    try:
        ours = bind(Expression(text), Scope(values=NAMES))
    except ExpressionError:
        return
    theirs = eval(text, {}, dict(NAMES))  # noqa: S307 - the text is made of the atoms above
    assert type(ours) is type(theirs)
    assert same(ours, theirs)


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60), st.text(alphabet="ab01+-*/%()<>=,.'\"[]{}: \n\t\\#@&|~^", max_size=60)
    )
)
def test_nothing_but_our_errors_escapes_a_hostile_text(text: str) -> None:
    tensors = {"t": Layout(dtype=Dtype("int32"), shape=(4,))}
    with suppress(TirbenchError):
        bind(Expression(text), Scope(values={"a": 1, "b": (1, 2)}, tensors=tensors))


@settings(max_examples=200, deadline=None)
@given(texts)
def test_code_that_is_left_has_the_value_of_the_whole(text: str) -> None:
    values = {name: value for name, value in NAMES.items() if name != "a"}
    later = {"a": Code(text="device_a", phase=Phase.DEVICE)}
    try:
        expected = bind(Expression(text), Scope(values=NAMES))
        left = bind(Expression(text), Scope(values=values, later=later))
    except ExpressionError:
        return
    value = eval(left.text, {"f": f, "device_a": 7}) if isinstance(left, Code) else left  # noqa: S307 - our own code
    assert same(value, expected)
