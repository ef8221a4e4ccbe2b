"""Give expressions their values: what the case knows is computed, what it cannot know stays code."""

from __future__ import annotations

from functools import lru_cache

from tirbench.expression.evaluator import Evaluator
from tirbench.expression.parse import Expression, ExpressionError
from tirbench.expression.scope import ANYWHERE, Scope, Site, is_value
from tirbench.values import Bound, Phase, TensorRef, Value


def bind(argument: object, scope: Scope, site: Site = ANYWHERE) -> Bound:
    """The bound value of an argument: an expression, a number, or a tuple of arguments.

    Raises:
        ExpressionError: it has no value, or reads a later phase than `site` allows.
    """
    match argument:
        case Expression():
            return _bind_expression(argument, scope, site)
        case tuple():
            return tuple(bind(item, scope, site) for item in argument)
        case bool() | int() | float() | None:
            return argument
        case _:
            raise TypeError(f"not an argument of the language: {argument!r}")


def evaluate(argument: object, scope: Scope, site: Site | None = None) -> Value:
    """The case value of an argument.

    Raises:
        ExpressionError: it has none, or only a device or the tensors' contents know it.
    """
    bound = bind(argument, scope, site or Site(latest=Phase.CASE))
    if isinstance(bound, TensorRef):
        raise ExpressionError(f"'{bound.name}' is a tensor; a value that the case knows is needed")
    if not is_value(bound):
        raise ExpressionError("a value that the case knows is needed")
    return bound  # type: ignore[return-value]  # narrowed by is_value


def _bind_expression(expression: Expression, scope: Scope, site: Site) -> Bound:
    """Evaluate one expression, reusing the result of an earlier case with the same values."""
    text, values = expression.text, scope.values
    if text in values:  # most expressions are a single name
        return values[text]
    if text in scope.tensors and text not in scope.later:
        return _tensor(text)
    key = scope.key((text,), expression.names)
    if key in scope.memo:
        return scope.memo[key]
    result = Evaluator(text, scope, site).top(expression.tree)
    if key is not None and is_value(result):
        scope.memo[key] = result  # type: ignore[assignment]  # narrowed by is_value
    return result


@lru_cache(maxsize=1 << 12)
def _tensor(name: str) -> TensorRef:
    return TensorRef(name=name)
