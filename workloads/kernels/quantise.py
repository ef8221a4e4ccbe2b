"""Quantisers of the suite's inputs: what a producer of low-precision tensors hands to a kernel.

They run once per case, before anything is timed, and are given unquantised tensors of the case; the
kernel, its references and the oracle all read the same quantised ones.
"""

import torch

E4M3_MAX = 448.0  # of float8_e4m3fn: the largest finite value
LEAST_AMAX = 1e-4  # a row of zeros still gets a scale to divide by


def cast(x):
    """Round to float8_e4m3fn without a scale, for values known to be of order one.

    Args:
        x: any shape and float dtype, magnitudes below 448.

    Returns:
        The same shape in float8_e4m3fn.
    """
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def per_row(x):
    """Scale each row to the range of float8_e4m3fn and round it.

    Args:
        x: (..., columns), any float dtype.

    Returns:
        values: (..., columns) float8_e4m3fn, and scales: (...,) float32, so that values * scales is
        about x; a scale is the largest magnitude of the row over 448.
    """
    wide = x.float()
    scales = wide.abs().amax(dim=-1).clamp(min=LEAST_AMAX) / E4M3_MAX
    return cast(wide / scales[..., None]), scales
