"""Dropout with its own random numbers: y = x * keep / (1 - p), keep[i] true with probability 1 - p.

What: x, y: (n,) float16 or bfloat16; keep: (n,) bool, which a backward pass needs; rng: (2,) int64, the seed
and the offset into its stream; contiguous.

Random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a
counter and a seed into four independent 32-bit numbers, with no state between elements. The four of
counter `offset + i` decide about the elements 4 i to 4 i + 3, so the mask depends on seed and
offset alone, never on the grid.

State: a captured graph replays one launch many times and must draw anew each time, so the offset lies in
memory and the kernel itself advances it, by the counters it has used. Only the last program may: others
could still have to read it. Programs count themselves in `arrived`; who finds all the others there is the
last, advances the offset and sets the count back to zero ("threadFenceReduction" of the CUDA samples).

Bound: memory, 5 bytes per element, and not by far: ten rounds of Philox are some 60 integer instructions
for four elements, about what the multiprocessors execute while those 20 bytes move.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def dropout_kernel(x_ptr, y_ptr, keep_ptr, rng_ptr, arrived_ptr, n, p, BLOCK: tl.constexpr):
    """Drop out BLOCK elements; the last program advances the offset.

    Args:
        x_ptr: x: (n,).
        y_ptr: y: (n,), the dtype of x, written.
        keep_ptr: keep: (n,) bool, written.
        rng_ptr: rng: (2,) int64, seed and offset; the offset grows by cdiv(n, 4).
        arrived_ptr: arrived: (1,) int32, zero before and after.
        n: number of elements.
        p: share of the elements that become zero, 0 <= p < 1.
        BLOCK: elements per program, a multiple of 4.
    """
    block = tl.program_id(0).to(tl.int64)
    seed = tl.load(rng_ptr)
    offset = tl.load(rng_ptr + 1)
    counter = offset + block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    low, high = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    zero = low * 0
    r0, r1, r2, r3 = tl.philox(seed, low, high, zero, zero)
    # Two joins and a reshape lay the four streams side by side: r0[i], r1[i], r2[i], r3[i].
    drawn = tl.reshape(tl.join(tl.join(r0, r2), tl.join(r1, r3)), (BLOCK,))
    below = (tl.full((), p, tl.float32) * 4294967296.0).to(tl.uint32)  # a share p of all 2**32
    keep = drawn >= below

    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside).to(tl.float32)
    y = tl.where(keep, x * (1.0 / (1.0 - p)), 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(keep_ptr + at, keep, mask=inside)

    tl.debug_barrier()  # every thread of this program has read the offset
    others = tl.atomic_add(arrived_ptr, 1, sem="acq_rel")
    if others == tl.num_programs(0) - 1:
        tl.store(rng_ptr + 1, offset + tl.cdiv(n, 4))
        tl.store(arrived_ptr, 0)


LAGS = (1, 4, 4096)
"""Pairs of elements whose draws must not know of each other: neighbours within one counter, within
neighbouring counters, and in neighbouring programs."""


def dropout_facts(x, keep, y, p):
    """What can be said of an outcome without knowing the random numbers.

    Args:
        x: (n,), nowhere zero.
        keep: (n,) bool.
        y: (n,), the dtype of x.
        p: probability of a zero.

    Returns:
        (2 + len(LAGS),) float64: the number of elements of y that are not x * keep / (1 - p) within one
        unit in the last place; the share that is kept; for each lag, the share of pairs that is kept.
    """
    want = x.float() * keep / (1 - p)
    wrong = ~((y.float() - want).abs() <= torch.finfo(x.dtype).eps * want)  # NaN is wrong, too
    pairs = [(keep[lag:] & keep[:-lag]).double().mean() for lag in LAGS]
    return torch.stack([wrong.sum().double(), keep.double().mean(), *pairs])


def dropout_law(rng, n, p):
    """What `dropout_facts` must be, and where the stream must stand.

    Args:
        rng: (2,) int64, seed and offset before.
        n: number of elements.
        p: probability of a zero.

    Returns:
        facts: (2 + len(LAGS),) float64; rng: (2,) int64 after; arrived: (1,) int32, zero.
    """
    kept = 1 - p
    facts = torch.tensor([0.0, kept] + [kept**2] * len(LAGS), dtype=torch.float64)
    after = rng + torch.tensor([0, -(-n // 4)], device=rng.device)
    return facts, after, torch.zeros(1, dtype=torch.int32)
