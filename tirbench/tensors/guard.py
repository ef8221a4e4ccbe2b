"""Watching the memory that no kernel may write: around tensors and between their rows.

Guards read as NaN through the tensor's own dtype, so a kernel that reads past an end also spoils its
result. Their bits depend on the tensor's name: neither the NaN that arithmetic makes, nor poison, nor
another tensor's guard copied over passes for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import torch

from tirbench.pieces import pieces
from tirbench.tensors.fill import CHUNK_GPU
from tirbench.tensors.gaps import gaps
from tirbench.tensors.layout import GUARD_BYTES
from tirbench.tensors.spec import INTEGERS, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_QUIET_NAN: Final = {
    # dtype: (bits set, bits left to chance)
    torch.float64: (0x7FF8 << 48, (1 << 51) - 1),
    torch.float32: (0x7FC0 << 16, (1 << 22) - 1),
    torch.float16: (0x7E00, 0x81FF),
    torch.bfloat16: (0x7FC0, 0x803F),
    torch.float8_e4m3fn: (0x7F, 0x80),
    torch.float8_e5m2: (0x7D, 0x82),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The watched memory of one tensor.

    Args:
        name: the tensor's name.
        before: bytes in front of its storage.
        after: bytes behind it.
        pattern: what both of them hold, one behind the other.
        flat: its own storage as integers, gaps among them.
        gaps: views of the gaps between its elements.
        scattered: where rows interleave, so that there are no regular gaps: positions in `flat`.
        word: what every gap element holds.
    """

    name: str
    before: torch.Tensor
    after: torch.Tensor
    pattern: torch.Tensor
    flat: torch.Tensor
    gaps: tuple[torch.Tensor, ...]
    scattered: torch.Tensor | None
    word: int


def guard(name: str, owned: Storage, memory: torch.Tensor, offset: int) -> Guard:
    """Watch the tensor whose storage begins `offset` bytes into `memory`; paints nothing yet."""
    end = offset + owned.nbytes
    flat = memory[offset:end].view(INTEGERS[owned.dtype.itemsize])
    blocks = gaps(owned.shape, owned.strides, owned.offset)
    start = flat.storage_offset()
    return Guard(
        name=name,
        before=memory[offset - GUARD_BYTES : offset],
        after=memory[end : end + GUARD_BYTES],
        pattern=_pattern(name, owned.dtype).to(memory.device),
        flat=flat,
        gaps=tuple(
            flat.as_strided(block.shape, block.strides, start + block.offset)
            for block in blocks or ()
        ),
        scattered=_scattered(owned, flat) if blocks is None else None,
        word=_word(name, owned.dtype),
    )


def paint(guards: Mapping[str, Guard]) -> None:
    """Write all guards and gaps."""
    for one in guards.values():
        one.before.copy_(one.pattern[:GUARD_BYTES])
        one.after.copy_(one.pattern[GUARD_BYTES:])
        for gap in one.gaps:
            gap.fill_(one.word)
        if one.scattered is not None:
            one.flat[one.scattered] = one.word


def changed(guards: Mapping[str, Guard]) -> list[str]:
    """A sentence for each guard or gap that was written; the memory is left as found."""
    suspects = list(guards.values())
    if not suspects:
        return []
    intact = torch.stack([_intact(one) for one in suspects]).tolist()  # one wait for the device
    return [
        sentence
        for one, good in zip(suspects, intact, strict=True)
        if not good
        for sentence in _sentences(one)
    ]


def _intact(one: Guard) -> torch.Tensor:
    """Whether nothing of it changed, as a bool on the device."""
    good = (one.before == one.pattern[:GUARD_BYTES]).all()
    good &= (one.after == one.pattern[GUARD_BYTES:]).all()
    for gap in one.gaps:
        for index, _, _ in pieces(gap.shape, CHUNK_GPU):
            good &= (gap[index] == one.word).all()
    if one.scattered is not None:
        good &= (one.flat[one.scattered] == one.word).all()
    return good


def _sentences(one: Guard) -> Iterator[str]:
    """What was written, and where the first of it lies."""
    before = (one.before != one.pattern[:GUARD_BYTES]).nonzero().flatten().tolist()
    if before:
        yield (
            f"{one.name}: written before its start: {len(before)} of {GUARD_BYTES} guard bytes "
            f"changed, the first at byte -{GUARD_BYTES - before[0]} from its start"
        )
    after = (one.after != one.pattern[GUARD_BYTES:]).nonzero().flatten().tolist()
    if after:
        yield (
            f"{one.name}: written behind its end: {len(after)} of {GUARD_BYTES} guard bytes "
            f"changed, the first at byte +{after[0]} from its end"
        )
    count, first = _changed_gaps(one)
    if count:
        yield (
            f"{one.name}: written between its rows: {count} elements of the gaps changed, "
            f"the first at byte +{first} from its start"
        )


def _changed_gaps(one: Guard) -> tuple[int, int]:
    """How many gap elements changed, and how many bytes from the start the first of them lies."""
    count, first = 0, one.flat.numel()
    for gap in one.gaps:
        for index, _, _ in pieces(gap.shape, CHUNK_GPU):
            piece = gap[index]
            wrong = (piece != one.word).nonzero()
            if len(wrong):
                strides = torch.tensor(piece.stride(), device=wrong.device)
                nearest = int((wrong * strides).sum(-1).min())
                count += len(wrong)
                first = min(first, nearest + piece.storage_offset() - one.flat.storage_offset())
    if one.scattered is not None:
        wrong = one.scattered[one.flat[one.scattered] != one.word]
        if len(wrong):
            count, first = len(wrong), int(wrong.min())
    return count, first * one.flat.element_size()


def _scattered(owned: Storage, flat: torch.Tensor) -> torch.Tensor:
    """Positions of the storage that no element uses, found by marking those that one does."""
    used = torch.zeros(flat.numel(), dtype=torch.bool, device=flat.device)
    used.as_strided(owned.shape, owned.strides, owned.offset).fill_(True)
    return used.logical_not_().nonzero().flatten()


def _pattern(name: str, dtype: torch.dtype) -> torch.Tensor:
    """Bytes of both guards of a tensor of that name: NaN in every element if the dtype has it."""
    chance = b"".join(
        blake2b(f"tirbench guard\0{name}\0{i}".encode()).digest() for i in range(GUARD_BYTES // 32)
    )
    random = torch.frombuffer(bytearray(chance), dtype=torch.uint8)
    if dtype not in _QUIET_NAN:
        return random
    fixed, free = _QUIET_NAN[dtype]
    words = random.view(INTEGERS[dtype.itemsize])
    words.bitwise_and_(_wrapped(free, dtype)).bitwise_or_(_wrapped(fixed, dtype))
    return random


def _word(name: str, dtype: torch.dtype) -> int:
    """The integer that fills the gaps of a tensor of that name."""
    if dtype in _QUIET_NAN and dtype.itemsize == 1:
        return 0xFF  # the other NaN than what arithmetic and poison make
    return int(_pattern(name, dtype).view(INTEGERS[dtype.itemsize])[0])


def _wrapped(word: int, dtype: torch.dtype) -> int:
    """The word as an integer of the type that `INTEGERS` has for this dtype."""
    width = 8 * dtype.itemsize
    return word - (1 << width) if width > 8 and word >> (width - 1) else word
