"""Arguments of a CUDA kernel as the C values that it reads."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

from tirbench.errors import UsageError
from tirbench.launch.cscalar import CScalar
from tirbench.values import DTYPES

INTEGERS: Final[Mapping[str, type]] = {
    "int64": ctypes.c_int64,
    "int32": ctypes.c_int32,
    "int16": ctypes.c_int16,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
}


class Pointer(ctypes.c_void_p):
    """An address; cuda-core takes it as the number that it is."""

    @property
    def pointer(self) -> int:
        """The address as a number."""
        return self.value or 0


def c_value(argument: Any) -> Any:
    """An argument as the C value that the kernel reads.

    Raises:
        UsageError: a number has no width, or does not fit the one it has.
    """
    if argument is None:
        return Pointer(0)
    if hasattr(argument, "data_ptr"):
        return Pointer(argument.data_ptr())
    if not isinstance(argument, CScalar):
        raise UsageError(
            f"{argument!r} has no C width: write int32(…) or float32(…) in the arguments"
        )
    if (integer := INTEGERS.get(argument.ctype)) is not None:
        value = int(argument.value)
        made = integer(value)
        if made.value != value:
            raise UsageError(f"{value} does not fit {argument.ctype}")
        return made
    if argument.ctype == "bool":
        return ctypes.c_bool(bool(argument.value))
    if argument.ctype == "float64":
        return ctypes.c_double(argument.value)
    if argument.ctype == "float32":
        return ctypes.c_float(argument.value)
    return _short_float(argument)


def _short_float(argument: CScalar) -> Any:
    """A float of one or two bytes by its bits: C types of Python have no such number."""
    import torch

    bits, c_type = (
        (torch.uint8, ctypes.c_uint8)
        if DTYPES[argument.ctype][0] == 1
        else (torch.uint16, ctypes.c_uint16)
    )
    value = torch.tensor(float(argument.value), dtype=torch.float32)
    return c_type(value.to(getattr(torch, argument.ctype)).view(bits).item())
