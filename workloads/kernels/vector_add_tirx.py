"""Vector addition in TIRx, once for a CPU through LLVM and once for CUDA: z = x + y.

What: x, y, z: (N,) float32, contiguous; N a multiple of 16. See `vector_add.py` for what bounds it.

TIRx is explicit where Triton is implicit. Triton's program is a block of elements, and the compiler
deals them to threads; here the thread is the unit, and the deal is written down. `T.ramp(i, 1, n)`
is the vector of the n indices from i on: indexing a tensor with it makes one wide access. N is
`T.constexpr`: compiled in, one function for each size, and so no bound is checked twice.
"""

# ruff: noqa: F821, N812 - T.jit binds the names of constexpr parameters; T is what TIRx code says

from __future__ import annotations

from tvm_tirx.script import tirx as T

LANES = 16
"""Elements per CPU access: 64 bytes of float32, a cache line and the widest register of x86-64."""

GRAIN = 32768
"""Elements below which waking other threads costs more than they save; torch has the same bound."""

VEC = 4
"""Elements per thread and access on CUDA: 16 bytes, the widest load there is."""


@T.jit
def vector_add_llvm(
    X: T.Tensor((N,), "float32"),
    Y: T.Tensor((N,), "float32"),
    Z: T.Tensor((N,), "float32"),
    *,
    N: T.constexpr,
):
    """Add LANES elements at a time; the runtime splits a long range evenly over its threads."""
    if T.constexpr(N < GRAIN):
        for i in T.serial(N // LANES):
            lanes = T.ramp(i * LANES, 1, LANES)
            Z[lanes] = X[lanes] + Y[lanes]
    else:
        for i in T.parallel(N // LANES):
            lanes = T.ramp(i * LANES, 1, LANES)
            Z[lanes] = X[lanes] + Y[lanes]


@T.jit
def vector_add_cuda(
    X: T.Tensor((N,), "float32"),
    Y: T.Tensor((N,), "float32"),
    Z: T.Tensor((N,), "float32"),
    *,
    N: T.constexpr,
    THREADS: T.constexpr,
):
    """Add VEC elements per thread: a warp moves 512 adjacent bytes with each instruction."""
    with T.device_entry(
        launch=T.cuda.LaunchConfig(
            grid=((N + THREADS * VEC - 1) // (THREADS * VEC), 1, 1), block=(THREADS, 1, 1)
        )
    ):
        start = (T.cuda.block_idx("x") * THREADS + T.cuda.thread_idx("x")) * VEC
        if start < N:
            lanes = T.ramp(start, 1, VEC)
            Z[lanes] = X[lanes] + Y[lanes]
