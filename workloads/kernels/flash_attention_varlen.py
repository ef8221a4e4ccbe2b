"""Causal attention over sequences of different lengths packed one after the other, forward.

What: q, o: (total, heads, dim); k, v: (total, kv_heads, dim), each shared by heads / kv_heads query heads;
cu_seqlens: (sequences + 1,) int32, where each sequence begins and the last one ends; lse:
(heads, total) float32, the natural logarithm of each row's softmax denominator. bfloat16 or float16,
contiguous; scores, softmax and accumulation in float32.

Why packed: padded to the longest, a batch of 8,192, 4,096 and 1,000 tokens would compute twice the scores
that are asked for, and hold twice the memory. Packed, nothing is computed between the sequences.

Tiling: as in `flash_attention.py`, online softmax over blocks of keys, the blocks on the diagonal masked and
the others not. A head's rows are heads · dim elements apart, since tokens are the outer dimension. The
grid is made for the longest sequence: programs beyond the end of theirs leave at once. The longest
rows of each sequence start first.

Bound: the tensor cores, 4 · dim flops for a query and a key. With unequal lengths also the last sequence: its
programs are the last to start, whatever their length.
"""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def attend(
    q, k_ptr, v_ptr, acc, peak, total, first, last, row, length, stride, qk_scale,
    BLOCK_N: tl.constexpr, DIM: tl.constexpr, ON_DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Add the keys `first` to `last` to the running softmax of one block of queries.

    Args:
        q: (BLOCK_M, DIM), the queries.
        k_ptr: k of this sequence and head, rows `stride` apart.
        v_ptr: v of this sequence and head, rows `stride` apart.
        acc: (BLOCK_M, DIM) float32, the unnormalised output so far.
        peak: (BLOCK_M,) float32, the largest score so far, in units of log2.
        total: (BLOCK_M,) float32, the sum of 2 ** (score - peak) so far.
        first: the first key, a multiple of BLOCK_N.
        last: one past the last key.
        row: (BLOCK_M,), the queries' positions in the sequence.
        length: of the sequence.
        stride: elements from one key to the next.
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
        at = key.to(tl.int64) * stride
        k_tile = k_ptr + at[None, :] + depth[:, None]
        v_tile = v_ptr + at[:, None] + depth[None, :]
        k = (
            tl.load(k_tile, mask=key[None, :] < length, other=0.0)
            if ON_DIAGONAL
            else tl.load(k_tile)
        )
        scores = tl.dot(q, k)
        if ON_DIAGONAL:
            scores = tl.where(key[None, :] <= row[:, None], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1) * qk_scale)
        p = tl.exp2(scores * qk_scale - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, axis=1)
        acc = acc * shrink[:, None]
        v = (
            tl.load(v_tile, mask=key[:, None] < length, other=0.0)
            if ON_DIAGONAL
            else tl.load(v_tile)
        )
        acc = tl.dot(p.to(v.dtype), v, acc)
        peak = higher
    return acc, peak, total


@triton.jit
def attention_varlen_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, cu_seqlens_ptr, all_tokens, scale, stride_q, stride_k,
    GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of one head of one sequence.

    The grid is (cdiv(longest, BLOCK_M), heads, sequences).

    Args:
        q_ptr: q: (all_tokens, heads, DIM), contiguous.
        k_ptr: k: (all_tokens, kv_heads, DIM), contiguous.
        v_ptr: v: (all_tokens, kv_heads, DIM), contiguous.
        o_ptr: o: (all_tokens, heads, DIM), contiguous, written.
        lse_ptr: lse: (heads, all_tokens) float32, written.
        cu_seqlens_ptr: cu_seqlens: (sequences + 1,) int32.
        all_tokens: tokens of all sequences.
        scale: factor of the scores; positive.
        stride_q: elements from one token of q and o to the next.
        stride_k: elements from one token of k and v to the next.
        GROUP: query heads that share a key head.
        DIM: elements per head, a power of two of at least 16.
        BLOCK_M: queries per program; a multiple of BLOCK_N.
        BLOCK_N: keys per step.
    """
    tl.static_assert(BLOCK_M % BLOCK_N == 0)
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    begin = tl.load(cu_seqlens_ptr + sequence)
    length = tl.load(cu_seqlens_ptr + sequence + 1) - begin
    # Counted from the end of this sequence: its longest rows start first.
    block = tl.cdiv(length, BLOCK_M) - 1 - tl.program_id(0)
    if block < 0:
        return
    token = begin.to(tl.int64)
    q_ptr += token * stride_q + head * DIM
    o_ptr += token * stride_q + head * DIM
    k_ptr += token * stride_k + head // GROUP * DIM
    v_ptr += token * stride_k + head // GROUP * DIM
    lse_ptr += head.to(tl.int64) * all_tokens + token

    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    tile = row.to(tl.int64)[:, None] * stride_q + tl.arange(0, DIM)[None, :]
    inside = row[:, None] < length
    q = tl.load(q_ptr + tile, mask=inside, other=0.0)

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    peak = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    qk_scale = scale * LOG2_E
    diagonal = block * BLOCK_M
    end = tl.minimum(diagonal + BLOCK_M, length)
    acc, peak, total = attend(
        q, k_ptr, v_ptr, acc, peak, total, 0, diagonal, row, length, stride_k, qk_scale,
        BLOCK_N, DIM, ON_DIAGONAL=False,
    )  # fmt: skip
    acc, peak, total = attend(
        q, k_ptr, v_ptr, acc, peak, total, diagonal, end, row, length, stride_k, qk_scale,
        BLOCK_N, DIM, ON_DIAGONAL=True,
    )  # fmt: skip

    tl.store(o_ptr + tile, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=inside)
    # ln(sum of e**score) = ln 2 · (peak + log2(total)), since peak is in units of log2.
    lse = (peak + tl.log2(total)) * LN_2
    tl.store(lse_ptr + row, lse, mask=row < length)


def attention_oracle(q, k, v, lens, scale):
    """Attention by its definition, one sequence and head at a time.

    Args:
        q: (total, heads, dim), any float dtype.
        k: (total, kv_heads, dim), the dtype of q.
        v: (total, kv_heads, dim), the dtype of q.
        lens: length of each sequence; they add up to total.
        scale: factor of the scores.

    Returns:
        o: (total, heads, dim) and lse: (heads, total), both of the dtype of q.
    """
    heads, group = q.shape[1], q.shape[1] // k.shape[1]
    o, lse = torch.empty_like(q), q.new_empty(heads, len(q))
    first = 0
    for length in lens:
        own = slice(first, first + length)
        above = torch.ones(length, length, dtype=torch.bool, device=q.device).triu_(1)
        for h in range(heads):
            scores = (q[own, h] @ k[own, h // group].T).mul_(scale)
            scores.masked_fill_(above, float("-inf"))
            lse[h, own] = torch.logsumexp(scores, dim=-1)
            o[own, h] = scores.sub_(lse[h, own, None]).exp_() @ v[own, h // group]
        first += length
    return o, lse


def build_sdpa_per_sequence(q, k, v, lens, scale):
    """Build torch's own attention, one call per sequence, and the copy that packs the results.

    Args:
        q: (total, heads, dim).
        k: (total, kv_heads, dim).
        v: (total, kv_heads, dim).
        lens: length of each sequence.
        scale: factor of the scores.

    Returns:
        A closure that returns o: (total, heads, dim).
    """
    parts = [
        tuple(tensor.transpose(0, 1)[None] for tensor in part)  # (1, heads, length, dim), no copy
        for part in zip(*(tensor.split(list(lens)) for tensor in (q, k, v)), strict=True)
    ]
    grouped = q.shape[1] != k.shape[1]

    def launch() -> torch.Tensor:
        found = [
            torch.nn.functional.scaled_dot_product_attention(
                *part, is_causal=True, scale=scale, enable_gqa=grouped
            )
            for part in parts
        ]
        return torch.cat([o[0].transpose(0, 1) for o in found])

    return launch


def build_flash(q, k, v, cu_seqlens, longest, scale):
    """Build the FlashAttention-2 that torch carries, on the packed tensors themselves.

    Args:
        q: (total, heads, dim).
        k: (total, kv_heads, dim).
        v: (total, kv_heads, dim).
        cu_seqlens: (sequences + 1,) int32.
        longest: length of the longest sequence.
        scale: factor of the scores.

    Returns:
        A closure that returns o: (total, heads, dim).
    """

    def launch() -> torch.Tensor:
        return torch.ops.aten._flash_attention_forward(  # noqa: SLF001 - the op behind SDPA
            q, k, v, cu_seqlens, cu_seqlens, longest, longest, 0.0, True, False, scale=scale
        )[0]

    return launch
