"""Cross entropy of each row: loss = log(sum(exp(logits))) - logits[target], without the softmax.

What: logits: (rows, vocab) float16 or bfloat16, row-major and contiguous; target: (rows,) int64, the
right column of each row; loss: (rows,) float32; arithmetic in float32.

Why not softmax first: the probabilities of all columns would be written and read again, only to use
one of them. All that is needed of a row is its log-sum-exp, one number.

Tiling: one program walks over a row in blocks and keeps the maximum so far and, per column of a block,
the sum of exponentials relative to it; when a block raises the maximum, the sums are scaled down
("online softmax", Milakov and Gimelshein 2018). The score of the target is one gathered element.

Bound: memory, and only the read half of it: a row of 128,256 bfloat16 goes in, four bytes come out.
With fewer rows than multiprocessors the card is not filled, and the length of a row's walk decides.
"""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, vocab, BLOCK: tl.constexpr):
    """Compute the loss of one row.

    Args:
        logits_ptr: logits: (rows, vocab), row-major.
        target_ptr: target: (rows,) int64, within [0, vocab).
        loss_ptr: loss: (rows,) float32, written.
        vocab: row length, in elements; need not be a multiple of BLOCK.
        BLOCK: columns per step, a power of two.
    """
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * vocab  # 64-bit: rows * vocab may exceed 2**31
    peak = tl.full((), float("-inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, vocab, BLOCK):
        column = start + tl.arange(0, BLOCK)
        score = tl.load(logits_ptr + column, mask=column < vocab, other=float("-inf"))
        score = score.to(tl.float32) * LOG2_E  # the hardware has 2**x, not e**x
        higher = tl.maximum(peak, tl.max(score, axis=0))
        sums = sums * tl.exp2(peak - higher) + tl.exp2(score - higher)
        peak = higher

    lse = LN_2 * (peak + tl.log2(tl.sum(sums, axis=0)))
    right = tl.load(logits_ptr + tl.load(target_ptr + row)).to(tl.float32)
    tl.store(loss_ptr + row, lse - right)


def cross_entropy_torch(logits, target):
    """Do the same with torch, in float32 or better; eager, the oracle, and for torch.compile.

    Args:
        logits: (rows, vocab), any float dtype.
        target: (rows,) int64.

    Returns:
        loss: (rows,), float32, or float64 for float64 logits.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.nn.functional.cross_entropy(wide, target, reduction="none")
