"""Softmax in TIRx, once for a CPU through LLVM and once for CUDA.

What: X, Y: (M, N); DTYPE is float32, float16 or bfloat16, row-major and contiguous; N a multiple of
32; arithmetic in float32. See `softmax.py` for the formula.

CPU: rows are dealt to the threads; within a row maxima and sums are kept in LANES independent lanes,
because the compiler may not reorder floating-point reductions. LLVM has no vector exponential: it
would call the C library once an element, ten times slower than all the rest. `exp2` here is a
polynomial and a shift into the exponent bits, LANES at a time.

CUDA: one block per row, each thread's share in registers, maximum and sum across the block by
shuffles within warps and shared memory between them (`T.cuda.cta_max`, `T.cuda.cta_sum`).
"""

# ruff: noqa: F821, N812 - T.jit binds the names of constexpr parameters; T is what TIRx code says

from __future__ import annotations

from tvm_tirx.script import tirx as T

LANES = 32
"""Elements per CPU access, and the number of independent maxima and sums."""

VEC = 4
"""Elements per thread and access on CUDA; the code generator has no wider float32 vectors."""

LOG2_E = 1.4426950408889634

# 2**f on [-0.5, 0.5], highest power first: interpolation at the Chebyshev points, relative error 1e-7
POLYNOMIAL = (
    0.0013390863364698205,
    0.009676031918298474,
    0.055503571142190296,
    0.24022107485309188,
    0.6931471880262294,
    1.0000000754548972,
)


def splat(number):
    """Return LANES copies of a number."""
    return T.broadcast(T.float32(number), LANES)


def polynomial(f):
    """Return 2**f for LANES values within [-0.5, 0.5], by Horner's rule."""
    power = splat(POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        power = power * f + splat(coefficient)
    return power


def power_of_two(n):
    """Return 2**n for LANES int32 values within [-126, 0]: n is put where a float keeps it."""
    bits = (n + T.broadcast(127, LANES)) << T.broadcast(23, LANES)
    return T.reinterpret(bits, ty=f"float32x{LANES}")


@T.jit
def softmax_llvm(
    X: T.Tensor((M, N), DTYPE),
    Y: T.Tensor((M, N), DTYPE),
    *,
    M: T.constexpr,
    N: T.constexpr,
    DTYPE: T.constexpr,
):
    """Normalise each row on one CPU thread, in three passes that stay in its cache."""
    for row in T.parallel(M):
        exponentials = T.alloc_local((N,), "float32")
        reduced = T.alloc_local((LANES,), "float32")
        reduced[T.ramp(0, 1, LANES)] = splat(-3.0e38)
        for i in T.serial(N // LANES):
            x: T.let = T.cast(X[row, T.ramp(i * LANES, 1, LANES)], f"float32x{LANES}")
            reduced[T.ramp(0, 1, LANES)] = T.max(reduced[T.ramp(0, 1, LANES)], x)
        peak: T.float32 = -3.0e38
        for lane in T.unroll(LANES):
            peak = T.max(peak, reduced[lane])

        reduced[T.ramp(0, 1, LANES)] = splat(0)
        for i in T.serial(N // LANES):
            x: T.let = T.cast(X[row, T.ramp(i * LANES, 1, LANES)], f"float32x{LANES}")
            # Below 2**-126 float32 loses its exponent bits; such terms vanish in the sum anyway.
            t: T.let = T.max((x - T.broadcast(peak, LANES)) * splat(LOG2_E), splat(-126))
            n: T.let = T.cast(t - splat(0.5), f"int32x{LANES}")  # rounds: t is never positive
            e: T.let = polynomial(t - T.cast(n, f"float32x{LANES}")) * power_of_two(n)
            reduced[T.ramp(0, 1, LANES)] = reduced[T.ramp(0, 1, LANES)] + e
            exponentials[T.ramp(i * LANES, 1, LANES)] = e
        total: T.float32 = 0.0
        for lane in T.unroll(LANES):
            total = total + reduced[lane]

        scale: T.float32 = 1.0 / total
        for i in T.serial(N // LANES):
            y: T.let = exponentials[T.ramp(i * LANES, 1, LANES)] * T.broadcast(scale, LANES)
            Y[row, T.ramp(i * LANES, 1, LANES)] = T.cast(y, f"{DTYPE}x{LANES}")


@T.jit
def softmax_cuda(
    X: T.Tensor((M, N), DTYPE),
    Y: T.Tensor((M, N), DTYPE),
    *,
    M: T.constexpr,
    N: T.constexpr,
    DTYPE: T.constexpr,
    THREADS: T.constexpr,
):
    """Normalise one row per block of THREADS threads, VEC elements per access."""
    with T.device_entry(launch=T.cuda.LaunchConfig(grid=(M, 1, 1), block=(THREADS, 1, 1))):
        row = T.cuda.block_idx("x")
        thread = T.cuda.thread_idx("x")
        x = T.alloc_local(((N + THREADS * VEC - 1) // (THREADS * VEC) * VEC,), "float32")
        partial = T.alloc_shared((32,), "float32")
        peak: T.float32 = -3.0e38
        for i in T.unroll((N + THREADS * VEC - 1) // (THREADS * VEC)):
            start = (i * THREADS + thread) * VEC
            x[T.ramp(i * VEC, 1, VEC)] = T.broadcast(T.float32(-3.0e38), VEC)
            if start < N:
                x[T.ramp(i * VEC, 1, VEC)] = T.cast(X[row, T.ramp(start, 1, VEC)], f"float32x{VEC}")
            for lane in T.unroll(VEC):
                peak = T.max(peak, x[i * VEC + lane])
        peak = T.cuda.cta_max(peak, THREADS // 32, T.address_of(partial[0]))

        total: T.float32 = 0.0
        for i in T.unroll((N + THREADS * VEC - 1) // (THREADS * VEC) * VEC):
            x[i] = T.exp2((x[i] - peak) * LOG2_E)
            total = total + x[i]
        total = T.cuda.cta_sum(total, THREADS // 32, T.address_of(partial[0]))

        scale: T.float32 = 1.0 / total
        for i in T.unroll((N + THREADS * VEC - 1) // (THREADS * VEC)):
            start = (i * THREADS + thread) * VEC
            if start < N:
                y: T.let = x[T.ramp(i * VEC, 1, VEC)] * T.broadcast(scale, VEC)
                Y[row, T.ramp(start, 1, VEC)] = T.cast(y, f"{DTYPE}x{VEC}")
