"""Matrix product on tensor cores: c = a @ b.

What: a: (m, k), b: (k, n), c: (m, n), all row-major and contiguous; bfloat16 or float16 in and out,
accumulated in float32.

Tiling: a program computes one BLOCK_M x BLOCK_N tile of c and walks along k in steps of BLOCK_K. Per
step it loads BLOCK_K · (BLOCK_M + BLOCK_N) elements and does 2 · BLOCK_M · BLOCK_N · BLOCK_K flops:
the larger the tile, the more flops for each byte. 128 x 256 is as large as the float32 accumulator
allows (128 registers a thread in eight warps), and the two operands of each step go through
shared memory, whence Hopper's wgmma reads them. The loads of the next `num_stages - 1` steps are in
flight (cp.async) while the tensor cores work on this one.

Order of tiles: programs start roughly in the order of their number. Walking c row by row would read
all of b for each row of tiles; instead GROUP_M rows of tiles are walked together, column by column,
so that the programs in flight share a few rows of a and a few columns of b, which fit into L2.

Edges: rows and columns beyond c wrap around (the modulo), so that loads need no mask in m and n:
they compute values that the masked store drops. Only a k that BLOCK_K does not divide needs masks in
the loop, and EVEN_K removes them at compile time.

Twin: `matmul_tma_kernel` computes the same tiles with two things Hopper added. Tensor descriptors: one
thread asks the copy engine (TMA) for a whole tile, instead of every thread computing addresses for
16 bytes of it; edges are cut off by the engine. And it is persistent: one program per multiprocessor
walks over many tiles, so that no launch and no empty pipeline stands between two of them.

Bound: the tensor cores from about m = n = k = 2048 up; memory when one of m, n, k is small; launch
latency and an idle half of the card at 512.
"""

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tile_of(pid, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Return the tile (row, column) of c that program `pid` owns in grouped order."""
    group_size = GROUP_M * tiles_n
    first_m = (pid // group_size) * GROUP_M
    rows = tl.minimum(tiles_m - first_m, GROUP_M)  # the last group may have fewer rows
    inside = pid % group_size
    return first_m + inside % rows, inside // rows


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_bk,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """Compute one tile of c.

    Args:
        a_ptr: a: (M, K), columns adjacent.
        b_ptr: b: (K, N), columns adjacent.
        c_ptr: c: (M, N), columns adjacent, written.
        M: rows of a and c.
        N: columns of b and c.
        K: columns of a, rows of b.
        stride_am: elements from one row of a to the next.
        stride_bk: elements from one row of b to the next.
        stride_cm: elements from one row of c to the next.
        BLOCK_M: rows of a tile.
        BLOCK_N: columns of a tile.
        BLOCK_K: steps along K.
        GROUP_M: rows of tiles that are walked together.
        EVEN_K: whether BLOCK_K divides K.
    """
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    column = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    step = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + row.to(tl.int64)[:, None] * stride_am + step[None, :]
    b_tile = b_ptr + step.to(tl.int64)[:, None] * stride_bk + column[None, :]

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_tile)
            b = tl.load(b_tile)
        else:
            a = tl.load(a_tile, mask=step[None, :] < K - k, other=0.0)
            b = tl.load(b_tile, mask=step[:, None] < K - k, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * stride_bk

    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_tile = c_ptr + row.to(tl.int64)[:, None] * stride_cm + column[None, :]
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(c_tile, accumulator.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def matmul_tma_kernel(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute every PROGRAMS-th tile of c, moved by tensor descriptors.

    Args:
        a_desc: a: (M, K), in blocks of (BLOCK_M, BLOCK_K).
        b_desc: b: (K, N), in blocks of (BLOCK_K, BLOCK_N).
        c_desc: c: (M, N), in blocks of (BLOCK_M, BLOCK_N), written.
        M: rows of a and c.
        N: columns of b and c.
        K: columns of a, rows of b.
        PROGRAMS: number of programs launched.
        BLOCK_M: rows of a tile.
        BLOCK_N: columns of a tile.
        BLOCK_K: steps along K.
        GROUP_M: rows of tiles that are walked together.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS):
        tile_m, tile_n = tile_of(tile, tiles_m, tiles_n, GROUP_M)
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([tile_m * BLOCK_M, k])
            b = b_desc.load([k, tile_n * BLOCK_N])
            accumulator = tl.dot(a, b, accumulator)
        c_desc.store([tile_m * BLOCK_M, tile_n * BLOCK_N], accumulator.to(c_desc.dtype))


def build_matmul_tma(a, b, c, block_m, block_n, block_k, group_m, num_warps, num_stages, sm_count):
    """Build the persistent kernel: descriptors hold addresses, so they are made once per tensor.

    Args:
        a: (m, k), row-major, rows of a multiple of 16 bytes.
        b: (k, n), row-major, rows of a multiple of 16 bytes.
        c: (m, n), row-major, written.
        block_m: rows of a tile.
        block_n: columns of a tile.
        block_k: steps along k.
        group_m: rows of tiles that are walked together.
        num_warps: warps per program.
        num_stages: depth of the pipeline along k.
        sm_count: multiprocessors of the device.

    Returns:
        The closure that launches it.
    """
    m, k = a.shape
    n = b.shape[1]
    programs = min(sm_count, triton.cdiv(m, block_m) * triton.cdiv(n, block_n))
    a_desc = TensorDescriptor.from_tensor(a, [block_m, block_k])
    b_desc = TensorDescriptor.from_tensor(b, [block_k, block_n])
    c_desc = TensorDescriptor.from_tensor(c, [block_m, block_n])

    def launch() -> None:
        matmul_tma_kernel[(programs,)](
            a_desc,
            b_desc,
            c_desc,
            m,
            n,
            k,
            PROGRAMS=programs,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            GROUP_M=group_m,
            num_warps=num_warps,
            num_stages=num_stages,
        )

    return launch
