"""The grammar of expressions: a subset of Python, read by Python's own parser and then narrowed.

What is not named here does not exist: no attributes, subscripts, displays, lambdas or f-strings. Size,
depth and literals are bounded, so a hostile text costs no more than a friendly one.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tirbench.errors import TirbenchError
from tirbench.values import DTYPES

MAX_TEXT: Final = 1_000
MAX_DEPTH: Final = 100
INT_LIMIT: Final = 2**63
"""Integers of the language lie strictly between `-INT_LIMIT` and `INT_LIMIT`."""

FUNCTIONS: Final[dict[str, tuple[int, int]]] = {
    # name: (least, most) number of arguments
    "cdiv": (2, 2),
    "align": (2, 2),
    "next_pow2": (1, 1),
    "min": (1, 64),
    "max": (1, 64),
    "abs": (1, 1),
    "log2": (1, 1),
    "sqrt": (1, 1),
    "sum": (1, 1),
    "len": (1, 1),
    "int": (1, 1),
    "float": (1, 1),
    "str": (1, 1),
    "size": (2, 2),
    "stride": (2, 2),
    "numel": (1, 1),
    "nbytes": (1, 1),
    "itemsize": (1, 1),
    "gathered": (1, 1),
}

TENSOR_FUNCTIONS: Final = frozenset({"size", "stride", "numel", "nbytes", "itemsize"})
"""Functions of a tensor's layout; `itemsize` also takes a dtype."""

DEVICE_NAMES: Final = frozenset(
    {"sm_count", "l2_bytes", "smem_bytes", "capability", "rank", "local_rank", "world_size"}
)
RANK_NAMES: Final = frozenset({"rank", "local_rank", "world_size"})
"""Device names that only a workload with `[ranks]` has."""

CONSTANT_NAMES: Final = frozenset({"omit", "inf", "nan"})

_OPERATORS: Final = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)  # fmt: skip

_REFUSED: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.Attribute: ("attributes are not part of the language", ""),
    ast.Subscript: ("subscripts are not part of the language", "size(t, i) is a dimension of t"),
    ast.List: ("lists inside an expression are not part of the language", "write a TOML array"),
    ast.Tuple: ("tuples inside an expression are not part of the language", "write a TOML array"),
    ast.Dict: ("dicts are not part of the language", "write a TOML table"),
    ast.Set: ("sets are not part of the language", ""),
    ast.JoinedStr: ("f-strings are not part of the language", ""),
    ast.Lambda: ("functions are not part of the language", "name a Python function as a target"),
    ast.Is: ("'is' is not part of the language", "compare with =="),
    ast.IsNot: ("'is not' is not part of the language", "compare with !="),
    ast.In: ("'in' is not part of the language", "compare with == and join with or"),
    ast.NotIn: ("'not in' is not part of the language", "compare with != and join with and"),
    ast.BitAnd: ("'&' is not part of the language", "'and' joins conditions"),
    ast.BitOr: ("'|' is not part of the language", "'or' joins conditions"),
    ast.BitXor: ("'^' is not part of the language", "powers are written **"),
    ast.LShift: ("'<<' is not part of the language", "write * 2 ** n"),
    ast.RShift: ("'>>' is not part of the language", "write // 2 ** n"),
    ast.Invert: ("'~' is not part of the language", "'not' negates a condition"),
    ast.MatMult: ("'@' is not part of the language", ""),
    ast.NamedExpr: ("assignments are not part of the language", "name it in [derive]"),
    ast.Starred: ("'*' arguments are not part of the language", ""),
}


_INSTEAD: Final = {
    "=": "compare with ==",
    "?": "write a if condition else b",
    "&&": "join conditions with and",
    "||": "join conditions with or",
    "!": "negate with not",
}
"""What expressions of other languages have here; asked only where Python's parser has given up."""

_FOREIGN: Final = re.compile(r"&&|\|\||\?|!(?!=)|(?<![=!<>])=(?!=)")


class ExpressionError(TirbenchError):
    """An expression cannot be read or has no value.

    Args:
        message: what is wrong, without the place.
        hint: what to write instead; may be empty.
        span: offset and length of the fault in the expression's text, in characters.
    """

    def __init__(
        self, message: str, *, hint: str = "", span: tuple[int, int] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.span = span


class UnknownNameError(ExpressionError):
    """An expression reads a name that nothing defines."""

    def __init__(self, name: str, *, hint: str = "", span: tuple[int, int] | None = None) -> None:
        super().__init__(f"unknown name '{name}'", hint=hint, span=span)
        self.name = name


@dataclass(frozen=True, slots=True)
class Expression:
    """A text of the language, known to be well formed. Two expressions of one text are equal.

    Raises:
        ExpressionError: the text is not of the language.
    """

    text: str

    def __post_init__(self) -> None:
        parse(self.text)

    @property
    def tree(self) -> ast.expr:
        """The syntax tree; shared between expressions of one text, so nobody may change it."""
        return parse(self.text)[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The names it reads, sorted; functions are not among them."""
        return parse(self.text)[1]


@lru_cache(maxsize=1 << 14)
def parse(text: str) -> tuple[ast.expr, tuple[str, ...]]:
    """The syntax tree of `text` and the names it reads.

    Raises:
        ExpressionError: the text is too long or too deep, or says what the language has no word for.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(
            f"an expression has at most {MAX_TEXT:,} characters, got {len(text):,}"
        )
    if not text.strip():
        raise ExpressionError(
            "the expression is empty", hint="literal text is quoted inside: \"''\""
        )
    if "\\" in text:
        raise ExpressionError(
            "backslashes are not part of the language", span=(text.index("\\"), 1)
        )
    tree = _syntax_tree(text)
    names: set[str] = set()
    _narrow(tree, text, names, 0)
    return tree, tuple(sorted(names))


def span(node: ast.AST, text: str) -> tuple[int, int] | None:
    """Offset and length, in characters of `text`, of a node of its tree."""
    start, end = getattr(node, "col_offset", None), getattr(node, "end_col_offset", None)
    if start is None or end is None:
        return None
    indent = len(text) - len(text.lstrip())
    if text.isascii():
        return indent + start, max(1, end - start)
    data = text.lstrip().encode()
    return indent + len(data[:start].decode()), max(1, len(data[start:end].decode()))


def _syntax_tree(text: str) -> ast.expr:
    """Python's tree of the text, whatever it contains."""
    indent = len(text) - len(text.lstrip())
    line = text.lstrip().translate({10: " ", 13: " ", 9: " "})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # `1if x else 2` only warns; it is an error here
            return ast.parse(line, mode="eval").body
    except SyntaxError as error:
        at = None if error.offset is None else (min(indent + error.offset - 1, len(text) - 1), 1)
        foreign = _FOREIGN.search(text)
        if foreign is not None:
            place = (foreign.start(), len(foreign[0]))
            message = f"'{foreign[0]}' is not part of the language"
            raise ExpressionError(message, hint=_INSTEAD[foreign[0]], span=place) from None
        raise ExpressionError(f"not an expression: {error.msg}", span=at) from None
    except (Warning, ValueError, MemoryError, RecursionError) as error:
        reason = str(error) or "nested too deeply"
        raise ExpressionError(f"not an expression: {reason}") from None


def _narrow(node: ast.AST, text: str, names: set[str], depth: int) -> None:
    """Refuse every node that the language does not have; collect the names it reads."""
    if depth > MAX_DEPTH:
        raise ExpressionError(f"an expression is nested at most {MAX_DEPTH} deep")
    children: list[ast.AST]
    match node:
        case ast.Name():
            names.add(node.id)
            children = []
        case ast.Constant():
            _narrow_literal(node, text)
            children = []
        case ast.Call():
            _narrow_call(node, text)
            children = list(node.args)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            children = [left, op, right]
        case ast.Compare():
            raise ExpressionError(
                "an expression compares two values at a time",
                hint="join two comparisons with 'and'",
                span=span(node, text),
            )
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.IfExp():
            children = list(ast.iter_child_nodes(node))
        case _ if isinstance(node, _OPERATORS):
            return
        case _:
            message, hint = _REFUSED.get(
                type(node), (f"'{type(node).__name__}' is not part of the language", "")
            )
            raise ExpressionError(message, hint=hint, span=span(node, text))
    try:
        for child in children:
            _narrow(child, text, names, depth + 1)
    except ExpressionError as error:
        error.span = error.span or span(node, text)  # operators carry no position of their own
        raise


def _narrow_literal(node: ast.Constant, text: str) -> None:
    """Accept booleans, `None`, text, and numbers within bounds."""
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool) and value >= INT_LIMIT:
        raise ExpressionError("integers stay below 2**63", span=span(node, text))
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ExpressionError(
            f"{type(value).__name__} literals are not part of the language", span=span(node, text)
        )


def _narrow_call(node: ast.Call, text: str) -> None:
    """Accept calls of the language's functions by position, with the right number of arguments."""
    if not isinstance(node.func, ast.Name):
        raise ExpressionError(
            "only the functions of the language can be called", span=span(node, text)
        )
    name = node.func.id
    if name not in FUNCTIONS and name not in DTYPES:
        from difflib import get_close_matches  # 5 ms to import, so only for an error

        close = get_close_matches(name, [*FUNCTIONS, *DTYPES], 1)
        hint = (
            f"did you mean '{close[0]}'?" if close else "the functions are " + " ".join(FUNCTIONS)
        )
        raise ExpressionError(f"unknown function '{name}'", hint=hint, span=span(node.func, text))
    if node.keywords:
        raise ExpressionError(f"{name}() takes its arguments by position", span=span(node, text))
    least, most = FUNCTIONS.get(name, (1, 1))
    if not least <= len(node.args) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise ExpressionError(
            f"{name}() takes {count} argument{'s' * (count != '1')}, got {len(node.args)}",
            span=span(node, text),
        )
