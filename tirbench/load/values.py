"""From what TOML has at a place to what the language has there: expressions, numbers, dtypes, calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tirbench.expression import INT_LIMIT, Expression, ExpressionError
from tirbench.model import Arguments, Function
from tirbench.values import DTYPES, Dtype, Value

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.model import Argument, Path

_BROKEN: Final = Expression("None")
"""Stands for an expression that could not be read; its problem is already noted."""


class Values:
    """Converts values; what cannot be read is noted, and stood in for."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def argument(self, raw: Any, path: Path) -> Argument:
        """A value in a position typed *expr*."""
        if isinstance(raw, str):
            return self.expression(raw, path)
        if isinstance(raw, list):
            return tuple(self.argument(item, (*path, i)) for i, item in enumerate(raw))
        number: bool | int | float = self.number(raw, path)
        return number

    def maybe(self, table: dict[str, Any], key: str, path: Path) -> Argument | None:
        """The argument at a key that may be absent."""
        return self.argument(table[key], (*path, key)) if key in table else None

    def several(self, raw: list[Any] | None, path: Path) -> tuple[Argument, ...] | None:
        """A list of arguments that may be absent."""
        if raw is None:
            return None
        return tuple(self.argument(item, (*path, i)) for i, item in enumerate(raw))

    def expression(self, raw: str, path: Path) -> Expression:
        """An expression, or a stand-in when it cannot be read."""
        try:
            return Expression(raw)
        except ExpressionError as error:
            self.problems.add("TB020", path, error.message, hint=error.hint, span=error.span)
            return _BROKEN

    def texts(self, raw: list[str], path: Path) -> tuple[Expression, ...]:
        """A list of expressions."""
        return tuple(self.expression(text, (*path, i)) for i, text in enumerate(raw))

    def number(self, raw: Any, path: Path) -> Any:
        """A number or boolean, within the language's bounds."""
        if isinstance(raw, int) and not -INT_LIMIT < raw < INT_LIMIT:
            self.problems.add("TB014", path, "integers stay below 2**63")
            return 0
        return raw

    def literal(self, raw: Any, path: Path) -> Value:
        """A value of `[params]`, `[matrix]` or `[[case]]`; text that spells a dtype is one."""
        if isinstance(raw, str):
            return Dtype(raw) if raw in DTYPES else raw
        if isinstance(raw, list):
            return tuple(self.number(item, (*path, i)) for i, item in enumerate(raw))
        value: Value = self.number(raw, path)
        return value

    def literals(self, raw: dict[str, Any], path: Path) -> tuple[tuple[str, Value], ...]:
        """Named literals."""
        return tuple((name, self.literal(value, (*path, name))) for name, value in raw.items())

    def dtype(self, raw: Any, path: Path) -> Expression | None:
        """An expression that must be a dtype."""
        if raw is None:
            return None
        if isinstance(raw, str):
            return self.expression(raw, path)
        self.problems.add(
            "TB012", path, f"a dtype is a name, got {raw!r}", hint='dtype = "float16"'
        )
        return _BROKEN

    def arguments(self, raw: Any, path: Path) -> Arguments:
        """`args`, by position or by name."""
        if isinstance(raw, dict):
            named = ((name, self.argument(value, (*path, name))) for name, value in raw.items())
            return Arguments(named=tuple(named))
        return Arguments(positional=self.several(raw, path) or ())

    def function(self, raw: dict[str, Any], path: Path) -> Function:
        """A named function with its arguments."""
        return Function(
            target=raw["target"],
            path=path,
            args=self.arguments(raw.get("args", []), (*path, "args")),
            returns=names(raw.get("returns")),
        )

    def maybe_function(self, raw: dict[str, Any], key: str, path: Path) -> Function | None:
        """The function at a key that may be absent."""
        return self.function(raw[key], (*path, key)) if key in raw else None


def names(raw: Any) -> tuple[str, ...]:
    """One name or a list of names."""
    if raw is None:
        return ()
    return (raw,) if isinstance(raw, str) else tuple(raw)
