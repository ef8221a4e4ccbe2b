"""Vector addition: z = x + y.

What: x, y, z: (n,) float32, contiguous. The "hello world" of GPU kernels, and the workload with
which a machine's memory bandwidth shows itself with nothing in the way.

Tiling: one program adds one contiguous block of BLOCK elements. Neighbouring threads touch
neighbouring addresses, and each thread's share is a run of four float32, so that every load and
store is one 128-bit instruction and a warp moves whole 512-byte lines. The last block is masked;
when n is a multiple of 16 the compiler sees that the mask cannot split a 128-bit access and keeps
the wide form.

Bound: memory. Two reads and one write per addition, 12 bytes for one flop; arithmetic is free. A
small n measures launch latency instead, which is why the default cases span three orders of size.
"""

import triton
import triton.language as tl


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Add one block of BLOCK elements.

    Args:
        x_ptr: x: (n,), contiguous.
        y_ptr: y: (n,), of the same dtype.
        z_ptr: z: (n,), written.
        n: number of elements; need not be a multiple of BLOCK.
        BLOCK: elements per program, a power of two.
    """
    # 64-bit from here on: the product passes 2**31 before n does on a card of this size.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(z_ptr + offsets, x + y, mask=inside)
