"""Rotary position embedding of queries and keys, in place.

What: q: (tokens, heads, dim), k: (tokens, kv_heads, dim), both updated; positions: (tokens,) int64;
cos_sin: (max_position, dim) float32, the cosines of a position in the left half of its row, the sines
in the right. float16 or bfloat16, contiguous; arithmetic in float32. Each pair (x[i], x[i + dim / 2]) of
a head is rotated by the angle position · base ** (-2i / dim), the "NeoX" pairing of Llama and others.

Tiling: one program owns a token with all its heads, so the token's row of cos_sin is gathered once
and used heads + kv_heads times from registers. Both halves of each head are loaded before either is
stored, by the same program: that makes working in place safe. Where a token stands is data
(`positions`), as in a server that batches requests of different lengths.

Bound: memory. q and k are read and written once; three flops an element. The table is small and hit
again and again: it stays in L2.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def rotate(x_ptr, heads, cos, sin, HEADS: tl.constexpr, DIM: tl.constexpr):
    """Rotate all heads of one token.

    Args:
        x_ptr: x: (heads, DIM) of the token, contiguous, read and overwritten.
        heads: number of heads.
        cos: (1, DIM / 2) float32.
        sin: (1, DIM / 2) float32.
        HEADS: heads rounded up to a power of two.
        DIM: elements per head, a power of two.
    """
    head = tl.arange(0, HEADS)[:, None]
    left = head * DIM + tl.arange(0, DIM // 2)[None, :]
    right = left + DIM // 2
    inside = head < heads
    a = tl.load(x_ptr + left, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + right, mask=inside, other=0.0).to(tl.float32)
    tl.store(x_ptr + left, (a * cos - b * sin).to(x_ptr.dtype.element_ty), mask=inside)
    tl.store(x_ptr + right, (b * cos + a * sin).to(x_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rope_kernel(
    q_ptr,
    k_ptr,
    positions_ptr,
    cos_sin_ptr,
    heads,
    kv_heads,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
):
    """Rotate the queries and keys of one token.

    Args:
        q_ptr: q: (tokens, heads, DIM), contiguous, read and overwritten.
        k_ptr: k: (tokens, kv_heads, DIM), contiguous, read and overwritten.
        positions_ptr: positions: (tokens,) int64.
        cos_sin_ptr: cos_sin: (max_position, DIM) float32.
        heads: query heads.
        kv_heads: key heads.
        HEADS: heads rounded up to a power of two.
        KV_HEADS: kv_heads rounded up to a power of two.
        DIM: elements per head, a power of two.
    """
    token = tl.program_id(0).to(tl.int64)  # token * heads * DIM may exceed 2**31
    angles = cos_sin_ptr + tl.load(positions_ptr + token) * DIM + tl.arange(0, DIM // 2)[None, :]
    cos = tl.load(angles)
    sin = tl.load(angles + DIM // 2)
    rotate(q_ptr + token * heads * DIM, heads, cos, sin, HEADS, DIM)
    rotate(k_ptr + token * kv_heads * DIM, kv_heads, cos, sin, KV_HEADS, DIM)


def make_cos_sin(max_position, dim, base):
    """Make the table of angles, in float64 until the end: float32 angles are wrong far out.

    Args:
        max_position: number of positions.
        dim: elements per head.
        base: of the frequencies, base ** (-2i / dim).

    Returns:
        cos_sin: (max_position, dim) float32.
    """
    frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(max_position, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=-1).float()


def rope_torch(q, k, positions, cos_sin):
    """Do the same out of place in plain torch; the oracle, and the form that torch.compile takes.

    Args:
        q: (tokens, heads, dim), any float dtype.
        k: (tokens, kv_heads, dim), the dtype of q.
        positions: (tokens,) int64.
        cos_sin: (max_position, dim), float32 or better.

    Returns:
        The new q and the new k, of the dtype of q.
    """
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)

    def rotated(x) -> torch.Tensor:
        a, b = x.to(cos.dtype).chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)

    return rotated(q), rotated(k)
