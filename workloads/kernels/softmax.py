"""Softmax of each row: y = exp(x - max(x)) / sum(exp(x - max(x))).

What: x, y: (rows, cols), float16, bfloat16 or float32, row-major and contiguous; maxima, sums and
exponentials in float32.

Tiling, `softmax_kernel`: a program owns ROWS whole rows and holds them in registers, so x is read once
and y written once although the formula passes over a row three times (max, sum, scale). Subtracting
the maximum keeps exp from overflowing and changes nothing in exact arithmetic. Surplus columns count
as minus infinity: their exponential is zero, and they never win the maximum.

Tiling, `softmax_online_kernel`: a row of 32,000 float32 is 125 KiB, half of a multiprocessor's
registers, so that a second row cannot be loaded while the first is written. This kernel walks over the
row twice in blocks instead. The first walk finds maximum and sum together: when a block raises the
maximum, the sum so far is scaled down ("online softmax", Milakov and Gimelshein 2018). The second
walk finds the row still in L2, which is asked to keep it (`evict_last`) until it was read again, so
that memory sees one read and one write here too.

Bound: memory while a row fits into registers. The exponential unit is next: 16 per clock and
multiprocessor is about 4 T/s on an H200, so at 4 bytes an element (bfloat16 in and out) it is a
quarter of the time, and it overlaps. The online kernel takes two exponentials an element.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalise ROWS rows.

    Args:
        x_ptr: x: (rows, cols), row-major.
        y_ptr: y: (rows, cols), row-major, written.
        rows: number of rows; the last program may own fewer than ROWS.
        cols: row length, in elements.
        ROWS: rows per program, a power of two.
        BLOCK: cols rounded up to a power of two.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < cols)
    offsets = row.to(tl.int64) * cols + column  # 64-bit: rows * cols may exceed 2**31

    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    # Only surplus columns become minus infinity. A surplus row is all zero instead: it is never
    # stored, and all minus infinity it would compute inf - inf.
    x = tl.where(column < cols, x, float("-inf"))
    peak = tl.max(x, axis=1, keep_dims=True)
    # The hardware has 2**x, not e**x: one multiplication instead of a call.
    e = tl.exp2((x - peak) * LOG2_E)
    y = e * (1.0 / tl.sum(e, axis=1, keep_dims=True))  # one division a row, not one an element
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_online_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """Normalise one row in two walks over blocks of BLOCK columns.

    Args:
        x_ptr: x: (rows, cols), row-major.
        y_ptr: y: (rows, cols), row-major, written.
        cols: row length, in elements; need not be a multiple of BLOCK.
        BLOCK: columns per step, a power of two.
    """
    row = tl.program_id(0).to(tl.int64) * cols  # 64-bit: rows * cols may exceed 2**31
    peak = tl.full((), float("-inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)  # one per column of a block, added up at the end
    for start in range(0, cols, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row + column,
            mask=column < cols,
            other=float("-inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        sums = sums * tl.exp2((peak - higher) * LOG2_E) + tl.exp2((x - higher) * LOG2_E)
        peak = higher

    scale = 1.0 / tl.sum(sums, axis=0)
    for start in range(0, cols, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < cols
        x = tl.load(x_ptr + row + column, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - peak) * LOG2_E) * scale
        tl.store(y_ptr + row + column, y.to(y_ptr.dtype.element_ty), mask=inside)
