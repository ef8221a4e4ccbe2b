"""The functions of the workload language, for numbers, lists and integer tensors.

Expansion calls them on case values; a generated harness imports this module as `f` and calls them on
what only the device or the tensors' contents can tell. Both therefore mean the same by construction.

Lists and tensors work elementwise; `sum`, and `min` and `max` of one list, reduce to a number. torch is
never imported here: a tensor can only arrive when its caller has imported it.
"""

from __future__ import annotations

import builtins
import math
import operator
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

inf: Final = math.inf
nan: Final = math.nan


def cdiv(a: Any, b: Any) -> Any:
    """`a / b` rounded up, elementwise."""
    return elementwise(lambda x, y: -(-x // y), a, b)


def align(x: Any, to: Any) -> Any:
    """The smallest multiple of `to` that is not below `x`, elementwise."""
    return elementwise(lambda a, b: -(-a // b) * b, x, to)


def next_pow2(n: Any) -> Any:
    """The smallest power of two that is not below `n`; 1 for `n` below 1; elementwise."""
    if _is_tensor(n):
        return n.new_tensor([_next_pow2(x) for x in n.flatten().tolist()]).reshape(n.shape)
    return elementwise(_next_pow2, n)


def min(*values: Any) -> Any:  # noqa: A001 - the language's name
    """The least element of one list or tensor, or of several values, elementwise."""
    return _extreme("min", values)


def max(*values: Any) -> Any:  # noqa: A001 - the language's name
    """The greatest element of one list or tensor, or of several values, elementwise."""
    return _extreme("max", values)


def abs(x: Any) -> Any:  # noqa: A001 - the language's name
    """The magnitude, elementwise."""
    return elementwise(builtins.abs, x)


def log2(x: Any) -> Any:
    """The binary logarithm, elementwise; of a tensor in float64."""
    return x.double().log2() if _is_tensor(x) else elementwise(math.log2, x)


def sqrt(x: Any) -> Any:
    """The square root, elementwise; of a tensor in float64."""
    return x.double().sqrt() if _is_tensor(x) else elementwise(math.sqrt, x)


def sum(x: Any) -> Any:  # noqa: A001 - the language's name
    """The sum of a list or tensor as a Python number."""
    return x.sum().item() if _is_tensor(x) else builtins.sum(_sequence(x, "sum"))


def len(x: Any) -> builtins.int:  # noqa: A001 - the language's name
    """The number of elements of a list, or along the first dimension of a tensor."""
    return builtins.int(x.shape[0]) if _is_tensor(x) else builtins.len(_sequence(x, "len"))


def int(x: Any) -> Any:  # noqa: A001 - the language's name
    """Truncated towards zero, elementwise; a tensor becomes int64."""
    return x.long() if _is_tensor(x) else elementwise(builtins.int, x)


def float(x: Any) -> Any:  # noqa: A001 - the language's name
    """As a floating-point number, elementwise; a tensor becomes float64."""
    return x.double() if _is_tensor(x) else elementwise(builtins.float, x)


def str(x: Any) -> builtins.str:  # noqa: A001 - the language's name
    """The text of a value; of a dtype its name."""
    if isinstance(x, builtins.str):
        return builtins.str.__str__(x)
    return builtins.str(x).removeprefix("torch.")


def itemsize(dtype: Any) -> builtins.int:
    """Bytes of one element of a dtype."""
    return builtins.int(dtype.itemsize)


def gathered(x: Any) -> Any:
    """The tensors of all ranks joined along the first dimension, in rank order.

    Raises:
        RuntimeError: `torch.distributed` is not initialised, so there are no other ranks.
    """
    distributed = sys.modules["torch"].distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        raise RuntimeError("gathered() needs the ranks of a distributed run")
    joined = x.new_empty((distributed.get_world_size(), *x.shape))
    # torch 2.13 has another name for the form that takes one tensor; this one is in every version.
    distributed.all_gather(list(joined.unbind()), x.contiguous())
    return joined.flatten(0, 1)


OPERATORS: Final[dict[builtins.str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def apply(symbol: builtins.str, a: Any, b: Any) -> Any:
    """One operator, elementwise where a list is involved.

    A harness only needs it where a list meets a tensor, which Python's own operator cannot combine.
    """
    return elementwise(OPERATORS[symbol], a, b)


def elementwise(function: Callable[..., Any], *values: Any) -> Any:
    """`function` over lists of one length, other values repeated; over tensors as torch broadcasts.

    Raises:
        ValueError: two lists differ in length.
    """
    tensor = next((value for value in values if _is_tensor(value)), None)
    if tensor is not None:
        return function(*(tensor.new_tensor(v) if _is_list(v) else v for v in values))
    lengths = {builtins.len(value) for value in values if _is_list(value)}
    if not lengths:
        return function(*values)
    if builtins.len(lengths) > 1:
        raise ValueError(f"lists of lengths {' and '.join(map(builtins.str, sorted(lengths)))}")
    columns = [value if _is_list(value) else (value,) * next(iter(lengths)) for value in values]
    return tuple(function(*row) for row in zip(*columns, strict=True))


def _extreme(name: builtins.str, values: tuple[Any, ...]) -> Any:
    """`min` or `max` as Python's, but elementwise for several values with a list among them."""
    choose = getattr(builtins, name)
    if builtins.len(values) == 1:
        (x,) = values
        return getattr(x, name)().item() if _is_tensor(x) else choose(_sequence(x, name))
    torch = sys.modules.get("torch")
    result = values[0]
    for value in values[1:]:
        if _is_tensor(result) or _is_tensor(value):
            tensor = result if _is_tensor(result) else value
            pair = (v if _is_tensor(v) else tensor.new_tensor(v) for v in (result, value))
            result = getattr(torch, f"{name}imum")(*pair)
        else:
            result = elementwise(choose, result, value)
    return result


def _next_pow2(n: builtins.int) -> builtins.int:
    return 1 if n <= 1 else 1 << (operator.index(n) - 1).bit_length()


def _sequence(x: Any, name: builtins.str) -> Any:
    """`x` if it is a list.

    Raises:
        TypeError: it is not.
    """
    if not _is_list(x):
        raise TypeError(f"{name}() takes a list or an integer tensor, got {x!r}")
    return x


def _is_list(x: Any) -> bool:
    return isinstance(x, tuple | list)


def _is_tensor(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)
