"""Kernels that torch.compile made: which ones a call launches, in which configuration, as what machine code.

Inductor tries a few configurations of a kernel on the device and keeps the fastest of that minute: on an
H200 the same source became kernels up to 16 % apart on two machines. Without their digests such a row
would say that its code is the same, and without its choices a pinned row would change with every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tirbench.launch.facts import of_kernels
from tirbench.launch.resources import machine_code, with_occupancy
from tirbench.launch.sass import text_digest
from tirbench.launch.triton import NEXT_KERNEL
from tirbench.model import CodeFacts, MachineCode


@contextmanager
def recorded(compiled_by_torch: bool, chosen: Sequence[str] = ()) -> Iterator[list[Any]]:
    """Collect inductor's kernels that are launched inside, in order of launch.

    Args:
        compiled_by_torch: whether torch.compile made what is called inside; else nothing is collected.
        chosen: configurations that an earlier run settled on, in order of launch: a kernel with several
            takes that one instead of trying them all. One that has it not, or was tuned on this machine
            before (inductor keeps that choice on disk), is left as it is.
    """
    found: list[Any] = []
    if not compiled_by_torch:
        yield found
        return
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    run, tune = CachingAutotuner.run, CachingAutotuner.autotune_to_one_config

    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(self)
        return run(self, *args, **kwargs)

    def choosing(self: Any, *args: Any, **kwargs: Any) -> None:
        place = len(found) - 1
        wanted = chosen[place] if 0 <= place < len(chosen) else None
        kept = [launcher for launcher in self.launchers if _configuration(launcher) == wanted]
        if len(kept) == 1:
            self.launchers = kept
        else:
            tune(self, *args, **kwargs)

    CachingAutotuner.run, CachingAutotuner.autotune_to_one_config = recording, choosing
    try:
        yield found
    finally:
        CachingAutotuner.run, CachingAutotuner.autotune_to_one_config = run, tune


def code_facts(launched: list[Any], arch: str | None) -> CodeFacts | None:
    """Digest, resources and chosen configurations of the launched kernels.

    Args:
        launched: what `recorded` collected, after the call.
        arch: of the device, as `sm_90`.

    Returns:
        `None` where nothing was launched, or the code of a kernel cannot be had: a digest of some of
        the kernels would call different code the same.
    """
    launchers = [tuner.launchers[0] for tuner in launched if len(tuner.launchers) == 1]
    cubins = [cubin for launcher in launchers if (cubin := _cubin(launcher)) is not None]
    if not cubins or len(cubins) < len(launched):
        return None
    kernels = [
        code
        for launcher, cubin in zip(launchers, cubins, strict=True)
        for code in _machine_code(cubin, int(launcher.shared), arch)
    ]
    facts = of_kernels("sass:" + text_digest(cubins), kernels)
    return replace(facts, configuration=NEXT_KERNEL.join(map(_configuration, launchers)))


def _machine_code(cubin: bytes, shared_bytes: int, arch: str | None) -> tuple[MachineCode, ...]:
    """What the kernels of a cubin need; Triton's count of shared memory includes what launches add."""
    found = (replace(code, shared_bytes=shared_bytes) for code in machine_code(cubin))
    return tuple(code if arch is None else with_occupancy(code, arch) for code in found)


def _cubin(launcher: Any) -> bytes | None:
    """The machine code of a launcher, from the cache that inductor compiled it into.

    Inductor's own launcher keeps no copy of it (torch 2.8 and newer); Triton's does.
    """
    binary = getattr(launcher, "bin", None)
    kept = getattr(binary, "asm", None)
    if kept is not None and kept.get("cubin"):
        return bytes(kept["cubin"])
    import torch
    from torch._inductor.runtime.runtime_utils import triton_cache_dir

    name = getattr(launcher, "cache_hash", None)
    if not isinstance(name, str):
        return None
    files = sorted(Path(triton_cache_dir(torch.cuda.current_device()), name).glob("*.cubin"))
    return files[0].read_bytes() if len(files) == 1 else None


def _configuration(launcher: Any) -> str:
    """`R0_BLOCK=2048, XBLOCK=1, num_stages=1, num_warps=16`."""
    config = launcher.config
    values = dict(config.kwargs, num_warps=config.num_warps, num_stages=config.num_stages)
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
