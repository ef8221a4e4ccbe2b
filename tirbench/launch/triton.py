"""`kind = "triton"`: a `@triton.jit` kernel with its grid and launch options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tirbench.launch.emit import Source, emit_arguments, emit_tuple
from tirbench.launch.kind import Kind, Option, Syntax
from tirbench.model import BoundArguments, BoundLaunch
from tirbench.values import Phase

if TYPE_CHECKING:
    from tirbench.model import CodeFacts, MachineCode

LAUNCH_OPTIONS: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg")

NEXT_SHAPE: Final = " | "
"""Between the choices of one tuned kernel for several shapes."""

NEXT_KERNEL: Final = "; "
"""Between the choices of several tuned kernels of one implementation."""


def arguments(launch: BoundLaunch) -> tuple[Source, ...]:
    """Kernel arguments, then the launch options that are given, all by name."""
    given = dict(launch.options)
    chosen = tuple((name, given[name]) for name in LAUNCH_OPTIONS if given.get(name) is not None)
    return emit_arguments(
        BoundArguments(positional=launch.args.positional, named=launch.args.named + chosen),
        dtypes="tl",
    )


def options(launch: BoundLaunch) -> Mapping[str, Source]:
    """The grid; a function of `meta` where it names autotuned constants."""
    grid = emit_tuple(dict(launch.options)["grid"])
    return {"grid": Source(f"lambda meta: {grid}") if 'meta["' in grid else grid}


KIND = Kind(
    name="triton",
    template="launch/triton.py.jinja",
    returns=False,
    arguments=arguments,
    options=options,
    syntax=Syntax(
        suffix=".py",
        options={
            "grid": Option(form="exprs", tuned=True),
            **dict.fromkeys(LAUNCH_OPTIONS, Option(form="expr", latest=Phase.DEVICE)),
        },
    ),
)


# What inductor sets (torch/_inductor/runtime/compile_tasks.py, triton_heuristics.py).
_INDUCTORS: Final = ("TRITON_CACHE_DIR", "TRITON_LIBDEVICE_PATH", "TRITON_PTXAS_PATH")
_AT_START: Final = {name: os.environ[name] for name in _INDUCTORS if name in os.environ}


@contextmanager
def own_compiler(compiled_by_torch: bool) -> Iterator[None]:
    """Compile Triton kernels as a program without torch.compile would.

    Inductor sets `TRITON_PTXAS_PATH` to the ptxas that torch brings and `TRITON_CACHE_DIR` to its own,
    for good. On an H200 (torch 2.11, Triton 3.6) kernels that were compiled after the first
    torch.compile of the process got other machine code than before it, one of them 1 % slower. The
    variables are as they were at the start of the process inside, and as inductor left them after.

    Args:
        compiled_by_torch: what is compiled inside is torch.compile's: leave everything to it.
    """
    if compiled_by_torch:
        yield
        return
    before = _variables()
    _set(_AT_START)
    try:
        yield
    finally:
        changed = {name: text for name, text in _variables().items() if _AT_START.get(name) != text}
        _set({**before, **changed})


def _variables() -> dict[str, str]:
    return {name: os.environ[name] for name in _INDUCTORS if name in os.environ}


def _set(variables: Mapping[str, str]) -> None:
    for name in _variables().keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter in this process."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def prepared(kernel: Any, configuration: str | None = None) -> Any:
    """The kernel as one case launches it on this machine.

    A tuner remembers its choices by a few arguments that its author named. A case gets a tuner of its
    own, so that what it chooses does not depend on which cases ran before it.

    Args:
        kernel: of a kernel file: jitted, perhaps below `@triton.autotune` and `@triton.heuristics`.
        configuration: what was chosen before, as `chosen_configuration` says it. It is used without
            tuning if the tuner still offers it; of several, for as many shapes, only they are tried.

    In the interpreter Triton has no driver to time with ("0 active drivers"); the first configuration
    stands for all of them there, which is enough to verify.
    """
    tuner = _tuner(kernel)
    if tuner is None:
        return kernel
    own = copy(tuner)
    own.cache = {}
    if interpreted():
        own.configs = tuner.configs[:1]
    else:
        wanted = (configuration or "").split(NEXT_SHAPE)
        known = [config for config in tuner.configs if _text(config) in wanted]
        own.configs = known if len(known) == len(wanted) else tuner.configs
    return _with_tuner(kernel, own)


def has_tuner(kernel: Any) -> bool:
    """Whether a kernel stands below `@triton.autotune`, however many configurations it has."""
    return _tuner(kernel) is not None


def is_tuned(kernel: Any) -> bool:
    """Whether the first launch of a kernel chooses among configurations."""
    tuner = _tuner(kernel)
    return tuner is not None and len(tuner.configs) > 1


def space(kernel: Any) -> tuple[str, ...]:
    """Every configuration that the tuner of a kernel may choose, in the author's order."""
    tuner = _tuner(kernel)
    return () if tuner is None else tuple(map(_text, tuner.configs))


def chosen_configuration(kernel: Any) -> str | None:
    """The configuration that the autotuner settled on, in a stable order; `None` if nothing is tuned.

    A kernel launched with several shapes in one implementation has a choice for each.
    """
    tuner = _tuner(kernel)
    if tuner is None:
        return None
    best = getattr(tuner, "best_config", None)
    chosen = list(tuner.cache.values()) or ([] if best is None else [best])
    return NEXT_SHAPE.join(dict.fromkeys(map(_text, chosen))) or None


def compiling_tuner(kernel: Any) -> Any:
    """Have the tuner of a kernel compile what it would time, and choose nothing; returns the kernel.

    Args:
        kernel: as `prepared` made it, with a tuner of its own; any other is left alone.
    """
    tuner = _tuner(kernel)
    if tuner is None:
        return kernel

    def compile_one(*args: Any, config: Any, **meta: Any) -> list[float]:
        chosen = {**meta, **config.all_kwargs()}
        with suppress(Exception):  # a configuration that does not compile is none that is chosen
            if config.pre_hook:  # it may give a tensor's descriptor the shape of a block
                config.pre_hook({**tuner.nargs, **chosen})
            tuner.fn.run(*args, **chosen)
        return [0.0, 0.0, 0.0]

    tuner._bench = compile_one  # noqa: SLF001 - what `Autotuner.run` times a configuration with
    tuner.pre_hook = tuner.post_hook = lambda *_, **__: None  # they write to tensors
    tuner.cache_results = False  # zeros are no times: none of them may reach the disk
    return kernel


def _tuner(kernel: Any) -> Any:
    """The autotuner among the decorators of a kernel, or `None`."""
    while kernel is not None:
        if hasattr(kernel, "configs") and hasattr(kernel, "cache"):
            return kernel
        kernel = getattr(kernel, "fn", None)
    return None


def _with_tuner(kernel: Any, own: Any) -> Any:
    """The kernel with another tuner in the place of its own; the decorators above are copied."""
    if hasattr(kernel, "configs"):
        return own
    outer = copy(kernel)
    outer.fn = _with_tuner(kernel.fn, own)
    return outer


def _text(config: Any) -> str:
    """A configuration by name, with the launch options it was made with."""
    return ", ".join(f"{name}={value}" for name, value in sorted(config.all_kwargs().items()))


@contextmanager
def recorded(launches_triton: bool) -> Iterator[list[Any]]:
    """Collect the compiled kernels that are launched inside, in order of launch.

    Nothing is compiled, so nothing collected, in the interpreter or where no Triton kernel is launched.
    """
    found: list[Any] = []
    if not launches_triton or interpreted():
        yield found
        return
    from triton.runtime import jit

    original = jit.JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = original(self, *args, **kwargs)
        if compiled is not None:
            found.append(compiled)
        return compiled

    jit.JITFunction.run = run
    try:
        yield found
    finally:
        jit.JITFunction.run = original


def code_facts(compiled: list[Any]) -> CodeFacts | None:
    """Digest and resources of the launched kernels; `None` where nothing was compiled."""
    from tirbench.launch.facts import of_kernels
    from tirbench.launch.sass import text_digest

    kernels = [kernel for kernel in compiled if getattr(kernel, "asm", {}).get("cubin")]
    if not kernels:
        return None
    digest = "sass:" + text_digest(kernel.asm["cubin"] for kernel in kernels)
    return of_kernels(digest, [code for kernel in kernels for code in machine_code_of(kernel)])


def machine_code_of(kernel: Any) -> tuple[MachineCode, ...]:
    """What a compiled kernel needs of a device: also without one.

    The shared memory is Triton's own count: whether it is static or added by the launch, it is so much.
    """
    from tirbench.launch.resources import machine_code, with_occupancy

    shared, arch = int(kernel.metadata.shared), f"sm_{kernel.metadata.target.arch}"
    return tuple(
        with_occupancy(replace(code, shared_bytes=shared), arch)
        for code in machine_code(bytes(kernel.asm["cubin"]))
    )


__all__ = [
    "KIND",
    "NEXT_KERNEL",
    "chosen_configuration",
    "code_facts",
    "compiling_tuner",
    "has_tuner",
    "interpreted",
    "is_tuned",
    "machine_code_of",
    "prepared",
    "recorded",
    "space",
]
