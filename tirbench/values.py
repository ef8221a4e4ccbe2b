"""The values an expression of the workload language can have, and what is left of one that needs a device.

A *value* is known when a workload is expanded, on any machine. A *bound* argument may also hold a
reference to a tensor, or code that the harness evaluates on the device (`Code`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Self

DTYPES: Final[dict[str, tuple[int, str | None]]] = {
    # name in torch: (bytes, C type in a CUDA kernel)
    "float64": (8, "double"),
    "float32": (4, "float"),
    "float16": (2, "__half"),
    "bfloat16": (2, "__nv_bfloat16"),
    "float8_e4m3fn": (1, "__nv_fp8_e4m3"),
    "float8_e5m2": (1, "__nv_fp8_e5m2"),
    "int64": (8, "long long"),
    "int32": (4, "int"),
    "int16": (2, "short"),
    "int8": (1, "signed char"),
    "uint8": (1, "unsigned char"),
    "bool": (1, "bool"),
}

FLOATING: Final = frozenset(name for name in DTYPES if "float" in name)


class Dtype(str):
    """An element type by its name in torch; equal to that text, but rendered as a type."""

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Make the dtype called `name`.

        Raises:
            ValueError: no dtype of the language has that name.
        """
        if name not in DTYPES:
            raise ValueError(f"{name!r} is not a dtype; one of {', '.join(DTYPES)}")
        return super().__new__(cls, name)

    def __repr__(self) -> str:
        """`Dtype('float16')`: a dtype must not be mistaken for text in a dump."""
        return f"Dtype({str(self)!r})"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self][0]

    @property
    def floating(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self in FLOATING


class Omit(Enum):
    """The value of the name `omit`: an argument that is left out of the call."""

    OMIT = "omit"


OMIT: Final = Omit.OMIT

Value: TypeAlias = "bool | int | float | str | Dtype | Omit | tuple[Value, ...] | None"


class Phase(IntEnum):
    """When a name becomes known: with the case, with the device, or with the tensors' contents."""

    CASE = 0
    DEVICE = 1
    DATA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """The tensor of that name itself."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CScalar:
    """A number with the width a C kernel takes it in: `int32(n)`."""

    ctype: str
    value: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """What is left of an expression when every case value is folded in: Python for the harness.

    `text` may name tensors (their variables in the harness), `device` (`device.sm_count`), `f` (the
    functions of `tirbench.expression.functions`) and `meta` (autotuned constants inside a grid).
    """

    text: str
    phase: Phase
    tensors: tuple[str, ...] = ()


Bound: TypeAlias = "Value | TensorRef | CScalar | Code | tuple[Bound, ...]"
