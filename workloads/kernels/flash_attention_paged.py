"""Causal attention of new tokens over a paged cache of keys and values, forward.

What: a step of chunked prefill. Sequence b has k_b tokens in the cache, of which the last q_b are new; their
queries come packed. q, o: (new, heads, dim), new the sum of all q_b; k_cache, v_cache: (pages, page,
kv_heads, dim); page_table: (sequences, columns) int32, the pages of each sequence in order, anywhere in
the cache; cu_seqlens_q, cu_seqlens_k: (sequences + 1,) int32, running sums of q_b and k_b; lse:
(heads, new) float32.
Query i of b stands at position k_b - q_b + i and sees the keys up to its own. bfloat16 or float16;
scores, softmax and accumulation in float32.

Why paged: a sequence grows by a token at a time, and nobody knows how long it will be. Pages are handed out
as it grows, so no memory is held for what may come and none has to be moved (PagedAttention, Kwon et
al. 2023). The price is one more load before each block of keys.

Tiling: as in `flash_attention_varlen.py`. A block of keys may span several pages or be part of one: each key
looks its page up, one load of BLOCK_N integers that the pipeline starts ahead of the keys. Entries of the
table beyond a sequence's pages are never read through.

Bound: the tensor cores for chunks of hundreds of tokens; memory, the read of the cache, for a few.
"""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def attend_pages(
    q, k_ptr, v_ptr, pages_ptr, acc, peak, total, first, last, position, length, stride_token, qk_scale,
    PAGE: tl.constexpr, BLOCK_N: tl.constexpr, DIM: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add the keys `first` to `last` to the running softmax of one block of queries.

    Args:
        q: (BLOCK_M, DIM), the queries.
        k_ptr: k_cache of this head.
        v_ptr: v_cache of this head.
        pages_ptr: the pages of this sequence.
        acc: (BLOCK_M, DIM) float32, the unnormalised output so far.
        peak: (BLOCK_M,) float32, the largest score so far, in units of log2.
        total: (BLOCK_M,) float32, the sum of 2 ** (score - peak) so far.
        first: the first key, a multiple of BLOCK_N.
        last: one past the last key.
        position: (BLOCK_M,), the queries' positions among the keys.
        length: keys of this sequence.
        stride_token: elements from one token of a page to the next.
        qk_scale: scale · log2(e).
        PAGE: tokens per page.
        BLOCK_N: keys per step.
        DIM: elements per head.
        MASKED: whether some of the keys lie beyond a query or the sequence.

    Returns:
        acc, peak and total with these keys included.
    """
    depth = tl.arange(0, DIM)
    for start in range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        if MASKED:
            page = tl.load(pages_ptr + key // PAGE, mask=key < length, other=0)
        else:
            page = tl.load(pages_ptr + key // PAGE)
        at = (page.to(tl.int64) * PAGE + key % PAGE) * stride_token
        k_tile = k_ptr + at[None, :] + depth[:, None]
        v_tile = v_ptr + at[:, None] + depth[None, :]
        k = tl.load(k_tile, mask=key[None, :] < length, other=0.0) if MASKED else tl.load(k_tile)
        scores = tl.dot(q, k)
        if MASKED:
            scores = tl.where(key[None, :] <= position[:, None], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1) * qk_scale)
        p = tl.exp2(scores * qk_scale - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, axis=1)
        acc = acc * shrink[:, None]
        v = tl.load(v_tile, mask=key[:, None] < length, other=0.0) if MASKED else tl.load(v_tile)
        acc = tl.dot(p.to(v.dtype), v, acc)
        peak = higher
    return acc, peak, total


@triton.jit
def attention_paged_kernel(
    q_ptr, k_cache_ptr, v_cache_ptr, page_table_ptr, o_ptr, lse_ptr, cu_seqlens_q_ptr, cu_seqlens_k_ptr,
    all_queries, scale, stride_q, stride_token, stride_table,
    GROUP: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of one head of one sequence.

    The grid is (cdiv(most new tokens, BLOCK_M), heads, sequences).

    Args:
        q_ptr: q: (all_queries, heads, DIM), contiguous.
        k_cache_ptr: k_cache: (pages, PAGE, kv_heads, DIM), contiguous.
        v_cache_ptr: v_cache: (pages, PAGE, kv_heads, DIM), contiguous.
        page_table_ptr: page_table: (sequences, columns) int32.
        o_ptr: o: (all_queries, heads, DIM), contiguous, written.
        lse_ptr: lse: (heads, all_queries) float32, written.
        cu_seqlens_q_ptr: cu_seqlens_q: (sequences + 1,) int32.
        cu_seqlens_k_ptr: cu_seqlens_k: (sequences + 1,) int32.
        all_queries: new tokens of all sequences.
        scale: factor of the scores; positive.
        stride_q: elements from one token of q and o to the next.
        stride_token: elements from one token of a page to the next.
        stride_table: elements from one row of the page table to the next.
        GROUP: query heads that share a key head.
        DIM: elements per head, a power of two of at least 16.
        PAGE: tokens per page.
        BLOCK_M: queries per program.
        BLOCK_N: keys per step.
    """
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    begin = tl.load(cu_seqlens_q_ptr + sequence)
    new = tl.load(cu_seqlens_q_ptr + sequence + 1) - begin
    block = tl.cdiv(new, BLOCK_M) - 1 - tl.program_id(0)  # the longest rows of a sequence first
    if block < 0:
        return
    length = tl.load(cu_seqlens_k_ptr + sequence + 1) - tl.load(cu_seqlens_k_ptr + sequence)
    token = begin.to(tl.int64)
    q_ptr += token * stride_q + head * DIM
    o_ptr += token * stride_q + head * DIM
    k_cache_ptr += head // GROUP * DIM
    v_cache_ptr += head // GROUP * DIM
    pages_ptr = page_table_ptr + sequence * stride_table
    lse_ptr += head.to(tl.int64) * all_queries + token

    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    tile = row.to(tl.int64)[:, None] * stride_q + tl.arange(0, DIM)[None, :]
    inside = row[:, None] < new
    q = tl.load(q_ptr + tile, mask=inside, other=0.0)

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    peak = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    qk_scale = scale * LOG2_E
    earliest = length - new + block * BLOCK_M  # position of the first query
    seen_by_all = (earliest + 1) // BLOCK_N * BLOCK_N  # whole blocks of keys that need no mask
    end = tl.minimum(earliest + BLOCK_M, length)
    acc, peak, total = attend_pages(
        q, k_cache_ptr, v_cache_ptr, pages_ptr, acc, peak, total, 0, seen_by_all,
        length - new + row, length, stride_token, qk_scale, PAGE, BLOCK_N, DIM, MASKED=False,
    )  # fmt: skip
    acc, peak, total = attend_pages(
        q, k_cache_ptr, v_cache_ptr, pages_ptr, acc, peak, total, seen_by_all, end,
        length - new + row, length, stride_token, qk_scale, PAGE, BLOCK_N, DIM, MASKED=True,
    )  # fmt: skip

    tl.store(o_ptr + tile, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=inside)
    # ln(sum of e**score) = ln 2 · (peak + log2(total)), since peak is in units of log2.
    lse = (peak + tl.log2(total)) * LN_2
    tl.store(lse_ptr + row, lse, mask=row < new)


def gathered(cache, table, length):
    """The tokens of one sequence, fetched from its pages.

    Args:
        cache: (pages, page, kv_heads, dim).
        table: (columns,) int32, the pages of the sequence first.
        length: tokens of the sequence.

    Returns:
        (length, kv_heads, dim), a copy.
    """
    pages = table[: -(-length // cache.shape[1])]
    return cache[pages.long()].flatten(0, 1)[:length]


def attention_oracle(q, k_cache, v_cache, page_table, q_lens, k_lens, scale):
    """Attention by its definition, one sequence and head at a time.

    Args:
        q: (new, heads, dim), any float dtype.
        k_cache: (pages, page, kv_heads, dim), the dtype of q.
        v_cache: (pages, page, kv_heads, dim), the dtype of q.
        page_table: (sequences, columns) int32.
        q_lens: new tokens of each sequence.
        k_lens: all tokens of each sequence.
        scale: factor of the scores.

    Returns:
        o: (new, heads, dim) and lse: (heads, new), both of the dtype of q.
    """
    heads, group = q.shape[1], q.shape[1] // k_cache.shape[2]
    o, lse = torch.empty_like(q), q.new_empty(heads, len(q))
    first = 0
    for table, new, length in zip(page_table, q_lens, k_lens, strict=True):
        k, v = gathered(k_cache, table, length), gathered(v_cache, table, length)
        own = slice(first, first + new)
        beyond = torch.ones(new, length, dtype=torch.bool, device=q.device).triu_(1 + length - new)
        for h in range(heads):
            scores = (q[own, h] @ k[:, h // group].T).mul_(scale)
            scores.masked_fill_(beyond, float("-inf"))
            lse[h, own] = torch.logsumexp(scores, dim=-1)
            o[own, h] = scores.sub_(lse[h, own, None]).exp_() @ v[:, h // group]
        first += new
    return o, lse


def build_sdpa_per_sequence(q, k_cache, v_cache, page_table, q_lens, k_lens, scale):
    """Build torch's own attention: for each sequence fetch its pages, then attend; pack the results.

    Args:
        q: (new, heads, dim).
        k_cache: (pages, page, kv_heads, dim).
        v_cache: (pages, page, kv_heads, dim).
        page_table: (sequences, columns) int32.
        q_lens: new tokens of each sequence.
        k_lens: all tokens of each sequence.
        scale: factor of the scores.

    Returns:
        A closure that returns o: (new, heads, dim).
    """
    from torch.nn.attention.bias import causal_lower_right

    queries = [part.transpose(0, 1)[None] for part in q.split(list(q_lens))]  # no copy
    masks = [causal_lower_right(new, length) for new, length in zip(q_lens, k_lens, strict=True)]
    group = q.shape[1] // k_cache.shape[2]

    def launch() -> torch.Tensor:
        found = []
        for part, mask, table, length in zip(queries, masks, page_table, k_lens, strict=True):
            # (1, heads, length, dim): with this mask torch wants as many key heads as query heads.
            k, v = (
                gathered(cache, table, length).transpose(0, 1).repeat_interleave(group, 0)[None]
                for cache in (k_cache, v_cache)
            )
            o = torch.nn.functional.scaled_dot_product_attention(
                part, k, v, attn_mask=mask, scale=scale
            )
            found.append(o[0].transpose(0, 1))
        return torch.cat(found)

    return launch


def build_flash_gathered(
    q, k_cache, v_cache, page_table, cu_seqlens_q, cu_seqlens_k, q_lens, k_lens, scale
):
    """Build the FlashAttention-2 that torch carries; it knows no pages, so each launch packs them first.

    Args:
        q: (new, heads, dim).
        k_cache: (pages, page, kv_heads, dim).
        v_cache: (pages, page, kv_heads, dim).
        page_table: (sequences, columns) int32; read once, here.
        cu_seqlens_q: (sequences + 1,) int32.
        cu_seqlens_k: (sequences + 1,) int32.
        q_lens: new tokens of each sequence.
        k_lens: all tokens of each sequence.
        scale: factor of the scores.

    Returns:
        A closure that returns o: (new, heads, dim).
    """
    page = k_cache.shape[1]
    places = []
    for table, length in zip(page_table, k_lens, strict=True):
        key = torch.arange(length, device=q.device)
        places.append(table.long()[key // page] * page + key % page)
    tokens = torch.cat(places)  # where each token lies in the cache
    k_tokens, v_tokens = k_cache.flatten(0, 1), v_cache.flatten(0, 1)  # views
    bounds = (cu_seqlens_q, cu_seqlens_k, max(q_lens), max(k_lens))

    def launch() -> torch.Tensor:
        k, v = k_tokens[tokens], v_tokens[tokens]
        # With more keys than queries it aligns the diagonal with the last ones, as is meant here.
        return torch.ops.aten._flash_attention_forward(  # noqa: SLF001 - the op behind SDPA
            q, k, v, *bounds, 0.0, True, False, scale=scale
        )[0]

    return launch
