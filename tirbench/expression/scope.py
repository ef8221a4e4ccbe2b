"""What expressions read: the names of a case, the layouts of its tensors, and how far a place may look."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tirbench.expression.parse import CONSTANT_NAMES, DEVICE_NAMES
from tirbench.expression.residual import Residual, code, residual
from tirbench.values import DTYPES, OMIT, Bound, Code, CScalar, Dtype, Phase, TensorRef, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

CONSTANTS: Final[dict[str, Value]] = {
    "omit": OMIT,
    "inf": math.inf,
    "nan": math.nan,
    **{name: Dtype(name) for name in DTYPES},
}


RESERVED: Final = CONSTANT_NAMES | DEVICE_NAMES | DTYPES.keys() | {"seed"}
"""Names that a workload cannot define; the functions of the language are refused as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What an expression can know of a tensor: `shape` and `strides` in elements, and its dtype."""

    dtype: Dtype
    shape: tuple[Bound, ...]
    strides: tuple[Bound, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where an expression stands, and so what it may read.

    Args:
        what: how an error names the place: `a shape`.
        latest: the latest phase it may read.
        layouts: whether `size`, `stride`, `numel`, `nbytes` and `itemsize` of tensors are known.
        gathers: whether `gathered(t)` is (only in the oracle of a workload with ranks).
        meta: names of constants that a tuner sets, readable as `meta["NAME"]`.
    """

    what: str = "an expression"
    latest: Phase = Phase.DATA
    layouts: bool = True
    gathers: bool = False
    meta: frozenset[str] = frozenset()


ANYWHERE: Final = Site()


@lru_cache(maxsize=256)
def site(what: str, latest: Phase = Phase.DATA) -> Site:
    """The place that errors call `what`, made once: a few stand for thousands of expressions."""
    return Site(what=what, latest=latest)


@dataclass(slots=True, kw_only=True)
class Scope:
    """The names of one case.

    Args:
        values: params, axes, `seed` and derived names that the case knows.
        later: derived names that only the device or the data know.
        tensors: layouts by tensor name; may compute them when asked.
        ranked: whether the workload has `[ranks]`.
        memo: results by expression and values read, shared by the cases of a workload.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    later: Mapping[str, Bound] = field(default_factory=dict)
    tensors: Mapping[str, Layout] = field(default_factory=dict)
    ranked: bool = False
    memo: dict[tuple[object, ...], Value] = field(default_factory=dict)
    _identities: dict[str, object] = field(default_factory=dict)

    def key(self, head: tuple[object, ...], names: Iterable[str]) -> tuple[object, ...] | None:
        """What depends on these names alone, as a key: `None` where the case does not know one of them."""
        known = self._identities
        try:
            return (*head, *[known[name] for name in names])
        except KeyError:
            pass
        for name in names:
            if name not in self.values:
                return None
            known[name] = identity(self.values[name])
        return (*head, *[known[name] for name in names])


_NO_VALUES: Final = frozenset({TensorRef, CScalar, Code})


def is_value(bound: object) -> bool:
    """Whether nothing in it needs a tensor or a device."""
    if bound.__class__ is tuple:
        return all(map(is_value, bound))
    return bound.__class__ not in _NO_VALUES


def identity(value: Value) -> object:
    """A key that keeps apart what Python calls equal: 1, 1.0 and True, a dtype and its name."""
    if isinstance(value, tuple):
        return tuple(identity(item) for item in value)
    return value.__class__, value


def product(factors: tuple[Any, ...]) -> Any:
    """The product of sizes: a number, or a residual where one of them is code."""
    if all(factor.__class__ is int for factor in factors):
        return math.prod(factors)
    known = math.prod(factor for factor in factors if not isinstance(factor, Code))
    result: Any = None
    for factor in factors:
        if isinstance(factor, Code):
            tree = residual(factor)
            result = tree if result is None else Residual.operator("*", result, tree)
    if result is None:
        return known
    return result if known == 1 else Residual.operator("*", result, residual(known))


def strides_of(layout: Layout) -> tuple[Bound, ...]:
    """The strides of a layout in elements; contiguous where none are given."""
    if layout.strides is not None:
        return layout.strides
    strides: list[Bound] = []
    for dimension in range(len(layout.shape)):
        stride = product(layout.shape[dimension + 1 :])
        strides.append(code(stride) if isinstance(stride, Residual) else stride)
    return tuple(strides)


def describe(value: object) -> str:
    """A value as an error names it."""
    match value:
        case Dtype():
            text = f"the dtype {value:s}"
        case TensorRef():
            text = f"the tensor '{value.name}'"
        case str():
            text = f"the text {str(value)!r}"
        case tuple():
            text = f"a list of {len(value)}"
        case Residual():
            text = f"'{ast.unparse(value.tree)}'"
        case Code():
            text = f"'{value.text}'"
        case CScalar():
            text = f"a C scalar, {value.ctype}"
        case _:
            text = "omit" if value is OMIT else repr(value)
    return text
