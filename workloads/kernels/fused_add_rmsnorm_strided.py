"""Residual addition fused with RMSNorm, in place, on rows that may lie apart in memory.

What: x, r: (rows, hidden), both updated: r += x, then x = rmsnorm(r) · (w + weight_offset); w: (hidden,);
float16 or bfloat16, the elements of a row side by side. Rows lie one behind the other ("compact") or at
a stride of their own: the layout of a slice of a wider tensor, as when x is a part of a projection's
output. What lies between two rows belongs to somebody else and must not be touched.
The "gemma" variant stores weights around zero and adds one: weight_offset is 1 instead of 0.

Tiling: one program owns a whole row, as in `fused_add_rmsnorm.py`: each element is read and written by
the same thread and nobody reads another's row, so working in place needs no synchronisation. A compact
launch leaves the strides out of the argument list: they are then the row length, known to be the same
for both tensors, and two arguments fewer to pass.

Bound: memory, four tensors per call. A row is contiguous in both layouts, so the strided one moves the
same sectors; it only spreads them over twice the pages. Strides beyond 2**31 elements from the first row
are why the row number is widened before it is multiplied.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def fused_add_rmsnorm_strided_kernel(
    x_ptr,
    r_ptr,
    w_ptr,
    N,
    eps,
    weight_offset,
    BLOCK: tl.constexpr,
    x_stride=None,
    r_stride=None,
):
    """Add one row of x into r, and put the normalised sum into x.

    Args:
        x_ptr: x: (rows, N), rows x_stride apart, read and overwritten.
        r_ptr: r: (rows, N), rows r_stride apart, read and overwritten.
        w_ptr: w: (N,).
        N: row length, in elements.
        eps: added to the mean of squares.
        weight_offset: added to every weight, in float32: 0.0, or 1.0 for gemma.
        BLOCK: N rounded up to a power of two.
        x_stride: elements from one row of x to the next; without it the rows are compact.
        r_stride: the same of r.
    """
    row = tl.program_id(0).to(tl.int64)  # row * stride may exceed 2**31
    column = tl.arange(0, BLOCK)
    inside = column < N
    x_ptr += row * (N if x_stride is None else x_stride)
    r_ptr += row * (N if r_stride is None else r_stride)

    x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + column, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32) + weight_offset
    total = x + r
    # Stored before the reduction: the write can drain while the warps wait for each other.
    tl.store(r_ptr + column, total.to(r_ptr.dtype.element_ty), mask=inside)
    mean_square = tl.sum(total * total, axis=0) / N
    y = total * tl.rsqrt(mean_square + eps) * w
    tl.store(x_ptr + column, y.to(x_ptr.dtype.element_ty), mask=inside)


def fused_add_rmsnorm_torch(x, r, w, eps, weight_offset):
    """Do the same out of place; the oracle, and what torch.compile is given.

    Functional on purpose: inductor's CPU backend fails on the in-place form (torch 2.13,
    `KeyError: 'buf1'`), and an oracle must not change its inputs.

    Args:
        x: (rows, hidden), any float dtype, rows at any stride.
        r: (rows, hidden), the dtype of x.
        w: (hidden,), the dtype of x.
        eps: added to the mean of squares.
        weight_offset: added to every weight.

    Returns:
        The new x and the new r, of the dtype of x, contiguous.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    total = x.to(wide) + r.to(wide)
    mean_square = total.square().mean(dim=-1, keepdim=True)
    y = total * torch.rsqrt(mean_square + eps) * (w.to(wide) + weight_offset)
    return y.to(x.dtype).contiguous(), total.to(x.dtype).contiguous()


def build_eager(x, r, w, eps, weight_offset):
    """Build the same of torch's two ready-made operations: an addition, then `rms_norm`.

    The offset is folded into the weight once, as a serving engine does when it loads a model. The sum
    is written over r; `rms_norm` has no form that writes over x.

    Args:
        x: (rows, hidden), any float dtype, rows at any stride.
        r: (rows, hidden), the dtype of x; overwritten.
        w: (hidden,), the dtype of x.
        eps: added to the mean of squares.
        weight_offset: added to every weight.

    Returns:
        A closure that returns the new x, and leaves the new r in r.
    """
    weight = w + weight_offset

    def launch() -> torch.Tensor:
        return torch.nn.functional.rms_norm(r.add_(x), weight.shape, weight, eps)

    return launch


def build_flashinfer(x, r, w, eps, weight_offset):
    """Build FlashInfer's kernel of this operation, in place and with strides.

    Args:
        x: (rows, hidden), float16 or bfloat16, rows at any stride.
        r: (rows, hidden), the dtype of x.
        w: (hidden,), the dtype of x.
        eps: added to the mean of squares.
        weight_offset: 0, or 1 for the gemma variant; FlashInfer has no other.

    Returns:
        A closure that updates x and r.

    Raises:
        ValueError: another offset.
    """
    from flashinfer import norm

    kernels = {0: norm.fused_add_rmsnorm, 1: norm.gemma_fused_add_rmsnorm}
    if weight_offset not in kernels:
        raise ValueError(f"FlashInfer adds 0 or 1 to the weights, not {weight_offset}")
    kernel = kernels[weight_offset]

    def launch() -> None:
        kernel(x, r, w, eps)

    return launch
