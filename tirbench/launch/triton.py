"""`kind = "triton"`: a `@triton.jit` kernel with its grid and launch options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tirbench.launch.emit import Source, emit, emit_arguments, emit_tuple
from tirbench.launch.kind import Kind
from tirbench.launch.sass import text_digest
from tirbench.model import BoundArguments, BoundLaunch, CodeFacts

LAUNCH_OPTIONS: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg")


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
)


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter in this process."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def prepared(kernel: Any) -> Any:
    """The kernel as it is launched on this machine.

    Triton's autotuner has no driver to time with in the interpreter ("0 active drivers"); there the
    first configuration stands for all of them, which is enough to verify.
    """
    if not interpreted() or not hasattr(kernel, "configs"):
        return kernel
    return _FirstConfiguration(kernel)


class _FirstConfiguration:
    """An autotuned kernel with its first configuration, for the interpreter."""

    def __init__(self, tuner: Any) -> None:
        self._kernel = tuner.fn
        self._constants = dict(tuner.configs[0].kwargs)

    def __getitem__(self, grid: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            return self._kernel[grid](*args, **{**self._constants, **kwargs})

        return run


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
    """Digest and resources of the launched kernels; `None` where nothing was compiled.

    Registers and spills are the largest, shared memory the largest, over the kernels of the sequence.
    """
    kernels = [kernel for kernel in compiled if getattr(kernel, "asm", {}).get("cubin")]
    if not kernels:
        return None
    return CodeFacts(
        digest="sass:" + text_digest(kernel.asm["cubin"] for kernel in kernels),
        registers=max(kernel.n_regs for kernel in kernels),
        spills=max(kernel.n_spills for kernel in kernels),
        shared_bytes=max(kernel.metadata.shared for kernel in kernels),
    )


def chosen_configuration(kernel: Any) -> str | None:
    """The configuration that the autotuner settled on, in a stable order; `None` if nothing is tuned."""
    best = getattr(kernel, "best_config", None)
    return (
        None
        if best is None
        else ", ".join(f"{k}={v}" for k, v in sorted(best.all_kwargs().items()))
    )


__all__ = [
    "KIND",
    "chosen_configuration",
    "code_facts",
    "emit",
    "interpreted",
    "prepared",
    "recorded",
]
