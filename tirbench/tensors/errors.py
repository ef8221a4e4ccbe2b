"""What can be wrong with the tensors of a case."""

from __future__ import annotations

from tirbench.errors import MeasurementError, TirbenchError


class TensorError(TirbenchError):
    """A tensor cannot be laid out or filled as its specification says; the message names it."""


class OutOfMemory(MeasurementError, MemoryError):
    """The tensors of a case do not fit into the memory that is free; the message has both numbers."""
