"""Matrix product with k split over programs: c = a @ b where m and n are small and k is large.

What: a: (m, k), rows contiguous; b: (k, n), columns contiguous (a weight matrix (n, k), transposed);
c: (m, n), row-major and contiguous; bfloat16 or float16 in and out, accumulated in float32.

Why split: with m = 16 and n = 4,096 there are 32 tiles of 16 x 128 for 132 multiprocessors. SPLIT_K programs
share each tile, every one a share of k, and add their partial sums into `acc` with float32 atomics, which
the L2 cache executes. `acc` must be zero before; a second kernel casts it to c. The order of the
additions changes from run to run, and the last bits of float32 with it, far below the rounding to c.

Tuning: the best tile depends on m more than on anything; BLOCK_M = 16 for decoding, up to 128 for more
rows. The tuner runs a configuration many times, so it must zero `acc` before each (`reset_to_zero`).

Bound: memory for m = 16, where b is read once and that is all; the more rows, the more the tensor
cores and the traffic of the atomics, SPLIT_K · m · n · 4 bytes.
"""

import triton
import triton.language as tl

CONFIGURATIONS = [
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 128}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 256}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 256}, num_warps=4, num_stages=5),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}, num_warps=4, num_stages=5),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_warps=8, num_stages=4),
]


@triton.autotune(CONFIGURATIONS, key=["M", "N", "K", "SPLIT_K"], reset_to_zero=["acc_ptr"])
@triton.heuristics({"EVEN_K": lambda args: args["K"] % (args["BLOCK_K"] * args["SPLIT_K"]) == 0})
@triton.jit
def matmul_split_k_kernel(
    a_ptr, b_ptr, acc_ptr, M, N, K, stride_am, stride_bn,
    SPLIT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """Add one program's share of k to one tile of acc.

    The grid is (cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), SPLIT_K).

    Args:
        a_ptr: a: (M, K), columns adjacent.
        b_ptr: b: (K, N), rows adjacent.
        acc_ptr: acc: (M, N) float32, contiguous, zero or holding other programs' shares; added to.
        M: rows of a and acc.
        N: columns of b and acc.
        K: columns of a, rows of b.
        stride_am: elements from one row of a to the next.
        stride_bn: elements from one column of b to the next.
        SPLIT_K: programs that share one tile; they take the blocks of k in turn.
        BLOCK_M: rows of a tile.
        BLOCK_N: columns of a tile.
        BLOCK_K: steps along K.
        EVEN_K: whether every program has whole blocks of k only.
    """
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    step = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    # Beyond the edges of c rows and columns wrap around: the loads need no mask, the store has one.
    a_tile = a_ptr + (row % M).to(tl.int64)[:, None] * stride_am + step[None, :]
    b_tile = b_ptr + (column % N).to(tl.int64)[None, :] * stride_bn + step[:, None]

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K * SPLIT_K):
        if EVEN_K:
            a = tl.load(a_tile)
            b = tl.load(b_tile)
        else:
            a = tl.load(a_tile, mask=step[None, :] < K - k, other=0.0)
            b = tl.load(b_tile, mask=step[:, None] < K - k, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_tile += BLOCK_K * SPLIT_K
        b_tile += BLOCK_K * SPLIT_K

    acc_tile = acc_ptr + row.to(tl.int64)[:, None] * N + column[None, :]
    inside = (row[:, None] < M) & (column[None, :] < N)
    # Relaxed: nobody reads acc before the kernel has ended.
    tl.atomic_add(acc_tile, accumulator, mask=inside, sem="relaxed")


@triton.jit
def cast_kernel(source_ptr, target_ptr, count, BLOCK: tl.constexpr):
    """Round BLOCK float32 elements to the dtype of the target.

    Args:
        source_ptr: source: (count,) float32.
        target_ptr: target: (count,), any float dtype, written.
        count: number of elements.
        BLOCK: elements per program.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(source_ptr + at, mask=inside)
    tl.store(target_ptr + at, value.to(target_ptr.dtype.element_ty), mask=inside)
