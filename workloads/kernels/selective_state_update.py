"""One decoding step of a Mamba-2 layer: states found by slot, updated in place, and read out.

What: for every sequence i of the batch with slot s = slots[i] >= 0, head h and channel d,

    step       = softplus(dt[i, h, d] + dt_bias[h, d])                  (or dt itself)
    state[s]   = state[s] · exp(a[h] · step) + x[i, h, d] · step · b[i, g]    along the columns
    y[i, h, d] = (state[s] · c[i, g] + d_skip[h, d] · x[i, h, d]) · silu(z[i, h, d])

where g is the group of head h. state: (slots, heads, dim, columns) float16, bfloat16 or float32, slots
at any stride; x, z, y: (batch, heads, dim); b, c: (batch, groups, columns); dt: (batch, heads, dim);
a: (heads, dim, columns); dt_bias, d_skip: (heads, dim); these four float32 at any strides. Mamba-2 has one
number a head of each, and hands over views with strides of 0 in place of the other dimensions ("tied").
z, dt_bias and d_skip are optional. Slot -1 is padding of the batch: no state is its own, and its y is
not defined. Arithmetic in float32; y is read off the new state before that is rounded for storing.
Without UPDATE the state is only read, as when drafted tokens may yet be rejected.

Tiling: a program owns BLOCK_D channels of one head of one sequence; their columns lie in one piece, 8 KB
of float16 at 32 channels of 128. It loads, updates, sums up and stores them, and nobody else touches
them, so working in place needs no synchronisation. What is tied is loaded once as a scalar.

Bound: memory. A state is read once and written once, all else is a few kilobytes a sequence; six flops
per element are next to nothing. Programs of padding leave at once.
"""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def softplus(x):
    """Compute ln(1 + e**x) without overflow.

    Args:
        x: float32, any shape.

    Returns:
        The same shape.
    """
    return tl.maximum(x, 0.0) + LN_2 * tl.log2(1.0 + tl.exp2(-tl.abs(x) * LOG2_E))


@triton.jit
def selective_state_update_kernel(
    state_ptr,
    x_ptr,
    z_ptr,
    dt_ptr,
    dt_bias_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    d_skip_ptr,
    slots_ptr,
    y_ptr,
    heads,
    heads_per_group,
    state_stride,
    dt_stride_batch,
    dt_stride_head,
    dt_stride_dim,
    a_stride_head,
    a_stride_dim,
    a_stride_column,
    vector_stride_head,
    vector_stride_dim,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TIED: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    UPDATE: tl.constexpr,
):
    """Update and read BLOCK_D channels of one head of one sequence.

    The grid is (cdiv(DIM, BLOCK_D), heads, batch).

    Args:
        state_ptr: state: (slots, heads, DIM, COLUMNS), slots state_stride apart, updated.
        x_ptr: x: (batch, heads, DIM), contiguous.
        z_ptr: z: (batch, heads, DIM), contiguous, or None.
        dt_ptr: dt: (batch, heads, DIM) float32.
        dt_bias_ptr: dt_bias: (heads, DIM) float32, or None.
        a_ptr: a: (heads, DIM, COLUMNS) float32, negative.
        b_ptr: b: (batch, groups, COLUMNS), contiguous.
        c_ptr: c: (batch, groups, COLUMNS), contiguous.
        d_skip_ptr: d_skip: (heads, DIM) float32, or None.
        slots_ptr: slots: (batch,) int64, -1 for padding, otherwise all different.
        y_ptr: y: (batch, heads, DIM), contiguous, written.
        heads: number of heads.
        heads_per_group: heads that share a row of b and c; divides heads.
        state_stride: elements from one slot to the next.
        dt_stride_batch: stride of dt.
        dt_stride_head: stride of dt.
        dt_stride_dim: stride of dt, 0 if TIED.
        a_stride_head: stride of a.
        a_stride_dim: stride of a, 0 if TIED.
        a_stride_column: stride of a, 0 if TIED.
        vector_stride_head: stride of dt_bias and d_skip.
        vector_stride_dim: stride of dt_bias and d_skip, 0 if TIED.
        DIM: channels of a head.
        COLUMNS: columns of a channel's state, a power of two.
        BLOCK_D: channels of this program, a power of two.
        TIED: whether dt, dt_bias, a and d_skip have one number a head.
        SOFTPLUS: whether dt goes through softplus.
        UPDATE: whether the new state is stored.
    """
    sequence = tl.program_id(2)
    slot = tl.load(slots_ptr + sequence)
    if slot < 0:
        return
    head = tl.program_id(1)
    channel = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    inside = channel < DIM

    # One number if tied; otherwise one per channel, and of a one per element.
    own = 0 if TIED else channel
    own_inside = True if TIED else inside
    step = tl.load(
        dt_ptr + sequence * dt_stride_batch + head * dt_stride_head + own * dt_stride_dim,
        mask=own_inside,
    )
    vector = head * vector_stride_head + own * vector_stride_dim
    if dt_bias_ptr is not None:
        step += tl.load(dt_bias_ptr + vector, mask=own_inside)
    if SOFTPLUS:
        step = softplus(step)
    a_offsets = head * a_stride_head + own * a_stride_dim
    if not TIED:
        a_offsets += column * a_stride_column
    decay = tl.exp2(tl.load(a_ptr + a_offsets, mask=own_inside) * step * LOG2_E)

    row = (sequence * heads + head) * DIM + channel
    x = tl.load(x_ptr + row, mask=inside, other=0.0).to(tl.float32)
    groups = heads // heads_per_group
    shared = (sequence * groups + head // heads_per_group) * COLUMNS + column
    b = tl.load(b_ptr + shared).to(tl.float32)
    c = tl.load(c_ptr + shared).to(tl.float32)

    state_ptr += slot * state_stride + (head * DIM + channel) * COLUMNS + column
    state = tl.load(state_ptr, mask=inside, other=0.0).to(tl.float32)
    state = state * decay + (x * step) * b
    if UPDATE:
        tl.store(state_ptr, state.to(state_ptr.dtype.element_ty), mask=inside)

    y = tl.sum(state * c, axis=1, keep_dims=True)
    if d_skip_ptr is not None:
        y += tl.load(d_skip_ptr + vector, mask=own_inside) * x
    if z_ptr is not None:
        z = tl.load(z_ptr + row, mask=inside, other=0.0).to(tl.float32)
        y *= z / (1.0 + tl.exp2(-z * LOG2_E))
    tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty), mask=inside)


def make_slots(batch, slots):
    """Give each sequence a slot of its own; the last eighth of the batch, at least one, is padding.

    Args:
        batch: sequences and padding.
        slots: number of slots.

    Returns:
        (batch,) int64, distinct numbers below `slots`, then -1; and (batch,) bool, false for padding.
    """
    real = torch.arange(batch) < batch - max(1, batch // 8)
    return torch.where(real, torch.randperm(slots)[:batch], -1), real


def step_of_live(state, x, z, dt, dt_bias, a, b, c, d_skip, use_softplus):
    """Take the step for sequences whose states are already gathered, in the dtype of dt.

    Args:
        state: (live, heads, dim, columns), any float dtype.
        x: (live, heads, dim).
        z: (live, heads, dim), or None.
        dt: (live, heads, dim).
        dt_bias: (heads, dim), or None.
        a: (heads, dim, columns).
        b: (live, groups, columns).
        c: (live, groups, columns).
        d_skip: (heads, dim), or None.
        use_softplus: whether dt goes through softplus.

    Returns:
        The new state: (live, heads, dim, columns), and y: (live, heads, dim), of the dtype of dt.
    """
    step = dt if dt_bias is None else dt + dt_bias
    step = torch.nn.functional.softplus(step) if use_softplus else step
    x = x.to(step.dtype)
    per_group = state.shape[1] // b.shape[1]
    b, c = (one.to(step.dtype).repeat_interleave(per_group, dim=1) for one in (b, c))
    state = state * torch.exp(a * step[..., None]) + (x * step)[..., None] * b[:, :, None, :]
    y = (state * c[:, :, None, :]).sum(dim=-1)
    if d_skip is not None:
        y = y + d_skip * x
    if z is not None:
        y = y * torch.nn.functional.silu(z.to(step.dtype))
    return state, y


def selective_state_update_oracle(
    state, x, z, dt, dt_bias, a, b, c, d_skip, slots, use_softplus, update
):
    """Do the same out of place; y of padding is zero.

    Args:
        state: (slots, heads, dim, columns), any float dtype.
        x: (batch, heads, dim).
        z: (batch, heads, dim), or None.
        dt: (batch, heads, dim).
        dt_bias: (heads, dim), or None.
        a: (heads, dim, columns).
        b: (batch, groups, columns).
        c: (batch, groups, columns).
        d_skip: (heads, dim), or None.
        slots: (batch,) int64.
        use_softplus: whether dt goes through softplus.
        update: whether the state changes.

    Returns:
        The state: (slots, heads, dim, columns), and y: (batch, heads, dim), of the dtype of dt.
    """
    live = (slots >= 0).nonzero()[:, 0]
    batched = [None if one is None else one[live] for one in (x, z, dt, b, c)]
    x_live, z_live, dt_live, b_live, c_live = batched
    new, y_live = step_of_live(
        state[slots[live]],
        x_live,
        z_live,
        dt_live,
        dt_bias,
        a,
        b_live,
        c_live,
        d_skip,
        use_softplus,
    )
    state = state.to(dt.dtype)
    state = state.index_copy(0, slots[live], new) if update else state
    return state, torch.zeros_like(x, dtype=dt.dtype).index_copy(0, live, y_live)


def build_torch(state, x, z, dt, dt_bias, a, b, c, d_skip, slots, y, use_softplus, update):
    """Build the same of torch operations: gather the states, step in float32, scatter them back.

    Which sequences are real is found out here, once, since it needs the numbers on the host.

    Args:
        state: (slots, heads, dim, columns), updated.
        x: (batch, heads, dim).
        z: (batch, heads, dim), or None.
        dt: (batch, heads, dim) float32.
        dt_bias: (heads, dim) float32, or None.
        a: (heads, dim, columns) float32.
        b: (batch, groups, columns).
        c: (batch, groups, columns).
        d_skip: (heads, dim) float32, or None.
        slots: (batch,) int64.
        y: (batch, heads, dim), written where the sequence is real.
        use_softplus: whether dt goes through softplus.
        update: whether the state changes.

    Returns:
        A closure that updates state and writes y.
    """
    live = (slots >= 0).nonzero()[:, 0]
    rows = slots[live]

    def launch() -> None:
        new, out = step_of_live(
            state[rows],
            x[live],
            None if z is None else z[live],
            dt[live],
            dt_bias,
            a,
            b[live],
            c[live],
            d_skip,
            use_softplus,
        )
        if update:
            state.index_copy_(0, rows, new.to(state.dtype))
        y.index_copy_(0, live, out.to(y.dtype))

    return launch


def build_flashinfer(state, x, z, dt, dt_bias, a, b, c, d_skip, slots, y, use_softplus, update):
    """Build FlashInfer's kernel of this operation.

    Args:
        state: (slots, heads, dim, columns), updated.
        x: (batch, heads, dim).
        z: (batch, heads, dim), or None.
        dt: (batch, heads, dim) float32.
        dt_bias: (heads, dim) float32, or None.
        a: (heads, dim, columns) float32.
        b: (batch, groups, columns).
        c: (batch, groups, columns).
        d_skip: (heads, dim) float32; None becomes zeros, as FlashInfer always adds it.
        slots: (batch,) int64.
        y: (batch, heads, dim), written.
        use_softplus: whether dt goes through softplus.
        update: whether the state changes.

    Returns:
        A closure that updates state and writes y.
    """
    from flashinfer.mamba import selective_state_update

    if d_skip is None:
        d_skip = torch.zeros_like(dt[0, :, :1]).expand(dt.shape[1:])

    def launch() -> None:
        selective_state_update(
            state,
            x,
            dt,
            a,
            b,
            c,
            d_skip,
            z=z,
            dt_bias=dt_bias,
            dt_softplus=use_softplus,
            state_batch_indices=slots,
            pad_slot_id=-1,
            out=y,
            disable_state_update=not update,
        )

    return launch
