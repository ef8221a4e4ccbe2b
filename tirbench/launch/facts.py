"""What ran, where several kinds of launches make one implementation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from tirbench.model import CodeFacts, MachineCode


def together(*found: CodeFacts | None) -> CodeFacts | None:
    """The facts of a sequence of launches as one; `None` where none are known.

    Registers, spills, stack and shared memory are the largest of them, instructions their sum, occupancy
    the least. The digest is of the digests, and of their kind where they agree on it.
    """
    facts = [item for item in found if item is not None]
    if len(facts) < 2:
        return facts[0] if facts else None
    kinds = {item.digest.partition(":")[0] for item in facts}
    joined = hashlib.sha256("\0".join(item.digest for item in facts).encode()).hexdigest()[:16]
    return CodeFacts(
        digest=f"{kinds.pop() if len(kinds) == 1 else 'mixed'}:{joined}",
        registers=_largest(item.registers for item in facts),
        spills=_largest(item.spills for item in facts),
        shared_bytes=_largest(item.shared_bytes for item in facts),
        stack_bytes=_largest(item.stack_bytes for item in facts),
        instructions=_sum(item.instructions for item in facts),
        occupancy=min(
            (item.occupancy for item in facts if item.occupancy is not None), default=None
        ),
    )


def of_kernels(digest: str, kernels: Sequence[MachineCode]) -> CodeFacts:
    """The facts of a sequence of kernels of one compiler, as `together` joins them.

    Args:
        digest: of their code.
        kernels: at least one, with its occupancy where that is known.
    """
    known = [code.occupancy for code in kernels if code.occupancy is not None]
    return CodeFacts(
        digest=digest,
        registers=max(code.registers for code in kernels),
        spills=max(code.stack_bytes for code in kernels) // 4,
        shared_bytes=max(code.shared_bytes for code in kernels),
        stack_bytes=max(code.stack_bytes for code in kernels),
        instructions=sum(code.instructions for code in kernels),
        occupancy=min(known, default=None),
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _largest(numbers: Iterable[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)
