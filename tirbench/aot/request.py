"""What is asked of a process that compiles, and what it answers: JSON between the two halves of `aot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tirbench.errors import UsageError
from tirbench.launch.resources import MULTIPROCESSORS
from tirbench.model import CompileTarget
from tirbench.values import Bound, Code, CScalar, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tirbench.model import BoundImplementation, Case

COMPILED_KINDS: Final = frozenset({"triton", "cuda", "tirx"})
"""Launch kinds that name what is compiled; what a `call` or `build` launches only running could tell."""


PRODUCTS: Final[Mapping[str, CompileTarget]] = {
    target.arch: target
    for target in (
        CompileTarget(
            arch="sm_80",
            sm_count=108,
            l2_bytes=40 << 20,
            smem_bytes=163 << 10,
            memory_bytes=80 << 30,
            product="A100 80 GB",
        ),
        CompileTarget(
            arch="sm_86",
            sm_count=84,
            l2_bytes=6 << 20,
            smem_bytes=99 << 10,
            memory_bytes=48 << 30,
            product="A40",
        ),
        CompileTarget(
            arch="sm_89",
            sm_count=142,
            l2_bytes=96 << 20,
            smem_bytes=99 << 10,
            memory_bytes=48 << 30,
            product="L40S",
        ),
        CompileTarget(
            arch="sm_90",
            sm_count=132,
            l2_bytes=50 << 20,
            smem_bytes=227 << 10,
            memory_bytes=80 << 30,
            product="H100 SXM",
        ),
        CompileTarget(
            arch="sm_100",
            sm_count=148,
            l2_bytes=126 << 20,
            smem_bytes=227 << 10,
            memory_bytes=180 << 30,
            product="B200",
        ),
        CompileTarget(
            arch="sm_120",
            sm_count=188,
            l2_bytes=128 << 20,
            smem_bytes=99 << 10,
            memory_bytes=96 << 30,
            product="RTX PRO 6000",
        ),
    )
}
"""One product of each architecture, from NVIDIA's data sheets: for workloads that read the device, where
no baseline says what the device is."""


def target_of(arch: str, pinned: Mapping[str, Any] | None = None) -> CompileTarget:
    """The device of an architecture.

    Args:
        arch: `sm_90`.
        pinned: contents of a `device.toml` of a device of this architecture, where there is one.

    Raises:
        UsageError: the architecture is unknown.
    """
    if arch not in PRODUCTS or arch not in MULTIPROCESSORS:
        raise UsageError(f"--arch {arch}: one of {', '.join(PRODUCTS)}")
    usual = PRODUCTS[arch]
    if not pinned:
        return usual
    return CompileTarget(
        arch=arch,
        sm_count=int(pinned.get("sm_count", usual.sm_count)),
        l2_bytes=int(pinned.get("l2_bytes", usual.l2_bytes)),
        smem_bytes=int(pinned.get("smem_bytes", usual.smem_bytes)),
        memory_bytes=int(pinned.get("memory_bytes", usual.memory_bytes)),
        product=str(pinned.get("product", usual.product)),
    )


def compiles(implementation: BoundImplementation) -> bool:
    """Whether any step of an implementation names what is compiled."""
    return any(step.kind in COMPILED_KINDS for step in implementation.steps)


def cut_of(implementation: BoundImplementation) -> str:
    """The note about steps that are left out; empty where none is."""
    left = [step.target for step in implementation.steps if step.kind not in COMPILED_KINDS]
    if not left:
        return ""
    return f"without {', '.join(left)}: what it launches only running could tell"


def read_contents(case: Case, implementation: BoundImplementation) -> frozenset[str]:
    """The tensors whose contents an argument or option of a launch reads."""
    read = {
        name
        for step in implementation.steps
        for bound in (step.args.positional, step.args.named, step.options)
        for code in _codes(bound)
        if code.phase is Phase.DATA
        for name in code.tensors
    }
    return frozenset(read & {tensor.name for tensor in case.tensors})


def _codes(value: Bound | tuple[tuple[str, Bound], ...] | Any) -> Iterator[Code]:
    if isinstance(value, Code):
        yield value
    elif isinstance(value, CScalar):
        yield from _codes(value.value)
    elif isinstance(value, tuple):
        for item in value:
            yield from _codes(item)
