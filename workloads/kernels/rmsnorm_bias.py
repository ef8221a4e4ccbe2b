"""RMSNorm with an optional bias in plain torch: the oracle and reference of `rmsnorm.cu`."""

import torch


def rmsnorm_bias_torch(x, w, bias, eps):
    """Root-mean-square norm of each row, in float32 or better, rounded once at the end.

    Args:
        x: (rows, hidden), any float dtype.
        w: (hidden,), the dtype of x.
        bias: (hidden,), the dtype of x, or `None`.
        eps: added to the mean of squares.

    Returns:
        y: (rows, hidden), the dtype of x.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scaled = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps) * w
    return (scaled if bias is None else scaled + bias).to(x.dtype)
