"""Grouped matrix product over rows that hold something: d[g, i] = a[g, i] @ b[g].T for i < masked_m[g].

What: a mixture of experts while decoding. a: (groups, m, k) float8_e4m3fn, space for m tokens per expert of
which the first masked_m[g] are there; a_scale: (groups, m, k / 128) float32, one scale for 128 columns;
b: (groups, n, k) float8_e4m3fn, the experts' weights; b_scale: (groups, n / 128, k / 128) float32, one scale
for 128 x 128; d: (groups, m, n) bfloat16 or float16; all contiguous. Rows beyond masked_m[g] are neither
read nor written.

Why masked: the number of tokens per expert is known on the device only. A grid made of it would need a
copy to the host, and a captured graph could not change it. So the grid is fixed, one program for
each multiprocessor, and each walks over the tiles of all groups and takes every PROGRAMS-th of those that
the counts say exist (as DeepGEMM's scheduler does).

Scales: the tensor cores multiply bare float8 over 128 columns; each such partial sum is scaled and added in
float32 (DeepSeek-V3, section 3.3.2). That also bounds the error of Hopper's float8 wgmma, whose own
accumulator keeps about 14 bits: no sum in it is longer than 128.

Bound: with some hundred tokens per expert the weights, n · k bytes per group; with more, the tensor
cores, at twice the rate of bfloat16.
"""

import torch
import triton
import triton.language as tl

BLOCK = 128  # columns, and of b also rows, that share a scale
LARGEST = 448.0  # of float8_e4m3fn


@triton.jit
def masked_grouped_gemm_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, d_ptr, masked_m_ptr, M, N, K,
    GROUPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute every num_programs-th tile of the rows that are there; any one-dimensional grid does.

    Args:
        a_ptr: a: (GROUPS, M, K) float8_e4m3fn.
        a_scale_ptr: a_scale: (GROUPS, M, K / BLOCK_K) float32.
        b_ptr: b: (GROUPS, N, K) float8_e4m3fn.
        b_scale_ptr: b_scale: (GROUPS, cdiv(N, BLOCK_K), K / BLOCK_K) float32.
        d_ptr: d: (GROUPS, M, N), its first rows written.
        masked_m_ptr: masked_m: (GROUPS,) int32, at most M.
        M: rows per group for which there is space.
        N: rows of b, columns of d.
        K: columns of a and b, a multiple of BLOCK_K.
        GROUPS: groups.
        BLOCK_M: rows of a tile.
        BLOCK_N: columns of a tile; divides BLOCK_K, so that a tile has one scale of b.
        BLOCK_K: columns that share a scale, also the step along K.
    """
    tl.static_assert(BLOCK_K % BLOCK_N == 0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    scales_k = K // BLOCK_K
    step = tl.arange(0, BLOCK_K)
    tile = tl.program_id(0)
    first = 0  # number of the first tile of this group
    for group in range(GROUPS):
        rows = tl.load(masked_m_ptr + group)
        tiles_m = tl.cdiv(rows, BLOCK_M)
        last = first + tiles_m * tiles_n
        while tile < last:
            # Column by column: programs at work together share a few blocks of b, the larger operand.
            row = (tile - first) % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)
            tile_n = (tile - first) // tiles_m
            column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            # Beyond the edges rows and columns wrap around: only the store needs a mask.
            a_row = (group * M + row % rows).to(tl.int64)
            b_row = (group * N + column % N).to(tl.int64)
            a_tile = a_ptr + a_row[:, None] * K + step[None, :]
            b_tile = b_ptr + b_row[None, :] * K + step[:, None]
            a_scale = a_scale_ptr + a_row * scales_k
            b_block = group * tl.cdiv(N, BLOCK_K) + tile_n * BLOCK_N // BLOCK_K
            b_scale = b_scale_ptr + b_block * scales_k
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(scales_k):
                partial = tl.dot(tl.load(a_tile), tl.load(b_tile))
                scale = tl.load(a_scale + k) * tl.load(b_scale + k)
                accumulator += partial * scale[:, None]
                a_tile += BLOCK_K
                b_tile += BLOCK_K
            d_tile = d_ptr + (group * M + row).to(tl.int64)[:, None] * N + column[None, :]
            inside = (row[:, None] < rows) & (column[None, :] < N)
            tl.store(d_tile, accumulator.to(d_ptr.dtype.element_ty), mask=inside)
            tile += tl.num_programs(0)
        first = last


def quantise_rows(x):
    """Quantise with one scale for 128 columns of a row, as for activations.

    Args:
        x: (groups, rows, k), any float dtype; k is a multiple of 128.

    Returns:
        values: (groups, rows, k) float8_e4m3fn; scales: (groups, rows, k / 128) float32; x is about
        values · scales.
    """
    values = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    scales = x.new_empty(*x.shape[:2], x.shape[2] // BLOCK, dtype=torch.float32)
    for group in range(len(x)):  # temporaries of one group fit beside the tensors of any case
        parts = x[group].float().unflatten(1, (-1, BLOCK))
        scales[group] = parts.abs().amax(-1).clamp(min=1e-10) / LARGEST
        values[group] = (parts / scales[group][..., None]).flatten(1).to(torch.float8_e4m3fn)
    return values, scales


def quantise_blocks(x):
    """Quantise with one scale for 128 x 128, as for weights.

    Args:
        x: (groups, rows, k), any float dtype; k is a multiple of 128, the last block of rows may be short.

    Returns:
        values: (groups, rows, k) float8_e4m3fn; scales: (groups, cdiv(rows, 128), k / 128) float32.
    """
    groups, rows, k = x.shape
    values = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    scales = x.new_empty(groups, -(-rows // BLOCK), k // BLOCK, dtype=torch.float32)
    for block in range(scales.shape[1]):
        some = slice(block * BLOCK, (block + 1) * BLOCK)
        parts = x[:, some].float().unflatten(2, (-1, BLOCK))
        scales[:, block] = parts.abs().amax((1, 3)).clamp(min=1e-10) / LARGEST
        scaled = parts / scales[:, block][:, None, :, None]
        values[:, some] = scaled.flatten(2).to(torch.float8_e4m3fn)
    return values, scales


def dequantise(values, scales, dtype):
    """Values times scales of one group.

    Args:
        values: (rows, k) float8_e4m3fn, or cast up.
        scales: (rows, k / 128) or (cdiv(rows, 128), k / 128).
        dtype: of the result; the product is taken in float32 or better.

    Returns:
        (rows, k) in that dtype.
    """
    if len(scales) != len(values):
        scales = scales.repeat_interleave(BLOCK, 0)[: len(values)]
    wide = values.to(torch.promote_types(scales.dtype, torch.float32)).unflatten(1, (-1, BLOCK))
    return (wide * scales[..., None]).flatten(1).to(dtype)


def masked_grouped_gemm_oracle(a, a_scale, b, b_scale, masked_m):
    """The product of the dequantised operands, group by group.

    Args:
        a: (groups, m, k), any float dtype.
        a_scale: (groups, m, k / 128), the same dtype.
        b: (groups, n, k), the same dtype.
        b_scale: (groups, cdiv(n, 128), k / 128), the same dtype.
        masked_m: (groups,) int32.

    Returns:
        d: (groups, m, n) of the dtype of the scales; zero where nothing is asked for.
    """
    d = a_scale.new_zeros(*a.shape[:2], b.shape[1])
    for group, rows in enumerate(masked_m.tolist()):
        wide_a = dequantise(a[group, :rows], a_scale[group, :rows], d.dtype)
        torch.matmul(wide_a, dequantise(b[group], b_scale[group], d.dtype).T, out=d[group, :rows])
    return d


def build_matmuls(a, a_scale, b, b_scale, d, masked_m):
    """Build one product of torch per group, of operands dequantised and counts read beforehand.

    Args:
        a: (groups, m, k) float8_e4m3fn.
        a_scale: (groups, m, k / 128) float32.
        b: (groups, n, k) float8_e4m3fn.
        b_scale: (groups, cdiv(n, 128), k / 128) float32.
        d: (groups, m, n) bfloat16 or float16, written by the launch.
        masked_m: (groups,) int32; read once, here.

    Returns:
        The closure that launches them.
    """
    operands = [
        (
            dequantise(a[group, :rows], a_scale[group, :rows], d.dtype),
            dequantise(b[group], b_scale[group], d.dtype).T,
            d[group, :rows],
        )
        for group, rows in enumerate(masked_m.tolist())
    ]

    def launch() -> None:
        for wide_a, wide_b, out in operands:
            torch.matmul(wide_a, wide_b, out=out)

    return launch


def build_deep_gemm(a, a_scale, b, b_scale, d, masked_m, expected):
    """Build DeepGEMM's masked product.

    Args:
        a: (groups, m, k) float8_e4m3fn.
        a_scale: (groups, m, k / 128) float32; brought into the layout of its copy engine once, here.
        b: (groups, n, k) float8_e4m3fn.
        b_scale: (groups, cdiv(n, 128), k / 128) float32.
        d: (groups, m, n) bfloat16, written by the launch.
        masked_m: (groups,) int32.
        expected: rows that a group has on average, by which it chooses its tile.

    Returns:
        The closure that launches it.
    """
    import deep_gemm

    aligned = deep_gemm.get_mn_major_tma_aligned_tensor(a_scale)

    def launch() -> None:
        deep_gemm.m_grouped_fp8_gemm_nt_masked((a, aligned), (b, b_scale), d, masked_m, expected)

    return launch
