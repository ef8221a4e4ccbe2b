"""The expressions of the workload language: read, evaluated for a case, or left as code.

`Expression(text)` is well formed by construction. `evaluate` gives the value that a case knows; `bind`
also accepts what only a device or the tensors' contents can tell, and leaves it as `Code`. The harness
calls `tirbench.expression.functions` (as `f`) for what is left.
"""

from tirbench.expression.evaluate import bind, evaluate
from tirbench.expression.parse import (
    CONSTANT_NAMES,
    DEVICE_NAMES,
    FUNCTIONS,
    INT_LIMIT,
    RANK_NAMES,
    TENSOR_FUNCTIONS,
    Expression,
    ExpressionError,
    UnknownNameError,
    parse,
)
from tirbench.expression.scope import (
    ANYWHERE,
    CONSTANTS,
    RESERVED,
    Layout,
    Scope,
    Site,
    describe,
    identity,
    is_value,
    site,
    strides_of,
)

__all__ = [
    "ANYWHERE",
    "CONSTANTS",
    "CONSTANT_NAMES",
    "DEVICE_NAMES",
    "FUNCTIONS",
    "INT_LIMIT",
    "RANK_NAMES",
    "RESERVED",
    "TENSOR_FUNCTIONS",
    "Expression",
    "ExpressionError",
    "Layout",
    "Scope",
    "Site",
    "UnknownNameError",
    "bind",
    "describe",
    "evaluate",
    "identity",
    "is_value",
    "parse",
    "site",
    "strides_of",
]
