"""RMSNorm in TIRx, once for a CPU through LLVM and once for CUDA: y = x / sqrt(mean(x²) + eps) · w.

What: X, Y: (M, N); W: (N,); DTYPE is float32, float16 or bfloat16, row-major and contiguous; N a
multiple of 32; sums in float32.

CPU: rows are independent, so they are dealt to the threads. A row of a few thousand elements stays
in the first-level cache between the pass that sums and the pass that scales. A sum in floating point
may not be reordered by the compiler, and so not vectorised; it is written as LANES independent sums,
which are added up at the end.

CUDA: THREADS threads per row, each with its share of the row in registers between the two passes, as
`rmsnorm.py`. Neighbouring threads load neighbouring vectors of VEC elements. A row that one warp can
hold is reduced by shuffles alone, and ROWS such rows share a block; wider rows take a block each,
whose warps meet in shared memory (`T.cuda.cta_sum`).
"""

# ruff: noqa: F821, N812 - T.jit binds the names of constexpr parameters; T is what TIRx code says

from __future__ import annotations

from tvm_tirx.script import tirx as T

LANES = 32
"""Elements per CPU access, and the number of independent sums."""

VEC = 4
"""Elements per thread and access on CUDA; the code generator has no wider float32 vectors."""


@T.jit
def rmsnorm_llvm(
    X: T.Tensor((M, N), DTYPE),
    W: T.Tensor((N,), DTYPE),
    Y: T.Tensor((M, N), DTYPE),
    eps: T.float32,
    *,
    M: T.constexpr,
    N: T.constexpr,
    DTYPE: T.constexpr,
):
    """Normalise each row on one CPU thread."""
    for row in T.parallel(M):
        sums = T.alloc_local((LANES,), "float32")
        sums[T.ramp(0, 1, LANES)] = T.broadcast(T.float32(0), LANES)
        for i in T.serial(N // LANES):
            x: T.let = T.cast(X[row, T.ramp(i * LANES, 1, LANES)], f"float32x{LANES}")
            sums[T.ramp(0, 1, LANES)] = sums[T.ramp(0, 1, LANES)] + x * x
        total: T.float32 = 0.0
        for lane in T.unroll(LANES):
            total = total + sums[lane]
        scale: T.float32 = 1.0 / T.sqrt(total / N + eps)
        for i in T.serial(N // LANES):
            lanes = T.ramp(i * LANES, 1, LANES)
            x: T.let = T.cast(X[row, lanes], f"float32x{LANES}")
            w: T.let = T.cast(W[lanes], f"float32x{LANES}")
            Y[row, lanes] = T.cast(x * T.broadcast(scale, LANES) * w, f"{DTYPE}x{LANES}")


@T.jit
def rmsnorm_cuda(
    X: T.Tensor((M, N), DTYPE),
    W: T.Tensor((N,), DTYPE),
    Y: T.Tensor((M, N), DTYPE),
    eps: T.float32,
    *,
    M: T.constexpr,
    N: T.constexpr,
    DTYPE: T.constexpr,
    THREADS: T.constexpr,
    ROWS: T.constexpr,
):
    """Normalise ROWS rows per block with THREADS threads each; ROWS > 1 needs THREADS = 32."""
    with T.device_entry(
        launch=T.cuda.LaunchConfig(grid=((M + ROWS - 1) // ROWS, 1, 1), block=(THREADS, ROWS, 1))
    ):
        row = T.cuda.block_idx("x") * ROWS + T.cuda.thread_idx("y")
        thread = T.cuda.thread_idx("x")
        x = T.alloc_local(((N + THREADS * VEC - 1) // (THREADS * VEC) * VEC,), "float32")
        total: T.float32 = 0.0
        for i in T.unroll((N + THREADS * VEC - 1) // (THREADS * VEC)):
            start = (i * THREADS + thread) * VEC
            x[T.ramp(i * VEC, 1, VEC)] = T.broadcast(T.float32(0), VEC)
            if T.And(row < M, start < N):
                x[T.ramp(i * VEC, 1, VEC)] = T.cast(X[row, T.ramp(start, 1, VEC)], f"float32x{VEC}")
            for lane in T.unroll(VEC):
                total = total + x[i * VEC + lane] * x[i * VEC + lane]
        if T.constexpr(THREADS == 32):
            total = T.cuda.warp_sum(total)
        else:
            partial = T.alloc_shared((32,), "float32")
            total = T.cuda.cta_sum(total, THREADS // 32, T.address_of(partial[0]))
        scale: T.float32 = T.rsqrt(total / N + eps)
        for i in T.unroll((N + THREADS * VEC - 1) // (THREADS * VEC)):
            start = (i * THREADS + thread) * VEC
            if T.And(row < M, start < N):
                w: T.let = T.cast(W[T.ramp(start, 1, VEC)], f"float32x{VEC}")
                y: T.let = x[T.ramp(i * VEC, 1, VEC)] * T.broadcast(scale, VEC) * w
                Y[row, T.ramp(start, 1, VEC)] = T.cast(y, f"{DTYPE}x{VEC}")
