"""What a module may set for the whole process, and two revisions must agree on to be compared in one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import torch

INDUCTOR: Final = (
    "max_autotune",
    "max_autotune_gemm",
    "max_autotune_pointwise",
    "coordinate_descent_tuning",
    "epilogue_fusion",
    "emulate_precision_casts",
    "use_fast_math",
)
"""Options of torch.compile that change the code it writes."""

SWITCHES: Final = {
    "cuda.matmul.allow_tf32": ("backends.cuda.matmul", "allow_tf32"),
    "cuda.matmul.allow_fp16_reduced_precision_reduction": (
        "backends.cuda.matmul",
        "allow_fp16_reduced_precision_reduction",
    ),
    "cudnn.allow_tf32": ("backends.cudnn", "allow_tf32"),
    "cudnn.benchmark": ("backends.cudnn", "benchmark"),
    "cudnn.deterministic": ("backends.cudnn", "deterministic"),
}


def current() -> dict[str, str]:
    """Every setting by name, as text."""
    found = {name: repr(value) for name, value in _values().items()}
    found["default_dtype"] = str(torch.get_default_dtype())
    found["num_threads"] = str(torch.get_num_threads())
    found["deterministic_algorithms"] = str(torch.are_deterministic_algorithms_enabled())
    return found


def restore(before: Mapping[str, str]) -> None:
    """Put the settings back to what `current` said."""
    now = current()
    for name, text in before.items():
        if now.get(name) == text:
            continue
        if name == "default_dtype":
            torch.set_default_dtype(getattr(torch, text.removeprefix("torch.")))
        elif name == "num_threads":
            torch.set_num_threads(int(text))
        elif name == "deterministic_algorithms":
            torch.use_deterministic_algorithms(text == "True")
        else:
            holder, attribute = _place(name)
            setattr(holder, attribute, _read(text))


_first: list[dict[str, str]] = []


def anew() -> None:
    """Put the settings back to what they were when this was called first in this process.

    A process that opens one harness after another must not give the second what the first has set.
    """
    if _first:
        restore(_first[0])
    else:
        _first.append(current())


def operators() -> dict[str, int]:
    """The operators that Python has registered with torch, and which object each is now.

    `torch.library.custom_op` replaces one of the same name without a word.
    """
    registry = sys.modules.get("torch._library.custom_ops")
    found = getattr(registry, "OPDEFS", {})
    return {str(name): id(found[name]) for name in list(found)}


def _values() -> dict[str, Any]:
    names = [*SWITCHES, *(f"inductor.{name}" for name in INDUCTOR)]
    found = {}
    for name in names:
        holder, attribute = _place(name)
        if holder is not None and hasattr(holder, attribute):
            found[name] = getattr(holder, attribute)
    return found


def _place(name: str) -> tuple[Any, str]:
    if name.startswith("inductor."):
        return sys.modules.get("torch._inductor.config"), name.removeprefix("inductor.")
    path, attribute = SWITCHES[name]
    holder: Any = torch
    for part in path.split("."):
        holder = getattr(holder, part)
    return holder, attribute


def _read(text: str) -> Any:
    import ast

    return ast.literal_eval(text)
