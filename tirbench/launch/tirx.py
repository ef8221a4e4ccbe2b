"""`kind = "tirx"`: a function of Apache TVM TIRx, compiled for the device that runs it.

Arguments are given by parameter name. Parameters annotated `T.constexpr` are compiled in, the others
are passed by position in the order of the source.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tirbench.errors import UsageError
from tirbench.launch.emit import emit_arguments
from tirbench.launch.kind import Kind, Syntax

if TYPE_CHECKING:
    from tirbench.model import CodeFacts

KIND = Kind(
    name="tirx",
    template="launch/tirx.py.jinja",
    returns=False,
    closure=True,
    arguments=lambda launch: emit_arguments(launch.args),
    syntax=Syntax(suffix=".py", arguments="named"),
    imports=lambda _: ("tvm_tirx.tirx",),
)


def specialized(
    function: Any, arguments: Mapping[str, Any], target: str
) -> tuple[Any, tuple[Any, ...]]:
    """The concrete TIRx function and what it is called with.

    Args:
        function: made by `@T.function` (static) or `@T.jit` (with constexpr parameters).
        arguments: values by parameter name.
        target: how the workload names the function, for messages.

    Raises:
        UsageError: a parameter is missing or unknown.
    """
    deferred = hasattr(function, "specialize")
    if deferred:
        names = list(inspect.signature(function.func).parameters)
        constant = [name for name in names if name in function.constexpr_names]
    else:
        names, constant = [str(parameter.name) for parameter in function.params], []
    required = [n for n in names if n not in getattr(function, "constexpr_defaults", {})]
    for wrong, what in (
        (set(required) - set(arguments), "lacks"),
        (set(arguments) - set(names), "has no"),
    ):
        if wrong:
            listed = ", ".join(sorted(wrong))
            raise UsageError(
                f"{target}: the call {what} {listed}; parameters are {', '.join(names)}"
            )
    passed = tuple(arguments[name] for name in names if name not in constant)
    if deferred:
        function = function.specialize(**{n: arguments[n] for n in constant if n in arguments})
    return function, passed


def compiled(function: Any, arch: str | None) -> tuple[Any, Callable[..., None]]:
    """Compile a concrete TIRx function.

    On a CPU it is compiled for this processor (plain `llvm` means SSE2) and runs on as many threads as
    torch does, so that the two are compared on the same cores.

    Args:
        function: see `specialized`.
        arch: `sm_90` for a CUDA device, `None` for the CPU through LLVM.

    Returns:
        The executable, for its source, and the function in it, which takes torch tensors of the
        device. Calling the executable instead looks the function up at each call (1.7 µs, seen).
    """
    from tvm_tirx import tirx

    if arch is None:
        import torch
        from tvm_tirx.codegen import llvm

        os.environ.setdefault("TVM_NUM_THREADS", str(torch.get_num_threads()))
        target = {"kind": "llvm", "mcpu": llvm.get_system_cpu()}
    else:
        from tirbench.launch import cubins

        cubins.keep()
        target = {"kind": "cuda", "arch": arch}
    executable = tirx.compile(function, target=target)
    return executable, executable[str(function.attrs["global_symbol"])]


def code_facts(executables: list[Any]) -> CodeFacts | None:
    """A digest of the device source of the executables; `None` where there is none to read."""
    import hashlib

    from tirbench.model import CodeFacts

    modules = [getattr(executable, "mod", executable) for executable in executables]
    parts = [part for module in modules for part in (module, *getattr(module, "imports", ()))]
    texts = [part.inspect_source() for part in parts if hasattr(part, "inspect_source")]
    if not texts:
        return None
    return CodeFacts(digest="src:" + hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16])
