"""RMSNorm of each row: y = x / sqrt(mean(x²) + eps) · w.

What: x, y: (rows, hidden); w: (hidden,); float16, bfloat16 or float32, row-major and contiguous.
Sums are kept in float32 whatever the dtype: a float16 square overflows at 256.

Tiling: a row is read once, stays in registers while its sum of squares is reduced, is scaled and
written: the least traffic there can be. A program owns ROWS whole rows, so the reduction never
leaves the program. Wide rows take one each; with narrow rows (128 columns are 256 bytes) one row
would leave most threads idle and cost a program launch each, so several share a program. BLOCK is
`hidden` rounded up to a power of two, as Triton's shapes must be; the surplus is masked and enters
the sum as zero, which changes nothing because the mean divides by `hidden`.

Bound: memory. Four flops an element against four bytes moved (bfloat16). The weights are read by
every program but stay in L2. What costs time is latency: enough bytes must be in flight on each
multiprocessor, which `num_warps` and the number of resident programs decide.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, w_ptr, y_ptr, rows, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalise ROWS rows.

    Args:
        x_ptr: x: (rows, N), row-major.
        w_ptr: w: (N,).
        y_ptr: y: (rows, N), row-major, written.
        rows: number of rows; the last program may own fewer than ROWS.
        N: row length, in elements.
        eps: added to the mean of squares.
        ROWS: rows per program, a power of two.
        BLOCK: N rounded up to a power of two.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < N)
    # 64-bit: rows * N exceeds 2**31 for activations of a few GiB.
    offsets = row.to(tl.int64) * N + column

    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=column < N, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=1, keep_dims=True) / N
    y = x * tl.rsqrt(mean_square + eps) * w
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


def rmsnorm_torch(x, w, eps):
    """RMSNorm in plain torch, in float32 or better; the oracle, and what torch.compile is given.

    Args:
        x: (rows, hidden), any float dtype.
        w: (hidden,), the dtype of x.
        eps: added to the mean of squares.

    Returns:
        y: (rows, hidden), the dtype of x.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean_square = wide.square().mean(dim=-1, keepdim=True)
    return (wide * torch.rsqrt(mean_square + eps) * w).to(x.dtype)
