"""What is left of an expression when the case is known: a syntax tree for the harness."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tirbench.values import Code, Dtype, Phase, TensorRef

if TYPE_CHECKING:
    from collections.abc import Sequence

_BINARY: dict[str, ast.operator] = {
    "+": ast.Add(),
    "-": ast.Sub(),
    "*": ast.Mult(),
    "/": ast.Div(),
    "//": ast.FloorDiv(),
    "%": ast.Mod(),
    "**": ast.Pow(),
}
_COMPARISONS: dict[str, ast.cmpop] = {
    "==": ast.Eq(),
    "!=": ast.NotEq(),
    "<": ast.Lt(),
    "<=": ast.LtE(),
    ">": ast.Gt(),
    ">=": ast.GtE(),
}


@dataclass(frozen=True, slots=True)
class Residual:
    """Code that the harness evaluates, the phase it needs and the tensors whose contents it reads."""

    tree: ast.expr
    phase: Phase
    tensors: tuple[str, ...] = ()

    @staticmethod
    def operator(symbol: str, a: Residual, b: Residual) -> Residual:
        """`a symbol b`; through `f.apply` where a list meets what may be a tensor."""
        if isinstance(a.tree, ast.Tuple) or isinstance(b.tree, ast.Tuple):
            quoted = Residual(ast.Constant(value=symbol), Phase.CASE)
            return Residual.call("apply", [quoted, a, b])
        tree: ast.expr
        if symbol in _BINARY:
            tree = ast.BinOp(left=a.tree, op=_BINARY[symbol], right=b.tree)
        else:
            tree = ast.Compare(left=a.tree, ops=[_COMPARISONS[symbol]], comparators=[b.tree])
        return _join(tree, (a, b))

    @staticmethod
    def boolean(op: ast.boolop, operands: Sequence[Residual]) -> Residual:
        """Operands joined by `and` or `or`."""
        return _join(ast.BoolOp(op=op, values=[operand.tree for operand in operands]), operands)

    @staticmethod
    def conditional(test: Residual, body: Residual, orelse: Residual) -> Residual:
        """`body if test else orelse`."""
        tree = ast.IfExp(test=test.tree, body=body.tree, orelse=orelse.tree)
        return _join(tree, (test, body, orelse))

    @staticmethod
    def call(function: str, arguments: Sequence[Residual]) -> Residual:
        """`f.function(arguments)`."""
        tree = ast.Call(
            func=ast.Attribute(value=ast.Name(id="f"), attr=function),
            args=[argument.tree for argument in arguments],
            keywords=[],
        )
        return _join(tree, arguments)


def residual(value: Any) -> Residual:
    """A bound value as a syntax tree; a `Residual` is returned as it is."""
    match value:
        case Residual():
            return value
        case Code():
            return Residual(ast.parse(value.text, mode="eval").body, value.phase, value.tensors)
        case TensorRef():
            return Residual(ast.Name(id=value.name), Phase.CASE, (value.name,))
        case tuple():
            items = [residual(item) for item in value]
            return _join(ast.Tuple(elts=[item.tree for item in items], ctx=ast.Load()), items)
        case _:
            return Residual(_literal(value), Phase.CASE)


def code(value: Residual) -> Code:
    """The text of a residual, with double quotes as everywhere in a harness."""
    text = ast.unparse(value.tree)
    if '"' not in text:
        text = text.replace("'", '"')
    return Code(text=text, phase=value.phase, tensors=value.tensors)


def _literal(value: Any) -> ast.expr:
    """The tree of a literal; negative numbers are signs, so that `**` binds as it should."""
    if isinstance(value, Dtype):
        return ast.Attribute(value=ast.Name(id="torch"), attr=str(value))
    if isinstance(value, float) and not math.isfinite(value):
        name = ast.Attribute(value=ast.Name(id="f"), attr="nan" if math.isnan(value) else "inf")
        return ast.UnaryOp(op=ast.USub(), operand=name) if value < 0 else name
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.copysign(1, value) < 0
    ):
        return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=-value))
    return ast.Constant(value=value)


def _join(tree: ast.expr, parts: Sequence[Residual]) -> Residual:
    """A residual of the tree with the latest phase and all tensors of its parts."""
    phase = max((part.phase for part in parts), default=Phase.CASE)
    tensors = dict.fromkeys(name for part in parts for name in part.tensors)
    return Residual(tree, phase, tuple(tensors))
