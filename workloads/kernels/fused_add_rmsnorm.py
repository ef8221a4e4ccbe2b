"""Residual addition fused with RMSNorm, both in place: r += x, then x = rmsnorm(r) · w.

What: x, r: (rows, hidden), both updated; w: (hidden,); float16 or bfloat16, row-major, contiguous.
This is the seam between two layers of a transformer: x leaves one layer and, normalised, enters the
next; r is the residual stream that runs past both. Serving engines do it in place to save memory.

Why fused: apart, the addition moves three tensors (read x, read r, write r) and the norm two (read
r, write x). Fused, r is still in registers when it is normalised: four instead of five, so at most
20 % of the time can be saved, and a launch.

Tiling: one program owns a whole row, as in `rmsnorm.py`. Each element is read and written by the
same thread and nobody reads another's row, so working in place needs no synchronisation. The norm is
taken of the float32 sum, not of the sum rounded for storing: one rounding less in x, for free.

Bound: memory. Four tensors per call; the row's two operands double the bytes in flight per
program compared with plain RMSNorm, so it needs fewer warps for the same bandwidth.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def fused_add_rmsnorm_kernel(x_ptr, r_ptr, w_ptr, N, eps, BLOCK: tl.constexpr):
    """Add one row of x into r, and put the normalised sum into x.

    Args:
        x_ptr: x: (rows, N), row-major, read and overwritten.
        r_ptr: r: (rows, N), row-major, read and overwritten.
        w_ptr: w: (N,).
        N: row length, in elements.
        eps: added to the mean of squares.
        BLOCK: N rounded up to a power of two.
    """
    row = tl.program_id(0).to(tl.int64)  # row * N may exceed 2**31
    column = tl.arange(0, BLOCK)
    inside = column < N
    offsets = row * N + column

    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    total = x + r
    # Stored before the reduction: the write can drain while the warps wait for each other.
    tl.store(r_ptr + offsets, total.to(r_ptr.dtype.element_ty), mask=inside)
    mean_square = tl.sum(total * total, axis=0) / N
    y = total * tl.rsqrt(mean_square + eps) * w
    tl.store(x_ptr + offsets, y.to(x_ptr.dtype.element_ty), mask=inside)


def fused_add_rmsnorm_torch(x, r, w, eps):
    """Do the same out of place; the oracle, and what torch.compile is given.

    Functional on purpose: inductor's CPU backend fails on the in-place form (torch 2.13,
    `KeyError: 'buf1'`), and an oracle must not change its inputs.

    Args:
        x: (rows, hidden), any float dtype.
        r: (rows, hidden), the dtype of x.
        w: (hidden,), the dtype of x.
        eps: added to the mean of squares.

    Returns:
        The new x and the new r, of the dtype of x.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    total = x.to(wide) + r.to(wide)
    mean_square = total.square().mean(dim=-1, keepdim=True)
    y = total * torch.rsqrt(mean_square + eps) * w
    return y.to(x.dtype), total.to(x.dtype)


def fused_add_rmsnorm_eager(x, r, w, eps):
    """Do the same with torch's two ready-made operations: an addition, then `rms_norm`.

    Args:
        x: (rows, hidden), any float dtype.
        r: (rows, hidden), the dtype of x.
        w: (hidden,), the dtype of x.
        eps: added to the mean of squares.

    Returns:
        The new x and the new r, of the dtype of x.
    """
    total = x + r
    return torch.nn.functional.rms_norm(total, w.shape, w, eps), total
