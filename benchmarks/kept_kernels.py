"""Kernels that read or write a tensor, ask the L2 cache to keep it, or take that back."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

LINE_BYTES = 128
BLOCK = 1024


@triton.jit
def read_kernel(x_ptr, y_ptr, n, KEPT: tl.constexpr, BLOCK: tl.constexpr):
    """Sum blocks of n words; KEPT asks that their lines be evicted last, as who reads them again does.

    Args:
        x_ptr: (n,) of 32-bit words.
        y_ptr: one word for each program, written, so that the loads are needed.
        n: number of words.
        KEPT: whether to ask for that.
        BLOCK: words of a program.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if KEPT:
        x = tl.load(x_ptr + at, mask=at < n, other=0, eviction_policy="evict_last")
    else:
        x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x))


@triton.jit
def write_kernel(x_ptr, n, BLOCK: tl.constexpr):
    """Write n words, asking that their lines be evicted last.

    Args:
        x_ptr: (n,) of 32-bit integers.
        n: number of words.
        BLOCK: words of a program.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n, eviction_policy="evict_last")


@triton.jit
def demote_kernel(x_ptr, lines, BLOCK: tl.constexpr):
    """Give lines that are in the cache normal priority again: PTX ISA, `applypriority`.

    Args:
        x_ptr: 32-bit words, at a multiple of 128 bytes.
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


def read(words: Any, out: Any) -> None:
    """Read a tensor of 32-bit words; `out` has one for each `BLOCK` of them."""
    read_kernel[(triton.cdiv(words.numel(), BLOCK),)](words, out, words.numel(), False, BLOCK)


def keep(words: Any, out: Any) -> None:
    """Read it and have its lines kept."""
    read_kernel[(triton.cdiv(words.numel(), BLOCK),)](words, out, words.numel(), True, BLOCK)


def write(words: Any) -> None:
    """Overwrite a tensor of 32-bit integers and have its lines kept."""
    write_kernel[(triton.cdiv(words.numel(), BLOCK),)](words, words.numel(), BLOCK)


def demote(words: Any) -> None:
    """Have its lines kept no longer than others."""
    lines = triton.cdiv(4 * words.numel(), LINE_BYTES)
    demote_kernel[(triton.cdiv(lines, BLOCK),)](words, lines, BLOCK)
