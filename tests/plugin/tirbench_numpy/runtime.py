"""What a harness calls at run time: imported in the worker, from the text that the template wrote."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from tirbench.harness import Case
from tirbench.model import CodeFacts


def bound(
    case: Case,
    function: Callable[..., object],
    *args: Any,
    floating_errors: Literal["ignore", "warn", "raise"] = "warn",
) -> Callable[[], None]:
    """The launch of a function with the arrays of these tensors; numbers pass as they are."""
    arrays = tuple(item.numpy() if isinstance(item, torch.Tensor) else item for item in args)
    case.note_code(lambda: _facts(function))

    def launch() -> None:
        with np.errstate(all=floating_errors):
            function(*arrays)

    return launch


def _facts(function: Callable[..., object]) -> CodeFacts | None:
    """A digest of the function's source; `None` where it is not written in Python."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return CodeFacts(digest="src:" + hashlib.sha256(source.encode()).hexdigest()[:16])
