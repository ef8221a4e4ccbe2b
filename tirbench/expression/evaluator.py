"""Walk the tree of one expression.

The evaluator is partial. Every node becomes a value, a `TensorRef`, or a `Residual`: a syntax tree over
tensors, `device`, `meta` and `f` for the harness. Conditions that the case decides are decided here,
so the branch not taken leaves no trace.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from tirbench.expression import functions
from tirbench.expression.parse import (
    DEVICE_NAMES,
    INT_LIMIT,
    RANK_NAMES,
    TENSOR_FUNCTIONS,
    ExpressionError,
    UnknownNameError,
    span,
)
from tirbench.expression.residual import Residual, code, residual
from tirbench.expression.scope import (
    CONSTANTS,
    Layout,
    Scope,
    Site,
    describe,
    product,
    strides_of,
)
from tirbench.values import DTYPES, OMIT, Bound, Code, CScalar, Dtype, Phase, TensorRef

MAX_EXPONENT: Final = 62


class Evaluator:
    """Walks one expression's tree."""

    def __init__(self, text: str, scope: Scope, site: Site) -> None:
        self.text = text
        self.scope = scope
        self.site = site

    def top(self, tree: ast.expr) -> Bound:
        """The bound value of a whole expression; C scalars only exist here, outermost."""
        if (
            isinstance(tree, ast.Call)
            and isinstance(tree.func, ast.Name)
            and tree.func.id in DTYPES
        ):
            value = self.value(tree.args[0])
            if isinstance(value, Residual):
                return CScalar(ctype=tree.func.id, value=code(value))
            if not isinstance(value, bool | int | float):
                raise self.error(f"{tree.func.id}() takes a number, got {describe(value)}", tree)
            return CScalar(ctype=tree.func.id, value=value)
        if isinstance(tree, ast.IfExp):
            test = self.value(tree.test)
            if not isinstance(test, Residual | TensorRef):
                return self.top(tree.body if self.truth(test, tree.test) else tree.orelse)
        value = self.value(tree)
        return code(value) if isinstance(value, Residual) else value

    def value(self, node: ast.expr) -> Any:
        """The value of a node: a `Value`, a `TensorRef` or a `Residual`."""
        return _RULES[node.__class__](self, node)

    def operation(self, node: ast.BinOp) -> Any:
        """`a + b`."""
        return self.binary(_SYMBOLS[node.op.__class__], node.left, node.right, node)

    def comparison(self, node: ast.Compare) -> Any:
        """`a < b`; parse() lets one comparison through."""
        symbol = _SYMBOLS[node.ops[0].__class__]
        return self.binary(symbol, node.left, node.comparators[0], node)

    def name(self, node: ast.Name) -> Any:
        """What a name stands for, checked against the phase of the site."""
        name, scope = node.id, self.scope
        if name in scope.values:
            return scope.values[name]
        if name in CONSTANTS:
            return CONSTANTS[name]
        if isinstance(scope.later.get(name), TensorRef):
            return scope.later[name]  # a derived name that stands for a tensor is that tensor
        if name in scope.later:
            return self.within(residual(scope.later[name]), node)
        if name in scope.tensors:
            return TensorRef(name=name)
        if name in DEVICE_NAMES:
            if name in RANK_NAMES and not scope.ranked:
                raise self.error(f"'{name}' is known only in a workload with [ranks]", node)
            tree = ast.Attribute(value=ast.Name(id="device"), attr=name)
            return self.within(Residual(tree, Phase.DEVICE), node)
        if name in self.site.meta:
            constant = ast.Subscript(value=ast.Name(id="meta"), slice=ast.Constant(value=name))
            return Residual(constant, Phase.DEVICE)
        raise UnknownNameError(name, span=span(node, self.text))

    def within(self, value: Any, node: ast.expr) -> Any:
        """`value`, if the site may read its phase."""
        if isinstance(value, Residual) and value.phase > self.site.latest:
            what = ast.unparse(node)
            reads = "the contents of tensors" if value.phase is Phase.DATA else "the device"
            allowed = "what the case knows" if self.site.latest is Phase.CASE else "case and device"
            raise self.error(
                f"{self.site.what} reads only {allowed}, but '{what}' reads {reads}", node
            )
        return value

    def contents(self, value: Any, node: ast.expr) -> Any:
        """An operand: the contents of an integer tensor where a tensor is named."""
        if value.__class__ is int:
            return value
        if isinstance(value, TensorRef):
            dtype = self.layout(value.name, node).dtype
            if dtype.floating:
                raise self.error(
                    f"'{value.name}' is {dtype:s}; only integer tensors can be read in an expression",
                    node,
                )
            tree = ast.Name(id=value.name)
            return self.within(Residual(tree, Phase.DATA, (value.name,)), node)
        if value is OMIT:
            raise self.error("'omit' stands alone: it drops an argument", node)
        return value

    def layout(self, name: str, node: ast.expr) -> Layout:
        """The layout of a tensor of the workload."""
        if name not in self.scope.tensors:
            raise UnknownNameError(name, span=span(node, self.text))
        return self.scope.tensors[name]

    def binary(self, symbol: str, left: ast.expr, right: ast.expr, node: ast.expr) -> Any:
        """An arithmetic operator or a comparison."""
        a = self.contents(self.value(left), left)
        b = self.contents(self.value(right), right)
        if a.__class__ is int and b.__class__ is int and symbol in _WHOLE:  # nearly all of them
            if -INT_LIMIT < (whole := _WHOLE[symbol](a, b)) < INT_LIMIT:
                return whole
            raise self.error("the result does not stay below 2**63", node)
        if isinstance(a, Residual) or isinstance(b, Residual):
            return Residual.operator(symbol, residual(a), residual(b))
        if symbol in ("==", "!=") and not (isinstance(a, tuple) or isinstance(b, tuple)):
            return (a == b) is (symbol == "==")
        for operand, at in ((a, left), (b, right)):
            self.number(
                operand, at, f"'{symbol}'", text=symbol in ("<", "<=", ">", ">=", "==", "!=")
            )
        if symbol == "**":
            self.exponent(a, b, node)
        return self.compute(lambda: functions.apply(symbol, a, b), node)

    def exponent(self, base: Any, exponent: Any, node: ast.expr) -> None:
        """Refuse powers that could be huge or complex.

        Raises:
            ExpressionError: the exponent is above 62, or fractional of a negative base.
        """
        for e in exponent if isinstance(exponent, tuple) else (exponent,):
            if abs(e) > MAX_EXPONENT:
                raise self.error(f"exponents are at most {MAX_EXPONENT}, got {e}", node)
            for b in base if isinstance(base, tuple) else (base,):
                if b < 0 and e != int(e):
                    raise self.error(f"{b} ** {e} is not a real number", node)

    def unary(self, node: ast.UnaryOp) -> Any:
        """Sign or negation."""
        operand = self.contents(self.value(node.operand), node.operand)
        if isinstance(operand, Residual):
            return Residual(
                ast.UnaryOp(op=node.op, operand=operand.tree), operand.phase, operand.tensors
            )
        if isinstance(node.op, ast.Not):
            return not self.truth(operand, node.operand)
        self.number(operand, node.operand, "a sign")
        sign = 1 if isinstance(node.op, ast.UAdd) else -1
        return self.compute(
            lambda: (
                functions.apply("*", operand, sign)
                if sign < 0 or isinstance(operand, tuple)
                else +operand
            ),
            node,
        )

    def boolean(self, node: ast.BoolOp) -> Any:
        """`and` or `or`, as Python: the operand that decides; operands known to decide nothing go."""
        decides = isinstance(node.op, ast.Or)
        rest: list[Residual] = []
        for index, operand in enumerate(node.values):
            value = self.contents(self.value(operand), operand)
            last = index == len(node.values) - 1
            if not isinstance(value, Residual):
                if self.truth(value, operand) is not decides and not last:
                    continue
                if not rest:
                    return value
                rest.append(residual(value))
                break
            rest.append(value)
        return rest[0] if len(rest) == 1 else Residual.boolean(node.op, rest)

    def conditional(self, node: ast.IfExp) -> Any:
        """`a if test else b`: the branch the case chooses, or both if only the harness can."""
        test = self.contents(self.value(node.test), node.test)
        if not isinstance(test, Residual):
            return self.value(node.body if self.truth(test, node.test) else node.orelse)
        branches = []
        for branch in (node.body, node.orelse):
            value = self.value(branch)
            if value is OMIT:
                raise self.error(
                    "whether an argument is omitted is decided by the case alone", branch
                )
            branches.append(residual(value))
        return Residual.conditional(test, *branches)

    def call(self, node: ast.Call) -> Any:
        """A function of the language."""
        name = node.func.id  # type: ignore[attr-defined]  # parse() lets only names through
        if name in DTYPES:
            raise self.error(f"{name}() makes a C scalar and must be outermost", node)
        if name in TENSOR_FUNCTIONS:
            return self.layout_call(name, node)
        if name == "gathered":
            return self.gathered(node)
        values = [self.value(argument) for argument in node.args]
        if name == "len" and isinstance(values[0], TensorRef) and self.site.layouts:
            return self.dimension(self.layout(values[0].name, node).shape, 0, node)
        values = [self.contents(v, at) for v, at in zip(values, node.args, strict=True)]
        if any(isinstance(value, Residual) for value in values):
            return Residual.call(name, [residual(value) for value in values])
        if name != "str":
            for value, at in zip(values, node.args, strict=True):
                self.number(value, at, f"{name}()")
        return self.compute(lambda: getattr(functions, name)(*values), node)

    def layout_call(self, name: str, node: ast.Call) -> Any:
        """`size`, `stride`, `numel`, `nbytes` or `itemsize`, folded where the shape is known."""
        subject = self.value(node.args[0])
        if name == "itemsize" and isinstance(subject, Dtype):
            return subject.itemsize
        if not isinstance(subject, TensorRef):
            kind = "a tensor or a dtype" if name == "itemsize" else "a tensor"
            raise self.error(f"{name}() takes {kind}, got {describe(subject)}", node.args[0])
        if not self.site.layouts:
            raise self.error(f"{name}() reads a shape, which {self.site.what} does not know", node)
        layout = self.layout(subject.name, node)
        if name == "itemsize":
            return layout.dtype.itemsize
        if name in ("numel", "nbytes"):
            scale = layout.dtype.itemsize if name == "nbytes" else 1
            return self.within(product((*layout.shape, scale)), node)
        index = self.value(node.args[1])
        if not isinstance(index, int) or isinstance(index, bool):
            raise self.error(
                f"{name}() takes a dimension's number, got {describe(index)}", node.args[1]
            )
        if name == "size":
            return self.dimension(layout.shape, index, node)
        return self.dimension(strides_of(layout), index, node)

    def dimension(self, sizes: tuple[Any, ...], index: int, node: ast.expr) -> Any:
        """One entry of a shape or of strides."""
        if not -len(sizes) <= index < len(sizes):
            raise self.error(f"dimension {index} of a tensor with {len(sizes)} dimensions", node)
        value = sizes[index]
        return self.within(residual(value), node) if isinstance(value, Code) else value

    def gathered(self, node: ast.Call) -> Any:
        """The tensors of all ranks, joined."""
        subject = self.value(node.args[0])
        if not isinstance(subject, TensorRef):
            raise self.error(f"gathered() takes a tensor, got {describe(subject)}", node.args[0])
        if not self.site.gathers:
            raise self.error(
                "gathered() exists only in the oracle of a workload with [ranks]", node
            )
        tree = ast.Name(id=subject.name)
        return Residual.call("gathered", [Residual(tree, Phase.DATA, (subject.name,))])

    def number(self, value: Any, node: ast.expr, what: str, *, text: bool = False) -> None:
        """Refuse what arithmetic has no meaning for.

        Raises:
            ExpressionError: the value is text (unless `text`), a dtype, `None`, or a list of such.
        """
        for item in value if isinstance(value, tuple) else (value,):
            if not isinstance(item, bool | int | float | (str if text else bool)):
                raise self.error(f"{what} takes numbers, got {describe(item)}", node)

    def truth(self, value: Any, node: ast.expr) -> bool:
        """Whether a condition holds; a list is neither true nor false."""
        if isinstance(value, tuple):
            raise self.error(
                "a list is neither true nor false; reduce it with sum, min or max", node
            )
        return bool(value)

    def compute(self, operation: Callable[[], Any], node: ast.expr) -> Any:
        """The result of an operation on known values, within the language's bounds."""
        try:
            result = operation()
        except ZeroDivisionError:
            raise self.error("division by zero", node) from None
        except OverflowError:
            raise self.error("the result is too large", node) from None
        except (TypeError, ValueError) as error:
            raise self.error(str(error), node) from None
        for item in result if isinstance(result, tuple) else (result,):
            if isinstance(item, int) and not -INT_LIMIT < item < INT_LIMIT:
                raise self.error("the result does not stay below 2**63", node)
        return result

    def error(self, message: str, node: ast.AST) -> ExpressionError:
        """An error about a node, with its place in the text."""
        return ExpressionError(message, span=span(node, self.text))


_SYMBOLS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}

_WHOLE: Final = {symbol: functions.OPERATORS[symbol] for symbol in ("+", "-", "*")}
"""Operators of two whole numbers that need no look at their operands first."""

_RULES: Final[dict[type[ast.expr], Callable[[Evaluator, Any], Any]]] = {
    ast.Constant: lambda _, node: node.value,
    ast.Name: Evaluator.name,
    ast.BinOp: Evaluator.operation,
    ast.Compare: Evaluator.comparison,
    ast.UnaryOp: Evaluator.unary,
    ast.BoolOp: Evaluator.boolean,
    ast.IfExp: Evaluator.conditional,
    ast.Call: Evaluator.call,
}
"""Every node that parse() lets through, by its class; a table is faster than one class after another."""
