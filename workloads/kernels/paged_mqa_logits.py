"""Logits of multi-query attention over a paged fp8 cache, one scalar per key: a sparse attention's indexer.

What: for every query row m = (sequence b, drafted token i) and every key position t below its length,

    logits[m, t] = scale[t] · sum over heads h of weights[m, h] · max(0, q[b, i, h] · key[t])

q: (batch, next_n, heads, dim) float8_e4m3fn; weights: (batch * next_n, heads) float32; logits: (batch *
next_n, cols) float32, beyond a row's length undefined. The cache is one uint8 buffer of pages: each holds
`page` keys of dim float8_e4m3fn, one behind the other, and then their `page` float32 scales. A view of it
by values and one by scales are the two pointers the kernel takes. Page p of sequence b is the number
table[b, p]. Lengths are ragged; query i of next_n drafted tokens sees next_n - 1 - i keys fewer than the
last.

Tiling: a program takes PAGES pages of one sequence; those behind its end leave at once. A page is loaded
once and meets the queries of all drafted tokens, (page, dim) x (dim, heads) on the fp8 tensor cores with
float32 sums. The positive scale is taken out of the maximum and applied once, after the heads are summed
in registers: nothing wider than one float32 per key leaves the program.

Bound: memory. A key is dim + 4 bytes and meets 2 · dim · heads · next_n flops: 62 flops a byte at dim
128, 32 heads and one token, where an H200 has about 400. Ragged lengths leave no tail worth balancing as
long as there are several programs for each multiprocessor.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def paged_mqa_logits_kernel(
    q_ptr,
    value_ptr,
    scale_ptr,
    w_ptr,
    lens_ptr,
    table_ptr,
    logits_ptr,
    stride_value,
    stride_scale,
    cols,
    max_pages,
    PAGES: tl.constexpr,
    PAGE: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    NEXT_N: tl.constexpr,
):
    """Compute the logits of PAGES pages of one sequence for all its queries.

    The grid is (cdiv(max_pages, PAGES), batch).

    Args:
        q_ptr: q: (batch, NEXT_N, HEADS, DIM) float8_e4m3fn, contiguous.
        value_ptr: keys: (pages, PAGE, DIM) float8_e4m3fn, pages stride_value apart.
        scale_ptr: scales: (pages, PAGE) float32, pages stride_scale apart.
        w_ptr: weights: (batch * NEXT_N, HEADS) float32, contiguous.
        lens_ptr: keys of each query: (batch, NEXT_N) int32, not falling along NEXT_N.
        table_ptr: pages of each sequence: (batch, max_pages) int32.
        logits_ptr: logits: (batch * NEXT_N, cols) float32, written up to the length of each row.
        stride_value: bytes from one page's keys to the next one's.
        stride_scale: floats from one page's scales to the next one's.
        cols: row length of logits.
        max_pages: row length of the table.
        PAGES: pages of this program.
        PAGE: keys of a page, a power of two.
        HEADS: heads, a power of two of at least 16.
        DIM: elements of a key, a power of two of at least 32.
        NEXT_N: queries of a sequence.
    """
    sequence = tl.program_id(1)
    first = tl.program_id(0) * PAGES
    longest = tl.load(lens_ptr + sequence * NEXT_N + NEXT_N - 1)
    last = tl.minimum(first + PAGES, tl.cdiv(longest, PAGE))

    token = tl.arange(0, PAGE)
    depth = tl.arange(0, DIM)
    head = tl.arange(0, HEADS)
    q_tile = q_ptr + sequence * NEXT_N * HEADS * DIM + head[None, :] * DIM + depth[:, None]
    w_row = w_ptr + sequence * NEXT_N * HEADS + head[None, :]
    for number in range(first, last):
        page = tl.load(table_ptr + sequence * max_pages + number).to(tl.int64)
        key_tile = page * stride_value + token[:, None] * DIM + depth[None, :]
        key = tl.load(value_ptr + key_tile)
        scale = tl.load(scale_ptr + page * stride_scale + token)
        position = number * PAGE + token
        for i in tl.static_range(NEXT_N):
            q = tl.load(q_tile + i * HEADS * DIM)
            w = tl.load(w_row + i * HEADS)
            score = tl.dot(key, q)
            logit = tl.sum(tl.maximum(score, 0.0) * w, axis=1) * scale
            row = sequence * NEXT_N + i
            inside = position < tl.load(lens_ptr + row)
            tl.store(logits_ptr + row.to(tl.int64) * cols + position, logit, mask=inside)


def rows_of_batch(lens, next_n):
    """Give each of the next_n last tokens of a sequence the keys up to and with itself.

    Args:
        lens: (batch,) int32, keys of the last token, at least next_n.
        next_n: tokens of a sequence that are asked for.

    Returns:
        (batch * next_n,) int32.
    """
    return (lens[:, None] + torch.arange(1 - next_n, 1, device=lens.device)).flatten().int()


def paged_mqa_logits_oracle(q, value, scale, weights, table, cols):
    """Compute all logits by the definition, one sequence at a time: float64 keys of all do not fit.

    Args:
        q: (batch, next_n, heads, dim), any float dtype.
        value: (pages, page, dim), the dtype of q.
        scale: (pages, page), the dtype of q.
        weights: (batch * next_n, heads), the dtype of q.
        table: (batch, max_pages) int32; entries past a sequence's end are pages as well.
        cols: row length of the result, at least max_pages * page.

    Returns:
        logits: (batch * next_n, cols); of positions past a sequence's end finite, and no more.
    """
    batch, next_n, _, dim = q.shape
    logits = q.new_zeros(batch, next_n, cols)
    for b in range(batch):
        pages = table[b].long()
        keys = (value[pages] * scale[pages, :, None]).reshape(-1, dim)
        scores = (q[b] @ keys.T).relu_()  # (next_n, heads, keys)
        of_heads = weights.reshape(batch, next_n, -1)[b, :, None, :] @ scores
        logits[b, :, : len(keys)] = of_heads[:, 0]
    return logits.flatten(0, 1)


def paged_mqa_logits_torch(q, kv, weights, table, page, cols):
    """Do the same with torch over the whole table at once: gather, then one batched product in bfloat16.

    Every float8_e4m3fn is a bfloat16; the scores are rounded to it. Pages past the end of a sequence are
    gathered and multiplied like the others.

    Args:
        q: (batch, next_n, heads, dim) float8_e4m3fn.
        kv: (pages, page * (dim + 4)) uint8, of each page all keys, then all scales.
        weights: (batch * next_n, heads) float32.
        table: (batch, max_pages) int32.
        page: keys of a page.
        cols: row length of the result, at least max_pages * page.

    Returns:
        logits: (batch * next_n, cols) float32; zero from max_pages * page on.
    """
    batch, next_n, heads, dim = q.shape
    gathered = kv[table]  # (batch, max_pages, page * (dim + 4))
    keys = gathered[..., : page * dim].contiguous().view(torch.float8_e4m3fn)
    keys = keys.to(torch.bfloat16).reshape(batch, -1, dim)
    scale = gathered[..., page * dim :].contiguous().view(torch.float32).reshape(batch, 1, -1)
    queries = q.to(torch.bfloat16).reshape(batch, next_n * heads, dim)
    scores = torch.bmm(queries, keys.mT).relu().unflatten(1, (next_n, heads))
    weighted = scores * weights.reshape(batch, next_n, heads, 1)  # float32
    logits = weighted.sum(dim=2) * scale
    return torch.nn.functional.pad(logits, (0, cols - logits.shape[-1])).flatten(0, 1)


def build_deep_gemm(q, kv, weights, lens, table, page):
    """Build DeepGEMM's kernel of this operation; its schedule is computed here, once, untimed.

    Args:
        q: (batch, next_n, heads, dim) float8_e4m3fn.
        kv: (pages, page * (dim + 4)) uint8.
        weights: (batch * next_n, heads) float32.
        lens: (batch,) int32, keys of the last of the next_n tokens.
        table: (batch, max_pages) int32.
        page: keys of a page.

    Returns:
        A closure that returns logits: (batch * next_n, at least max_pages * page) float32.
    """
    import deep_gemm

    cache = kv.view(kv.shape[0], page, 1, kv.shape[1] // page)
    longest = table.shape[1] * page
    schedule = deep_gemm.get_paged_mqa_logits_metadata(lens, page, deep_gemm.get_num_sms())

    def launch() -> torch.Tensor:
        return deep_gemm.fp8_paged_mqa_logits(
            q, cache, weights, lens, table, schedule, longest, clean_logits=False
        )

    return launch
