"""Quantise to NVFP4: e2m1 values, one float8_e4m3fn scale factor for 16 of them, one float32 for all.

A matrix x: (rows, k) becomes

* packed: (rows, k / 2) uint8, two values to a byte, the one of even column in the low four bits;
* scales: float8_e4m3fn, one for each 16 neighbours in a row, in the layout below;
* gain: (1,) float32, 448 · 6 / amax(x), chosen so that the largest scale factor is e4m3's largest number.

x[r, c] is then about value · scale / gain. Values are 0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign. A value times a
scale needs at most 6 significant bits, so bfloat16 and float16 hold the product exactly.

Layout of the scales, "128x4" (cuBLAS documentation, "1D Block Scaling Factors Layout"): the matrix of
scales, (rows, k / 16), is padded to multiples of 128 rows and 4 columns with zeros and cut into tiles of
128 x 4, which follow each other row by row. Within the 512 bytes of a tile, row r and column c lie at
(r % 32) · 16 + (r // 32) · 4 + c: a thread that reads 16 bytes has the scales of four rows, 32 apart.
Written as a tensor: [row // 128, column // 4, row % 32, row % 128 // 32, column % 4].
"""

from itertools import pairwise

import torch

GROUP = 16  # values that share a scale
LARGEST_VALUE = 6.0
LARGEST_SCALE = 448.0
ROWS_AT_ONCE = 1024  # temporaries of this many rows fit beside the tensors of any case
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def quantise(x):
    """Quantise a matrix.

    Args:
        x: (rows, k), any float dtype; k is a multiple of 16.

    Returns:
        packed: (rows, k / 2) uint8; scales: (rows' / 128, k' / 64, 32, 4, 4) float8_e4m3fn, rows' and k'
        rounded up to whole tiles; gain: (1,) float32.
    """
    rows, k = x.shape
    gain = LARGEST_SCALE * LARGEST_VALUE / x.abs().amax().float().clamp(min=1e-30)
    packed = torch.empty(rows, k // 2, dtype=torch.uint8, device=x.device)
    scales = torch.empty(rows, k // GROUP, dtype=torch.float8_e4m3fn, device=x.device)
    for first in range(0, rows, ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        groups = x[some].float().unflatten(1, (-1, GROUP)) * gain
        scale = (groups.abs().amax(-1) / LARGEST_VALUE).clamp(max=LARGEST_SCALE)
        scales[some] = scale.to(torch.float8_e4m3fn)
        used = scales[some].float()[
            ..., None
        ]  # as rounded, which is what it is multiplied with later
        codes = encode(torch.where(used > 0, groups / used, 0.0)).flatten(1)
        packed[some] = codes[:, 0::2] | codes[:, 1::2] << 4
    return packed, swizzle(scales), gain.reshape(1)


def product_of_gains(a_gain, b_gain):
    """The factor alpha that undoes both gains in a product a @ b.T: (1,) float32."""
    return 1 / (a_gain * b_gain)


def encode(x):
    """The nearest e2m1 number to each element, ties to the even code, too large ones to 6.

    Args:
        x: float32, any shape.

    Returns:
        Codes of the same shape, uint8: bit 3 the sign, bits 2 and 1 the exponent, bit 0 the mantissa.
    """
    size = x.abs()
    # Halfway between two numbers the even code wins: below for 0.25, above for 0.75, and so on.
    code = torch.zeros_like(x, dtype=torch.uint8)
    for i, (low, high) in enumerate(pairwise(VALUES)):
        middle = (low + high) / 2
        code += size > middle if i % 2 == 0 else size >= middle
    return code | (x < 0).to(torch.uint8) << 3


def decode(packed):
    """The values of packed codes.

    Args:
        packed: (rows, k / 2) uint8.

    Returns:
        (rows, k) float32.
    """
    table = torch.tensor(VALUES + tuple(-value for value in VALUES), device=packed.device)
    codes = torch.stack((packed & 15, packed >> 4), dim=-1)
    return table[codes.flatten(1).int()]


def swizzle(scales):
    """Lay a matrix of scales out in tiles of 128 x 4.

    Args:
        scales: (rows, columns) float8_e4m3fn.

    Returns:
        (rows' / 128, columns' / 4, 32, 4, 4) float8_e4m3fn, contiguous, zeros where it is padded.
    """
    rows, columns = scales.shape
    padded = torch.zeros(
        -(-rows // 128) * 128, -(-columns // 4) * 4, dtype=torch.uint8, device=scales.device
    )
    padded[:rows, :columns] = scales.view(torch.uint8)
    tiles = padded.view(
        -1, 4, 32, padded.shape[1] // 4, 4
    )  # tile, row // 32, row % 32, tile, column
    return tiles.permute(0, 3, 2, 1, 4).contiguous().view(torch.float8_e4m3fn)


def unswizzle(scales, rows, columns):
    """The matrix of scales behind its layout; inverse of `swizzle`.

    Args:
        scales: (row tiles, column tiles, 32, 4, 4), any dtype.
        rows: rows of the matrix.
        columns: columns of the matrix.

    Returns:
        (rows, columns), the dtype of `scales`.
    """
    return scales.permute(0, 3, 2, 1, 4).flatten(0, 2).flatten(1)[:rows, :columns]


def dequantise(packed, scales, dtype):
    """Value times scale, exact in every dtype of at least 6 significant bits; the gain stays outside.

    Args:
        packed: (rows, k / 2) uint8.
        scales: as `quantise` returns them, or cast up.
        dtype: of the result: float64, float32, bfloat16 or float16.

    Returns:
        (rows, k) in that dtype.
    """
    rows, half = packed.shape
    factors = unswizzle(scales, rows, 2 * half // GROUP)
    found = torch.empty(rows, 2 * half, dtype=dtype, device=packed.device)
    for first in range(0, rows, ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        values = decode(packed[some]).unflatten(1, (-1, GROUP))
        found[some] = (values * factors[some].float()[..., None]).flatten(1)
    return found
