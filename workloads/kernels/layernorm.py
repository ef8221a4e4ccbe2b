"""LayerNorm of each row: y = (x - mean(x)) / sqrt(var(x) + eps) · w + b.

What: x, y: (rows, hidden); w, b: (hidden,); float16, bfloat16 or float32, row-major and contiguous;
statistics in float32.

Tiling: as `rmsnorm.py`, whole rows in registers, ROWS of them per program. The variance is taken in
a second pass over the registers, of the differences from the mean. The textbook short cut
mean(x²) - mean(x)² needs one pass, but subtracts two nearly equal numbers as soon as the mean is
large against the spread; since the row is in registers anyway, the accurate form costs one more
reduction and no traffic. Masked columns need care here: they are read as zero, which is right for
the sum but not for the differences (0 - mean is not zero), so they are masked once more.

Bound: memory, as RMSNorm; two dependent reductions instead of one make the latency of a row longer,
so more rows must be in flight for the same bandwidth.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, rows, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Normalise ROWS rows.

    Args:
        x_ptr: x: (rows, N), row-major.
        w_ptr: w: (N,), the scale.
        b_ptr: b: (N,), the shift.
        y_ptr: y: (rows, N), row-major, written.
        rows: number of rows; the last program may own fewer than ROWS.
        N: row length, in elements.
        eps: added to the variance.
        ROWS: rows per program, a power of two.
        BLOCK: N rounded up to a power of two.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < N)
    offsets = row.to(tl.int64) * N + column  # 64-bit: rows * N may exceed 2**31

    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=column < N, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + column, mask=column < N, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1, keep_dims=True) / N
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / N
    y = centred * tl.rsqrt(variance + eps) * w + b
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


def layernorm_torch(x, w, b, eps):
    """LayerNorm in plain torch, in float32 or better; the oracle, and what torch.compile is given.

    Args:
        x: (rows, hidden), any float dtype.
        w: (hidden,), the dtype of x.
        b: (hidden,), the dtype of x.
        eps: added to the variance.

    Returns:
        y: (rows, hidden), the dtype of x.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return (centred * torch.rsqrt(variance + eps) * w + b).to(x.dtype)
