"""SiLU-and-mul, the activation of a gated MLP: y = silu(gate) · up, silu(t) = t / (1 + exp(-t)).

What: x: (rows, 2 · width), gate in the left half of each row, up in the right, as one fused
projection leaves them; y: (rows, width); float16 or bfloat16, row-major and contiguous; the
arithmetic in float32.

Tiling: elementwise, so any cut would be right; the cut decides only how memory is walked. A program
takes BLOCK consecutive columns of one row: two runs of BLOCK elements, `width` apart, and writes
one. Programs of one row are neighbours in launch order, so what is in flight at any moment is a few
whole rows and DRAM pages are used up one after the other. Splitting wide rows over programs, instead
of looping over them, gives enough programs to fill the card also when there are few rows.

Bound: memory. Three elements moved for about six flops and one exponential.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def silu_and_mul_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    """Compute BLOCK columns of one row.

    The grid is rows * cdiv(width, BLOCK) programs; the column block runs fastest.

    Args:
        x_ptr: x: (rows, 2 * width), row-major, gate left, up right.
        y_ptr: y: (rows, width), row-major, written.
        width: row length of y, in elements.
        BLOCK: columns per program, a power of two.
    """
    blocks = tl.cdiv(width, BLOCK)
    # Rows and blocks share axis 0 of the grid: the other two end at 65,535.
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width

    gate = tl.load(x_ptr + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    tl.store(y_ptr + row * width + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def silu_and_mul_torch(x):
    """Do the same in plain torch, in float32 or better; the oracle, and what torch.compile is given.

    Args:
        x: (rows, 2 * width), any float dtype.

    Returns:
        y: (rows, width), the dtype of x.
    """
    gate, up = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(x.dtype)


def silu_and_mul_eager(x):
    """Do the same as torch code usually says it, in the dtype of x.

    Args:
        x: (rows, 2 * width).

    Returns:
        y: (rows, width), the dtype of x.
    """
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up
