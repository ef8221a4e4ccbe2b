"""Causal attention, forward: o = softmax(q kᵀ · scale, masked above the diagonal) v, and lse.

What: q, o: (batch, heads, seq, dim); k, v: (batch, kv_heads, seq, dim), each shared by
heads / kv_heads query heads; lse: (batch, heads, seq) float32, the natural logarithm of each row's
softmax denominator, which a backward pass needs. bfloat16 or float16, contiguous; scores, softmax
and accumulation in float32.

Why fused: the scores are a seq x seq matrix. Written to memory they would be 512 MiB per head at
seq = 16,384 in bfloat16; here no score ever leaves the registers of the program that computes it.

Tiling: a program owns BLOCK_M queries of one head and walks over the keys in blocks of BLOCK_N. It
keeps, per query, the running maximum m, the running sum l of exp(score - m) and the unnormalised
output; when a block raises the maximum, what is already summed is scaled down by exp(old - new)
("online softmax", Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023). One division by l ends
it. Exponentials are powers of two, the hardware's own, with log2(e) folded into the scale.

Causality cuts the walk in two. Blocks wholly below the diagonal need no mask at all, also none for
the end of the sequence; only the blocks that touch the diagonal are masked, and that mask covers the
end of the sequence too (a key beyond it lies beyond every query). Programs differ in work, by up to
seq / BLOCK_M: the longest start first, so that the short ones fill the gaps at the end.

Bound: the tensor cores, with 4 · dim flops per query and key, once the sequence is a few thousand
long. The exponential unit comes next: at dim = 128 one exponential for every 512 tensor-core flops
takes about half of the tensor cores' time on an H200, and hides only while both work at once.
"""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def attend(
    q, k_ptr, v_ptr, acc, peak, total, first, last, row, seq, qk_scale,
    BLOCK_N: tl.constexpr, DIM: tl.constexpr, ON_DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Add the keys `first` to `last` to the running softmax of one block of queries.

    Args:
        q: (BLOCK_M, DIM), the queries, in registers or shared memory.
        k_ptr: k: (seq, DIM) of this head.
        v_ptr: v: (seq, DIM) of this head.
        acc: (BLOCK_M, DIM) float32, the unnormalised output so far.
        peak: (BLOCK_M,) float32, the largest score so far, in units of log2.
        total: (BLOCK_M,) float32, the sum of 2 ** (score - peak) so far.
        first: the first key, a multiple of BLOCK_N.
        last: one past the last key.
        row: (BLOCK_M,), the queries' positions.
        seq: number of keys.
        qk_scale: scale · log2(e).
        BLOCK_N: keys per step.
        DIM: elements per head.
        ON_DIAGONAL: whether masks are needed.

    Returns:
        acc, peak and total with these keys included.
    """
    depth = tl.arange(0, DIM)
    for start in range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        k_tile = k_ptr + key[None, :] * DIM + depth[:, None]
        v_tile = v_ptr + key[:, None] * DIM + depth[None, :]
        k = tl.load(k_tile, mask=key[None, :] < seq, other=0.0) if ON_DIAGONAL else tl.load(k_tile)
        scores = tl.dot(q, k)
        if ON_DIAGONAL:
            scores = tl.where(key[None, :] <= row[:, None], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1) * qk_scale)
        # One fused multiply-add per score, then the exponential.
        p = tl.exp2(scores * qk_scale - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, axis=1)
        acc = acc * shrink[:, None]
        v = tl.load(v_tile, mask=key[:, None] < seq, other=0.0) if ON_DIAGONAL else tl.load(v_tile)
        acc = tl.dot(p.to(v.dtype), v, acc)
        peak = higher
    return acc, peak, total


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, heads, kv_heads, seq, scale,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of one head's output.

    The grid is (cdiv(seq, BLOCK_M), batch * heads).

    Args:
        q_ptr: q: (batch, heads, seq, DIM), contiguous.
        k_ptr: k: (batch, kv_heads, seq, DIM), contiguous.
        v_ptr: v: (batch, kv_heads, seq, DIM), contiguous.
        o_ptr: o: (batch, heads, seq, DIM), contiguous, written.
        lse_ptr: lse: (batch, heads, seq) float32, written.
        heads: query heads.
        kv_heads: key and value heads; divides heads.
        seq: sequence length, of queries and of keys.
        scale: factor of the scores, commonly DIM ** -0.5; positive.
        DIM: elements per head, a power of two of at least 16.
        BLOCK_M: queries per program; a multiple of BLOCK_N.
        BLOCK_N: keys per step.
    """
    # The unmasked walk must end where the masked one begins, at a whole block of keys.
    tl.static_assert(BLOCK_M % BLOCK_N == 0)
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest rows first
    head = tl.program_id(1).to(tl.int64)  # of all heads of the batch
    kv_head = (head // heads) * kv_heads + (head % heads) // (heads // kv_heads)
    q_ptr += head * seq * DIM
    o_ptr += head * seq * DIM
    k_ptr += kv_head * seq * DIM
    v_ptr += kv_head * seq * DIM

    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    tile = row[:, None] * DIM + tl.arange(0, DIM)[None, :]
    inside = row[:, None] < seq
    q = tl.load(q_ptr + tile, mask=inside, other=0.0)

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    peak = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    qk_scale = scale * LOG2_E
    diagonal = block * BLOCK_M
    end = tl.minimum(diagonal + BLOCK_M, seq)
    acc, peak, total = attend(
        q, k_ptr, v_ptr, acc, peak, total, 0, diagonal, row, seq, qk_scale,
        BLOCK_N, DIM, ON_DIAGONAL=False,
    )  # fmt: skip
    acc, peak, total = attend(
        q, k_ptr, v_ptr, acc, peak, total, diagonal, end, row, seq, qk_scale,
        BLOCK_N, DIM, ON_DIAGONAL=True,
    )  # fmt: skip

    tl.store(o_ptr + tile, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=inside)
    # ln(sum of e**score) = ln 2 · (peak + log2(total)), since peak is in units of log2.
    lse = LN_2 * (peak + tl.log2(total))
    tl.store(lse_ptr + head * seq + row, lse, mask=row < seq)


def attention_oracle(q, k, v, scale):
    """Attention by its definition, one head at a time: float64 scores of all heads do not fit.

    Args:
        q: (batch, heads, seq, dim), any float dtype.
        k: (batch, kv_heads, seq, dim), the dtype of q.
        v: (batch, kv_heads, seq, dim), the dtype of q.
        scale: factor of the scores.

    Returns:
        o: (batch, heads, seq, dim) and lse: (batch, heads, seq), both of the dtype of q.
    """
    batch, heads, seq, _ = q.shape
    group = heads // k.shape[1]
    o = torch.empty_like(q)
    lse = q.new_empty(batch, heads, seq)
    above = torch.ones(seq, seq, dtype=torch.bool, device=q.device).triu_(1)
    for b in range(batch):
        for h in range(heads):
            scores = (q[b, h] @ k[b, h // group].T).mul_(scale).masked_fill_(above, float("-inf"))
            lse[b, h] = torch.logsumexp(scores, dim=-1)
            o[b, h] = scores.sub_(lse[b, h, :, None]).exp_() @ v[b, h // group]
    return o, lse


def build_sdpa(q, k, v, scale, backend=None):
    """Build torch's own attention, `scaled_dot_product_attention`.

    Args:
        q: (batch, heads, seq, dim).
        k: (batch, kv_heads, seq, dim).
        v: (batch, kv_heads, seq, dim).
        scale: factor of the scores.
        backend: a name of `torch.nn.attention.SDPBackend`; without one torch chooses.

    Returns:
        A closure that returns o: (batch, heads, seq, dim).
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def launch() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )

    if backend is None:
        return launch
    chosen = getattr(SDPBackend, backend)

    def launch_on_backend() -> torch.Tensor:
        with sdpa_kernel(chosen):
            return launch()

    return launch_on_backend
