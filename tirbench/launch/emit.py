"""Bound arguments as Python source, for the harness.

A value enters generated code as a literal, never as text: no string in a workload can become code.
What may be code is `values.Code`, which only the expression compiler makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from tirbench.model import BoundArguments
from tirbench.values import OMIT, Bound, Code, CScalar, Dtype, Omit, TensorRef

LINE_LENGTH: Final = 100


class Source(str):
    """Text that is Python source already; templates print it as it is."""

    __slots__ = ()


def literal(value: object) -> Source:
    """A plain value as a Python literal.

    Raises:
        TypeError: the value has no literal; it must be turned into `Source` where its meaning is known.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return Source(f"float({str(value)!r})")
    if value is None or isinstance(value, bool | int | float):
        return Source(repr(value))
    if isinstance(value, str):
        return Source(repr(str(value)))
    if isinstance(value, tuple | list):
        inner = ", ".join(literal(item) for item in value)
        return Source(f"({inner},)" if len(value) == 1 else f"({inner})")
    if isinstance(value, dict):
        return Source(
            "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
        )
    raise TypeError(f"no literal for {type(value).__name__}")


def emit(bound: Bound, dtypes: str = "torch") -> Source:
    """A bound argument as Python source; arrays of the workload become lists, tuples for Triton.

    A Triton kernel takes a tuple as a parameter and refuses a list.

    Args:
        bound: what the expression compiler left of the argument.
        dtypes: the module whose attribute a dtype becomes: `torch`, or `tl` for Triton.
    """
    if isinstance(bound, Dtype):
        return Source(f"{dtypes}.{triton_dtype(bound) if dtypes == 'tl' else str(bound)}")
    if isinstance(bound, TensorRef):
        return Source(bound.name)
    if isinstance(bound, Code):
        return Source(bound.text)
    if isinstance(bound, CScalar):
        return Source(f"tb.CScalar({bound.ctype!r}, {emit(bound.value, dtypes)})")
    if isinstance(bound, Omit):
        raise TypeError(
            f"{OMIT} reached the renderer: an omitted argument is dropped when a case is bound"
        )
    if isinstance(bound, tuple) and dtypes == "tl":
        return emit_tuple(bound, dtypes)
    if isinstance(bound, tuple):
        return Source("[" + ", ".join(emit(item, dtypes) for item in bound) + "]")
    return literal(bound)


def emit_tuple(bound: Bound, dtypes: str = "torch") -> Source:
    """A bound array as a tuple: grids, shapes and strides."""
    items = [emit(item, dtypes) for item in (bound if isinstance(bound, tuple) else (bound,))]
    return Source(f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})")


def emit_arguments(args: BoundArguments, dtypes: str = "torch") -> tuple[Source, ...]:
    """Arguments of a call, each as it stands between the parentheses."""
    positional = tuple(emit(item, dtypes) for item in args.positional)
    return positional + tuple(Source(f"{name}={emit(item, dtypes)}") for name, item in args.named)


def wrap(head: str, items: Iterable[str], tail: str, indent: int) -> Source:
    """`head` + items + `tail` on one line where it fits, else the items on one, else one item a line.

    The first line is not indented (the template stands there); the others are.
    """
    items = tuple(items)
    line = head + ", ".join(items) + tail
    if indent + len(line) <= LINE_LENGTH:
        return Source(line)
    pad = " " * indent
    inner = f"{pad}    {', '.join(items)}"
    if len(inner) <= LINE_LENGTH:
        return Source("\n".join([head, inner, pad + tail]))
    return Source("\n".join([head, *(f"{pad}    {item}," for item in items), pad + tail]))


def names_in(bound: object) -> tuple[str, ...]:
    """The tensors that a bound argument, or a tree of them, refers to; each once, in order."""
    found: dict[str, None] = {}

    def visit(item: object) -> None:
        if isinstance(item, TensorRef):
            found[item.name] = None
        elif isinstance(item, Code):
            found.update(dict.fromkeys(item.tensors))
        elif isinstance(item, CScalar):
            visit(item.value)
        elif isinstance(item, BoundArguments):
            visit(item.positional)
            visit(tuple(value for _, value in item.named))
        elif isinstance(item, tuple):
            for inner in item:
                visit(inner)

    visit(bound)
    return tuple(found)


def triton_dtype(dtype: Dtype) -> str:
    """The name of a dtype in `triton.language`."""
    return {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5", "bool": "int1"}.get(
        dtype, str(dtype)
    )
