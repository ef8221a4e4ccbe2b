"""References from liger-kernel, a public library of Triton kernels for training.

Each builder returns a closure that launches liger's forward pass on the case's tensors; liger
allocates its outputs itself. liger-kernel is optional: where it is missing, the builder raises, and
the row says what to install.
"""

import importlib


def load_operation(module, name):
    """Return `liger_kernel.ops.<module>.<name>`.

    Args:
        module: module below `liger_kernel.ops`.
        name: the autograd function's name.

    Returns:
        The `torch.autograd.Function`.

    Raises:
        ImportError: liger-kernel is missing, or its version has no such operation.
    """
    try:
        operations = importlib.import_module(f"liger_kernel.ops.{module}")
    except ImportError as error:
        raise ImportError(f"{error}; to time this reference: pip install liger-kernel") from error
    if not hasattr(operations, name):
        raise ImportError(f"this liger-kernel has no {name}; pip install -U liger-kernel")
    return getattr(operations, name)


def build_rmsnorm(x, w, eps):
    """Build liger's RMSNorm in its "gemma" mode: everything in float32, as here.

    Args:
        x: (rows, hidden).
        w: (hidden,).
        eps: added to the mean of squares.

    Returns:
        A closure that returns y: (rows, hidden).
    """
    operation = load_operation("rms_norm", "LigerRMSNormFunction")
    return lambda: operation.apply(x, w, eps, 0.0, "gemma", False)


def build_fused_add_rmsnorm(x, r, w, eps):
    """Build liger's fused residual addition and RMSNorm, which works out of place.

    Args:
        x: (rows, hidden).
        r: (rows, hidden).
        w: (hidden,).
        eps: added to the mean of squares.

    Returns:
        A closure that returns the new x and the new r.
    """
    operation = load_operation("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")
    return lambda: operation.apply(x, r, w, eps, 0.0, "gemma", False)


def build_softmax(x):
    """Build liger's softmax over the last dimension.

    Args:
        x: (rows, cols).

    Returns:
        A closure that returns y: (rows, cols).
    """
    operation = load_operation("softmax", "LigerSoftmaxFunction")
    return lambda: operation.apply(x)


def build_layernorm(x, w, b, eps):
    """Build liger's LayerNorm, which also writes the mean and the deviation of each row.

    Args:
        x: (rows, hidden).
        w: (hidden,).
        b: (hidden,).
        eps: added to the variance.

    Returns:
        A closure that returns y: (rows, hidden).
    """
    operation = load_operation("layer_norm", "LigerLayerNormFunction")
    return lambda: operation.apply(x, w, b, eps)


def build_silu_and_mul(x):
    """Build liger's SwiGLU over a fused gate-and-up tensor.

    Args:
        x: (rows, 2 * width), gate left, up right.

    Returns:
        A closure that returns y: (rows, width).
    """
    operation = load_operation("swiglu", "LigerFusedGateUpSiLUMulFunction")
    return lambda: operation.apply(x)


def build_rope(q, k, positions, cos_sin):
    """Build liger's rotary embedding, in place like ours.

    Liger takes the angles of each token instead of positions, so they are gathered here, once and
    outside the timed call: it reads more for the angles and is spared the gather.

    Args:
        q: (tokens, heads, dim), updated.
        k: (tokens, kv_heads, dim), updated.
        positions: (tokens,) int64.
        cos_sin: (max_position, dim) float32, cosines left, sines right.

    Returns:
        A closure that updates q and k.
    """
    operation = load_operation("rope", "LigerRopeFunction")
    cos, sin = (half.repeat(1, 2) for half in cos_sin[positions].chunk(2, dim=-1))
    # One sequence of all tokens, in the (batch, heads, tokens, dim) order of its caller: views.
    q, k = (x.unsqueeze(0).transpose(1, 2) for x in (q, k))
    return lambda: operation.apply(q, k, cos, sin)
