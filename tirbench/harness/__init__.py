"""What a generated harness is written against: programs, cases, tensors, rules.

A harness declares; this package runs. `Program.run` takes one case through allocate, build, verify, time
and verify again, and reports every implementation exactly once.
"""

from __future__ import annotations

from tirbench.check import Rule
from tirbench.harness.case import Case
from tirbench.harness.declarations import Requires, Timing
from tirbench.harness.program import Program, open_program
from tirbench.launch.cscalar import CScalar
from tirbench.tensors import (
    Computed,
    Tensor,
    arange,
    cu_seqlens,
    file,
    full,
    lengths,
    normal,
    ones,
    page_table,
    permutation,
    randint,
    uniform,
    values,
    zeros,
)

__all__ = [
    "CScalar",
    "Case",
    "Computed",
    "Program",
    "Requires",
    "Rule",
    "Tensor",
    "Timing",
    "arange",
    "cu_seqlens",
    "file",
    "full",
    "lengths",
    "normal",
    "ones",
    "open_program",
    "page_table",
    "permutation",
    "randint",
    "uniform",
    "values",
    "zeros",
]
