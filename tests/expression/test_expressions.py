"""The grammar of expressions, what they are worth, and what is left of them for the harness."""

from __future__ import annotations

import math
import pickle

import pytest

from tirbench.expression import (
    Expression,
    ExpressionError,
    Layout,
    Scope,
    Site,
    UnknownNameError,
    bind,
    evaluate,
)
from tirbench.values import OMIT, Code, CScalar, Dtype, Phase, TensorRef, Value

SM_COUNT = Code(text="device.sm_count", phase=Phase.DEVICE)


@pytest.fixture
def scope() -> Scope:
    return Scope(
        values={
            "hidden": 4096,
            "batch": 3,
            "lens": (5, 33, 64),
            "layout": "compact",
            "dtype": Dtype("float16"),
            "has_z": False,
        },
        later={"rows": Code(text="f.sum(row_lens)", phase=Phase.DATA, tensors=("row_lens",))},
        tensors={
            "x": Layout(dtype=Dtype("float16"), shape=(3, 4096)),
            "t": Layout(dtype=Dtype("float32"), shape=(4096, 3), strides=(1, 4096)),
            "row_lens": Layout(dtype=Dtype("int32"), shape=(7,)),
            "work": Layout(dtype=Dtype("float32"), shape=(SM_COUNT, 4)),
        },
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("hidden // 2", 2048),
        ("4 if hidden <= 1024 else 8", 8),
        ("sum(lens * (lens + 1))", 5 * 6 + 33 * 34 + 64 * 65),
        ("max(lens)", 64),
        ("max(lens, 8)", (8, 33, 64)),
        ("cdiv(lens, 64)", (1, 1, 1)),
        ("lens >= 33", (False, True, True)),
        ("align(100, 64)", 128),
        ("next_pow2(4097)", 8192),
        ("hidden ** -0.5", 1 / 64),
        ("log2(hidden)", 12.0),
        ("len(lens) + 1", 4),
        ("len(row_lens)", 7),
        ("layout == 'compact' and not has_z", True),
        ("dtype == 'float16'", True),
        ("str(dtype)", "float16"),
        ("itemsize(dtype)", 2),
        ("size(x, -1)", 4096),
        ("stride(x, 0)", 4096),
        ("stride(t, 1)", 4096),
        ("numel(x)", 3 * 4096),
        ("nbytes(t)", 3 * 4096 * 4),
        ("'NHD'", "NHD"),
        ("None", None),
        ("-inf", -math.inf),
        ("2 ** 62", 2**62),
        ("float16", Dtype("float16")),
    ],
)
def test_what_the_case_knows_becomes_a_value(text: str, value: Value, scope: Scope) -> None:
    assert bind(Expression(text), scope) == value


@pytest.mark.parametrize(
    ("text", "code", "phase", "tensors"),
    [
        ("min(batch, 4 * sm_count)", "f.min(3, 4 * device.sm_count)", Phase.DEVICE, ()),
        ("sum(row_lens) * 2 * hidden", "f.sum(row_lens) * 2 * 4096", Phase.DATA, ("row_lens",)),
        ("rows + 1", "f.sum(row_lens) + 1", Phase.DATA, ("row_lens",)),
        ("numel(work)", "device.sm_count * 4", Phase.DEVICE, ()),
        ("lens * row_lens", 'f.apply("*", (5, 33, 64), row_lens)', Phase.DATA, ("row_lens",)),
        ("inf * sm_count", "f.inf * device.sm_count", Phase.DEVICE, ()),
        ("(-batch) ** sm_count", "(-3) ** device.sm_count", Phase.DEVICE, ()),
        ("batch > 1 and sm_count > 2", "device.sm_count > 2", Phase.DEVICE, ()),
        (
            "1 if sm_count > 2 else dtype",
            "1 if device.sm_count > 2 else torch.float16",
            Phase.DEVICE,
            (),
        ),
    ],
)
def test_what_only_the_harness_can_know_stays_code(
    text: str, code: str, phase: Phase, tensors: tuple[str, ...], scope: Scope
) -> None:
    assert bind(Expression(text), scope) == Code(text=code, phase=phase, tensors=tensors)


def test_a_bare_tensor_is_the_tensor_itself(scope: Scope) -> None:
    assert bind(Expression("x"), scope) == TensorRef(name="x")


def test_a_branch_that_the_case_does_not_take_leaves_no_trace(scope: Scope) -> None:
    assert bind(Expression("x if has_z else None"), scope) is None
    assert bind(Expression("unknown if has_z else omit"), scope) is OMIT


def test_a_c_scalar_keeps_its_width_and_stands_outermost(scope: Scope) -> None:
    assert bind(Expression("int32(batch)"), scope) == CScalar(ctype="int32", value=3)
    bound = bind(Expression("float32(sum(row_lens))"), scope)
    assert isinstance(bound, CScalar)
    assert isinstance(bound.value, Code)
    with pytest.raises(ExpressionError, match="must be outermost"):
        bind(Expression("int32(batch) + 1"), scope)


def test_a_constant_of_a_tuner_is_read_from_meta_where_the_site_allows_it(scope: Scope) -> None:
    site = Site(meta=frozenset({"BLOCK_M"}))
    bound = bind(Expression("cdiv(hidden, BLOCK_M)"), scope, site)
    assert bound == Code(text='f.cdiv(4096, meta["BLOCK_M"])', phase=Phase.DEVICE)
    with pytest.raises(UnknownNameError):
        bind(Expression("cdiv(hidden, BLOCK_M)"), scope)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b", "attributes"),
        ("a[0]", "subscripts"),
        ("[1, 2]", "lists"),
        ("(1, 2)", "tuples"),
        ("1 < 2 < 3", "two values at a time"),
        ("a in b", "'in'"),
        ("a is None", "'is'"),
        ("a & b", "'&'"),
        ("f'{a}'", "f-strings"),
        ("lambda: 1", "functions are not"),
        ("(a := 1)", "assignments"),
        ("1j", "complex literals"),
        ("b'x'", "bytes literals"),
        ("...", "ellipsis literals"),
        ("min(*a)", r"'\*' arguments"),
        ("sum(x=1)", "by position"),
        ("open(1)", "unknown function 'open'"),
        ("min()", "takes 1 to 64 arguments, got 0"),
        ("cdiv(1)", "takes 2 arguments, got 1"),
        ("9223372036854775808", "below 2"),
        ("1) + (2", "not an expression"),
        ("1; 2", "not an expression"),
        ("1if a else 2", "not an expression"),
        ("'\\n'", "backslashes"),
        ("", "empty"),
        ("a\0", "not an expression"),
        ("(" * 400, "not an expression"),
        ("-" * 900 + "1", "at most 100 deep"),
        ("1" * 1001, "at most 1,000 characters"),
    ],
)
def test_a_text_that_is_not_of_the_language_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden // 0", "division by zero"),
        ("hidden % 0", "division by zero"),
        ("2 ** 63", "exponents are at most 62"),
        ("hidden ** 8", "below 2"),
        ("(-2) ** 0.5", "not a real number"),
        ("1e308 ** 2", "too large"),
        ("sqrt(-1)", "math domain|nonnegative"),
        ("layout + 'x'", "takes numbers, got the text 'compact'"),
        ("layout % 3", "takes numbers"),
        ("dtype * 2", "takes numbers, got the dtype float16"),
        ("None + 1", "takes numbers, got None"),
        ("omit + 1", "'omit' stands alone"),
        ("sum(3)", "takes a list"),
        ("len('abc')", "takes numbers"),
        ("lens * (lens if has_z else max(lens, 3)) if lens else 1", "neither true nor false"),
        ("size(x, 2)", "dimension 2 of a tensor with 2 dimensions"),
        ("size(hidden, 0)", "takes a tensor, got 4096"),
        ("size(x, hidden / 2)", "takes a dimension's number"),
        ("sum(x)", "only integer tensors"),
        ("rank", r"\[ranks\]"),
        ("gathered(x)", "only in the oracle"),
        ("x if sm_count > 3 else omit", "decided by the case"),
        ("layout < 3", "not supported"),
    ],
)
def test_an_expression_without_a_value_says_why(text: str, message: str, scope: Scope) -> None:
    with pytest.raises(ExpressionError, match=message):
        bind(Expression(text), scope)


def test_a_site_refuses_a_later_phase_and_says_what_reads_it(scope: Scope) -> None:
    shape = Site(what="a shape", latest=Phase.CASE)
    with pytest.raises(ExpressionError, match="'sm_count' reads the device"):
        bind(Expression("sm_count * 2"), scope, shape)
    with pytest.raises(ExpressionError, match="'rows' reads the contents of tensors"):
        bind(Expression("rows"), scope, shape)
    scratch = Site(what="a shape", latest=Phase.DEVICE)
    with pytest.raises(ExpressionError, match="case and device"):
        bind(Expression("sum(row_lens)"), scope, scratch)
    assert isinstance(bind(Expression("sm_count"), scope, scratch), Code)


def test_evaluate_refuses_what_is_no_value(scope: Scope) -> None:
    assert evaluate(Expression("hidden"), scope) == 4096
    for text in ("x", "sm_count", "int32(sm_count)"):
        with pytest.raises(ExpressionError):
            evaluate(Expression(text), scope, Site())


def test_an_error_points_at_the_fault_in_the_text() -> None:
    text = "hidden // (hidden - nope)"
    with pytest.raises(UnknownNameError) as caught:
        bind(Expression(text), Scope(values={"hidden": 1}))
    assert caught.value.span is not None
    start, length = caught.value.span
    assert text[start : start + length] == "nope"


def test_the_memo_keeps_apart_what_python_calls_equal() -> None:
    memo: dict[tuple[object, ...], Value] = {}
    results = [
        bind(Expression("str(v)"), Scope(values={"v": value}, memo=memo))
        for value in (1, 1.0, True, (1,), (1.0,), Dtype("int8"), "int8")
        if not isinstance(value, tuple)
    ]
    assert results == ["1", "1.0", "True", "int8", "int8"]


def test_expressions_are_compared_by_text_and_cross_processes() -> None:
    expression = Expression("hidden // 2")
    assert expression == Expression("hidden // 2")
    assert hash(expression) == hash(Expression("hidden // 2"))
    assert pickle.loads(pickle.dumps(expression)) == expression  # noqa: S301 - our own bytes
