"""Stable descending sort of rows of values with their indices, in place: the last step of a top-k.

What: values: (rows, k) float32, float16 or bfloat16, no NaN; indices: (rows, k) int32, the place in the
vocabulary or cache each value came from. Both are put into descending order of the values; equal values
(0.0 and -0.0 are equal) keep the order they came in. Bit-exact: this moves data and computes nothing.

How: a stable sort is a sort of pairs (value, position), and a pair packs into one integer whose order is
the pair's order. A float's bits, read as an integer, are ordered like the floats once the negative ones
are flipped; their complement sorts descending. From high to low a key is

    ~ordered(value) | position (12 bits) | the value was -0.0 (1 bit)

of 29 bits for 16-bit floats and 45 bits for float32, so it sits in an int32 or int64. All keys differ,
so any sorting network will do, and none has to be stable itself. -0.0 is sorted as 0.0, and the last bit
remembers which of the two to write. Values are recovered from their keys; only indices are moved, once,
by the position that comes out: gathered from where they lie, since `tl.gather` of 2048 elements becomes
4096 shuffles, ten times those of the whole sort.

Tiling: a row, padded to a power of two K with keys behind all others, lives in the registers of one
program and goes through a bitonic network of log2(K) · (log2(K) + 1) / 2 stages (`tl.sort`). Everything
is read before anything is written, by one program: that makes working in place safe. Short rows share a
program.

Bound: the latency of the stages, 66 of them at K = 2048, the wide ones through shared memory. Memory is
not it: 256 rows of 2048 float32 move 8 MB, two microseconds' worth on an H200. A row is one program's, so
4 rows take as long as 132.
"""

import torch
import triton
import triton.language as tl

LAST_POSITION = tl.constexpr((1 << 12) - 1)
PAYLOAD_BITS = tl.constexpr(13)  # the position, and whether a zero was negative


@triton.jit
def stable_topk_kernel(values_ptr, indices_ptr, rows, k, ROWS: tl.constexpr, K: tl.constexpr):
    """Sort ROWS rows.

    Args:
        values_ptr: values: (rows, k) float32, float16 or bfloat16, row-major, sorted in place.
        indices_ptr: indices: (rows, k) int32, row-major, moved along.
        rows: number of rows; rows * k is below 2**31.
        k: row length, at most K.
        ROWS: rows of this program, a power of two.
        K: k rounded up to a power of two, 2 to 4096.
    """
    tl.static_assert(K <= LAST_POSITION + 1)
    bits: tl.constexpr = values_ptr.dtype.element_ty.primitive_bitwidth
    small: tl.constexpr = tl.int16 if bits == 16 else tl.int32
    wide: tl.constexpr = tl.int32 if bits == 16 else tl.int64
    lowest: tl.constexpr = -(1 << (bits - 1))  # the bits of -0.0
    last: tl.constexpr = (1 << (2 * bits - 1)) - 1

    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, K)[None, :]
    inside = (row < rows) & (column < k)
    offsets = row * k + column
    code = tl.load(values_ptr + offsets, mask=inside, other=0.0).to(small, bitcast=True).to(wide)

    # -x - 1 is ~x: negative floats get larger in magnitude as their code grows, so they are turned
    # round; the code of -0.0 would become -1, and becomes 0, that of 0.0.
    negative_zero = code == lowest
    ordered = tl.where(code < 0, lowest - 1 - code, code)
    ordered = tl.where(negative_zero, 0, ordered)
    key = (~ordered << PAYLOAD_BITS) | (column << 1).to(wide) | negative_zero.to(wide)
    key = tl.sort(tl.where(inside, key, last), dim=1)

    position = ((key >> 1) & LAST_POSITION).to(tl.int32)
    indices = tl.load(indices_ptr + row * k + position, mask=inside, other=0)
    tl.debug_barrier()  # no thread may write an index that another has yet to read
    ordered = ~(key >> PAYLOAD_BITS)
    code = tl.where(ordered < 0, lowest - 1 - ordered, ordered)
    code = tl.where((key & 1) != 0, lowest, code)
    values = code.to(small).to(values_ptr.dtype.element_ty, bitcast=True)
    tl.store(values_ptr + offsets, values, mask=inside)
    tl.store(indices_ptr + offsets, indices, mask=inside)


def stable_topk_torch(values, indices):
    """Do the same out of place with `torch.sort`; the oracle and the reference.

    Args:
        values: (rows, k), any float dtype.
        indices: (rows, k) int32.

    Returns:
        The sorted values and the indices in their order.
    """
    ordered, order = torch.sort(values, dim=-1, descending=True, stable=True)
    return ordered, indices.gather(-1, order)


def make_unique(rows, k, dtype):
    """Values of which no two of a row are equal, of both signs.

    Drawn from the codes of the dtype, not from a distribution: 2048 normal numbers in bfloat16 repeat.

    Args:
        rows: number of rows.
        k: row length.
        dtype: float32, float16 or bfloat16.

    Returns:
        values: (rows, k).
    """
    one = torch.ones((), dtype=dtype).view(_code(dtype)).item()
    # 1.0 and the k / 2 numbers behind it, each with both signs, shuffled.
    magnitude = (one + torch.arange(-(-k // 2))).to(_code(dtype)).view(dtype)
    both = torch.cat([magnitude, -magnitude])[:k]
    return torch.stack([both[torch.randperm(k)] for _ in range(rows)])


def make_tie_heavy(rows, k, dtype):
    """Values of eight levels, among them 0.0 and -0.0, which are equal and must stay in order.

    Args:
        rows: number of rows.
        k: row length.
        dtype: float32, float16 or bfloat16.

    Returns:
        values: (rows, k).
    """
    levels = torch.tensor([-2.0, -1.0, -0.5, -0.0, 0.0, 0.25, 1.0, 3.0], dtype=dtype)
    return levels[torch.randint(len(levels), (rows, k))]


def make_all_equal(rows, k, dtype):
    """One value everywhere: nothing may move.

    Args:
        rows: number of rows.
        k: row length.
        dtype: float32, float16 or bfloat16.

    Returns:
        values: (rows, k).
    """
    return torch.full((rows, k), 1.5, dtype=dtype)


def make_negative(rows, k, dtype):
    """Negative values, as log probabilities are: the order of their bits is the opposite of theirs.

    Args:
        rows: number of rows.
        k: row length.
        dtype: float32, float16 or bfloat16.

    Returns:
        values: (rows, k).
    """
    return -torch.randn(rows, k).abs().add(2**-6).to(dtype)


def make_padded(rows, k, dtype):
    """Normal values, the last of each row -inf: a top-k that found fewer than k.

    Args:
        rows: number of rows.
        k: row length.
        dtype: float32, float16 or bfloat16.

    Returns:
        values: (rows, k).
    """
    found = torch.randint(1, k + 1, (rows, 1))
    return torch.randn(rows, k).to(dtype).masked_fill_(torch.arange(k) >= found, float("-inf"))


PATTERNS = {
    "unique": make_unique,
    "tie_heavy": make_tie_heavy,
    "all_equal": make_all_equal,
    "negative": make_negative,
    "padded": make_padded,
}


def make_pairs(pattern, rows, k, dtype):
    """Values after a pattern, and what they are values of.

    Args:
        pattern: a key of PATTERNS.
        rows: number of rows.
        k: row length.
        dtype: float32, float16 or bfloat16.

    Returns:
        values: (rows, k), and indices: (rows, k) int32, of a row all different, -1 where the value is -inf.
    """
    values = PATTERNS[pattern](rows, k, dtype)
    vocabulary = torch.rand(rows, 4 * k).argsort(dim=-1)[:, :k].to(torch.int32)
    return values, vocabulary.masked_fill_(values == float("-inf"), -1)


def _code(dtype) -> torch.dtype:
    """The integer dtype as wide as a float dtype."""
    return torch.int32 if dtype == torch.float32 else torch.int16
