"""Bind the expressions of one case, and note what has no value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from tirbench.diagnostics import did_you_mean, without_quotes
from tirbench.expression import (
    Expression,
    ExpressionError,
    Scope,
    Site,
    UnknownNameError,
    bind,
    describe,
    site,
)
from tirbench.model import Arguments, BoundArguments, BoundFunction, Function
from tirbench.values import OMIT, Code, CScalar, Dtype, Phase, TensorRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tirbench.diagnostics import Problems
    from tirbench.model import Argument, Path
    from tirbench.values import Bound

CALL: Final = Site(what="an argument")
_MAX_VALUES: Final = 6


@dataclass(slots=True)
class Report:
    """What is wrong with the cases of a workload: each place once, with the cases it concerns."""

    problems: Problems
    _cases: dict[tuple[str, Path], list[Any]] = field(default_factory=dict)

    def add(
        self,
        code: str,
        path: Path,
        message: str,
        *,
        case: str,
        detail: str = "",
        hint: str = "",
        span: tuple[int, int] | None = None,
    ) -> None:
        """Note a problem of one case; the first case speaks for the others."""
        known = self._cases.setdefault((code, path), [message, detail, hint, span, case, set()])
        known[-1].add(case)

    def close(self) -> None:
        """Hand everything on to the problems of the file."""
        for (code, path), (message, detail, hint, span, case, cases) in self._cases.items():
            more = f" and {len(cases) - 1} more" * (len(cases) > 1)
            where = f"in case {case}{more}" + f": {detail}" * bool(detail)
            full = f"{hint} ({where})" if hint else where
            self.problems.add(code, path, message, hint=full, span=span)
        self._cases.clear()

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return bool(self._cases or self.problems)


@dataclass(slots=True)
class Binder:
    """One case: its scope, its name in messages, and where problems go."""

    scope: Scope
    report: Report
    case: str
    failed: bool = False

    def bind(self, argument: Argument | None, path: Path, site: Site) -> Bound:
        """The bound value of an argument; `None` where it has none, which is then noted."""
        if isinstance(argument, Expression) and argument.text in self.scope.values:
            return self.scope.values[argument.text]  # most arguments are one name
        if isinstance(argument, tuple):
            return tuple(self.bind(item, (*path, i), site) for i, item in enumerate(argument))
        try:
            return bind(argument, self.scope, site)
        except UnknownNameError as error:
            hint = did_you_mean(error.name, [*self.scope.values, *self.scope.tensors])
            self.note("TB021", path, error.message, argument, hint=hint, span=error.span)
        except ExpressionError as error:
            self.note("TB022", path, error.message, argument, hint=error.hint, span=error.span)
        return None

    def given(self, argument: Argument | None, path: Path, site: Site) -> Bound:
        """The bound value of what cannot be left out; `omit` is noted."""
        value = self.bind(argument, path, site)
        if value is OMIT or (isinstance(value, tuple) and any(item is OMIT for item in value)):
            hint = "leave the key out, or let the expression have a value in every case"
            self.note("TB023", path, "'omit' drops an argument, and this is none", hint=hint)
            return None
        return value

    def note(
        self,
        code: str,
        path: Path,
        message: str,
        argument: object = None,
        *,
        hint: str = "",
        span: tuple[int, int] | None = None,
    ) -> None:
        """Note a problem of this case, with the values that the expression reads."""
        detail = ", ".join(self.shown(argument)) if isinstance(argument, Expression) else ""
        self.failed = True
        self.report.add(code, path, message, case=self.case, detail=detail, hint=hint, span=span)

    def shown(self, expression: Expression) -> list[str]:
        """The names of an expression with their values: `hidden = 4096`."""
        known = [name for name in expression.names if name in self.scope.values]
        return [f"{name} = {_value_text(self.scope.values[name])}" for name in known[:_MAX_VALUES]]

    def several(self, items: Iterable[Argument], path: Path, site: Site) -> tuple[Bound, ...]:
        """The bound values of a list of arguments."""
        return tuple(self.bind(item, (*path, i), site) for i, item in enumerate(items))

    def dtype(self, expression: Expression | None, path: Path) -> Dtype | None:
        """A dtype of the case; noted where it is something else."""
        value = self.bind(expression, path, site("a dtype", Phase.CASE))
        if isinstance(value, Dtype):
            return value
        if value is not None:
            message = f"a dtype is needed, got {describe(value)}"
            self.note("TB023", path, message, expression)
        return None

    def integer(
        self, argument: Argument, path: Path, site: Site, *, least: int, what: str
    ) -> Bound:
        """An integer of at least `least`, or code where the site allows it."""
        value = self.bind(argument, path, site)
        if isinstance(value, Code) or (value is None and self.failed):
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            message = f"{what} must be a whole number, got {describe(value)}"
            hint = "divide with //" if isinstance(value, float) else without_quotes(value)
            self.note("TB023", path, message, argument, hint=hint)
            return None
        if value < least:
            self.note("TB042", path, f"{what} must be at least {least}, got {value}", argument)
            return None
        return value

    def number(self, argument: Argument | None, path: Path, what: str) -> float | None:
        """A finite number of the case that is not negative."""
        if argument is None:
            return None
        value = self.bind(argument, path, site(what, Phase.CASE))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.note("TB023", path, f"{what} must be a number, got {describe(value)}", argument)
            return None
        if not 0 <= value < float("inf"):
            self.note(
                "TB061", path, f"{what} must be finite and not negative, got {value}", argument
            )
            return None
        return float(value)

    def items(self, args: Arguments, path: Path, site: Site) -> Iterator[Item]:
        """The arguments of a call with their places, without those that are omitted."""
        written: list[tuple[str | int, Argument]] = [*enumerate(args.positional), *args.named]
        for key, argument in written:
            place = (*path, key)
            value = self.bind(argument, place, site)
            if isinstance(value, tuple) and any(item is OMIT for item in value):
                message = "'omit' drops an argument; it cannot drop an entry of a list"
                self.note("TB023", place, message)
            if value is not OMIT:
                yield Item(key, value, argument, place)

    def function(self, function: Function | None, site: Site = CALL) -> BoundFunction | None:
        """A function with its arguments bound."""
        if function is None:
            return None
        items = list(self.items(function.args, (*function.path, "args"), site))
        for item in items:
            if isinstance(item.value, CScalar):
                message = f"{item.value.ctype}() makes a C scalar, which only a cuda kernel takes"
                self.note("TB023", item.path, message, item.argument)
        return BoundFunction(
            target=function.target,
            path=function.path,
            args=bound_arguments(items),
            returns=function.returns,
        )


class Item(NamedTuple):
    """One argument: its position or name, its value, how it is written, and where."""

    key: str | int
    value: Bound
    argument: Argument
    path: Path


def bound_arguments(items: Iterable[Item]) -> BoundArguments:
    """Arguments by position and by name."""
    positional: list[Bound] = []
    named: list[tuple[str, Bound]] = []
    for key, value, _, _ in items:
        if isinstance(key, str):
            named.append((key, value))
        else:
            positional.append(value)
    return BoundArguments(positional=tuple(positional), named=tuple(named))


def tensors_in(*values: object) -> dict[str, None]:
    """The names of the tensors that bound values refer to or read, in order of appearance."""
    found: dict[str, None] = {}
    for value in values:
        _find_tensors(value, found)
    return found


def _find_tensors(value: Any, found: dict[str, None]) -> None:
    """Add the tensors of one value, told by its class: this is asked of every argument of every case."""
    kind = value.__class__
    if kind is TensorRef:
        found[value.name] = None
    elif kind is tuple:
        for item in value:
            _find_tensors(item, found)
    elif kind is Code:
        found.update(dict.fromkeys(value.tensors))
    elif kind is BoundArguments:
        _find_tensors(value.positional, found)
        for _, item in value.named:
            _find_tensors(item, found)
    elif kind is BoundFunction:
        _find_tensors(value.args, found)
    elif kind is CScalar:
        _find_tensors(value.value, found)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a bound value is a number of the case."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole_numbers(values: Iterable[Bound]) -> list[int]:
    """Those of the values that are whole numbers of the case."""
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool)]


def _value_text(value: object) -> str:
    """A value as a message shows it."""
    if isinstance(value, tuple):
        text = ", ".join(_value_text(item) for item in value[:8])
        return f"[{text}{', …' * (len(value) > 8)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else repr(value)
