"""What ran, where several kinds of launches make one implementation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tirbench.model import CodeFacts


def together(*found: CodeFacts | None) -> CodeFacts | None:
    """The facts of a sequence of launches as one; `None` where none are known.

    Registers, spills and shared memory are the largest of them. The digest is of the digests, and of
    their kind where they agree on it.
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
    )


def _largest(numbers: Iterable[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)
