"""Product of two NVFP4 matrices on tensor cores without fp4: c = alpha · a @ b.T, dequantised in registers.

What: a: (m, k) and b: (n, k) in e2m1, two values to a byte, with a float8_e4m3fn scale for each 16 in a row
in the 128x4 layout (`quantise_fp4.py` says how); alpha: (1,) float32; c: (m, n) bfloat16 or float16,
row-major and contiguous; accumulated in float32.

Why: Hopper has no fp4 tensor cores, but weights and activations in 4.5 bits are a quarter of the traffic.
Each tile is turned into float16 on the way to wgmma. value · scale has at most 6 significant bits
and lies below 2,688, so float16 holds it exactly: the result has no error but the rounding of sums.

Decoding: the three low bits of a code, shifted to bits 11 to 9, are the exponent and mantissa of a float16
that is 2**14 times too small, also where both are subnormal (code 1 is 0.5). One multiplication by
2**14 · sign follows, one by the scale.

No interleaving: the low and the high four bits of the bytes are the even and the odd columns. A sum over k
may be taken in any order, so the even columns of a meet the even ones of b in one wgmma, the odd
ones in a second, and no value changes its place.

Bound: meant to be the tensor cores; in fact the integer and conversion instructions of the decoding, which
every program repeats for its tile. A larger tile repeats less of it.
"""

import torch
import triton
import triton.language as tl
from quantise_fp4 import dequantise


@triton.jit
def scale_at(row, group, tiles_k):
    """Where the scale of a row and a group of 16 columns lies in the 128x4 layout.

    Args:
        row: rows, any shape.
        group: columns // 16, of a shape that broadcasts with it.
        tiles_k: tiles of 4 groups along k.
    """
    tile = (row // 128) * tiles_k + group // 4
    return tile * 512 + (row % 32) * 16 + (row % 128) // 32 * 4 + group % 4


@triton.jit
def halves(
    packed_ptr, scale_ptr, row, byte, row_bytes, tiles_k,
    BLOCK: tl.constexpr, STEP: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Load a tile of packed codes and return its even and its odd columns in float16.

    Args:
        packed_ptr: (rows, row_bytes) uint8.
        scale_ptr: float8_e4m3fn in the 128x4 layout.
        row: (BLOCK,) int64, rows of the tile, within the matrix.
        byte: first byte of the tile in each row, a multiple of 8.
        row_bytes: bytes of a row, half its columns, a multiple of 8.
        tiles_k: tiles of 64 columns in the layout of the scales.
        BLOCK: rows of the tile.
        STEP: bytes of a row of the tile, a multiple of 8.
        EVEN_K: whether the tile lies within the matrix.

    Returns:
        Two tiles (BLOCK, STEP) float16.
    """
    at = byte + tl.arange(0, STEP)
    group = byte // 8 + tl.arange(0, STEP // 8)  # eight bytes are the 16 values of one scale
    tile = packed_ptr + row[:, None] * row_bytes + at[None, :]
    scale_tile = scale_ptr + scale_at(row[:, None], group[None, :], tiles_k)
    if EVEN_K:
        packed = tl.load(tile)
        scale = tl.load(scale_tile)
    else:
        packed = tl.load(tile, mask=at[None, :] < row_bytes, other=0)
        scale = tl.load(scale_tile, mask=group[None, :] < row_bytes // 8, other=0.0)
    packed = tl.reshape(packed, (BLOCK, STEP // 8, 8))
    factor = scale.to(tl.float16)[:, :, None]
    low = tl.reshape(decoded(packed & 15) * factor, (BLOCK, STEP))
    high = tl.reshape(decoded(packed >> 4) * factor, (BLOCK, STEP))
    return low, high


@triton.jit
def decoded(code):
    """The float16 that an e2m1 code of four bits stands for."""
    bits = code.to(tl.uint16)
    tiny = ((bits & 8) << 12 | (bits & 7) << 9).to(tl.float16, bitcast=True)
    return tiny * 16384.0


@triton.jit
def fp4_gemm_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, alpha_ptr, c_ptr, M, N, row_bytes,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of c; the grid is (cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N),).

    Args:
        a_ptr: a: (M, row_bytes) uint8.
        a_scale_ptr: scales of a, 128x4.
        b_ptr: b: (N, row_bytes) uint8.
        b_scale_ptr: scales of b, 128x4.
        alpha_ptr: alpha: (1,) float32.
        c_ptr: c: (M, N), written.
        M: rows of a and c.
        N: rows of b, columns of c.
        row_bytes: bytes of a row of a and b, k / 2; a multiple of 8.
        BLOCK_M: rows of a tile.
        BLOCK_N: columns of a tile.
        BLOCK_K: values along k per step, a multiple of 32.
        GROUP_M: rows of tiles that are walked together, for L2.
        EVEN_K: whether BLOCK_K divides k.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first_m = tl.program_id(0) // (GROUP_M * tiles_n) * GROUP_M
    group_rows = tl.minimum(tiles_m - first_m, GROUP_M)  # the last group may have fewer rows
    within = tl.program_id(0) % (GROUP_M * tiles_n)
    row = (first_m + within % group_rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = within // group_rows * BLOCK_N + tl.arange(0, BLOCK_N)
    tiles_k = tl.cdiv(row_bytes, 32)
    STEP: tl.constexpr = BLOCK_K // 2
    # Beyond the edges of c rows and columns wrap around: the loads need no mask, the store has one.
    a_row, b_row = (row % M).to(tl.int64), (column % N).to(tl.int64)

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for byte in range(0, row_bytes, STEP):
        a_low, a_high = halves(
            a_ptr, a_scale_ptr, a_row, byte, row_bytes, tiles_k, BLOCK_M, STEP, EVEN_K
        )  # fmt: skip
        b_low, b_high = halves(
            b_ptr, b_scale_ptr, b_row, byte, row_bytes, tiles_k, BLOCK_N, STEP, EVEN_K
        )  # fmt: skip
        accumulator = tl.dot(a_low, tl.trans(b_low), accumulator)
        accumulator = tl.dot(a_high, tl.trans(b_high), accumulator)

    c = (accumulator * tl.load(alpha_ptr)).to(c_ptr.dtype.element_ty)
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(c_ptr + row.to(tl.int64)[:, None] * N + column[None, :], c, mask=inside)


def fp4_gemm_oracle(a, a_scale, b, b_scale, alpha):
    """The product in float64 of what the quantised operands stand for.

    Args:
        a: (m, k / 2) uint8.
        a_scale: scales of a, 128x4, any float dtype.
        b: (n, k / 2) uint8.
        b_scale: scales of b, 128x4, any float dtype.
        alpha: (1,), any float dtype.

    Returns:
        c: (m, n) float64.
    """
    wide_a = dequantise(a, a_scale, torch.float64)
    return alpha.double() * (wide_a @ dequantise(b, b_scale, torch.float64).T)


def build_matmul(a, a_scale, b, b_scale, alpha, c):
    """Build torch's product of the operands dequantised beforehand, four times the bytes.

    Args:
        a: (m, k / 2) uint8.
        a_scale: scales of a, 128x4.
        b: (n, k / 2) uint8.
        b_scale: scales of b, 128x4.
        alpha: (1,) float32; read once, here.
        c: (m, n) bfloat16 or float16, written by the launch.

    Returns:
        The closure that launches it.
    """
    wide_a, wide_b = dequantise(a, a_scale, c.dtype), dequantise(b, b_scale, c.dtype).T
    factor = alpha.item()

    def launch() -> None:
        torch.addmm(c, wide_a, wide_b, beta=0, alpha=factor, out=c)  # beta 0: c is not read

    return launch


def build_flashinfer(a, a_scale, b, b_scale, alpha, c):
    """Build flashinfer's product on fp4 tensor cores.

    Args:
        a: (m, k / 2) uint8.
        a_scale: scales of a, 128x4.
        b: (n, k / 2) uint8.
        b_scale: scales of b, 128x4.
        alpha: (1,) float32.
        c: (m, n) bfloat16, written by the launch.

    Returns:
        The closure that launches it.
    """
    import flashinfer

    # It takes the layout as a matrix of padded rows and columns, though the bytes lie in tiles.
    a_factors = a_scale.reshape(a_scale.shape[0] * 128, -1)
    b_factors = b_scale.reshape(b_scale.shape[0] * 128, -1)

    def launch() -> None:
        flashinfer.mm_fp4(a, b.T, a_factors, b_factors.T, alpha, c.dtype, out=c)

    return launch
