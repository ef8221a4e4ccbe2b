"""Kernels that say how long a line of the L2 cache is kept: what a flush of normal priority does not undo."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

LINE_BYTES = 128
BLOCK = 1024


@triton.jit
def keep_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Read n words, asking that their lines be evicted last, as a kernel does that will read them again.

    Args:
        x_ptr: (n,) of 32-bit integers.
        y_ptr: one word for each program, written, so that the loads are needed.
        n: number of words.
        BLOCK: words of a program.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0, eviction_policy="evict_last")
    tl.store(y_ptr + tl.program_id(0), tl.sum(x))


@triton.jit
def demote_kernel(x_ptr, lines, BLOCK: tl.constexpr):
    """Give lines that are in the cache normal priority again: PTX ISA, `applypriority`.

    Args:
        x_ptr: 32-bit integers, at a multiple of 128 bytes.
        lines: number of lines of 128 bytes.
        BLOCK: lines of a program.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    last = tl.minimum(at, lines - 1)  # the same line again, where there are no more
    address = (x_ptr + last * 32).to(tl.int64)
    tl.inline_asm_elementwise(
        "applypriority.global.L2::evict_normal [$1], 128; mov.b32 $0, 0;",
        "=r,l",
        [address],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


def keep(words: Any, out: Any) -> None:
    """Have the lines of a tensor of 32-bit integers kept."""
    grid = (triton.cdiv(words.numel(), BLOCK),)
    keep_kernel[grid](words, out, words.numel(), BLOCK)


def demote(words: Any) -> None:
    """Undo that."""
    lines = triton.cdiv(4 * words.numel(), LINE_BYTES)
    demote_kernel[(triton.cdiv(lines, BLOCK),)](words, lines, BLOCK)
