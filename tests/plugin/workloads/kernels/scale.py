"""Scaling, written with NumPy."""

import numpy as np


def scale(x, factor, y):
    """y = x * factor; x, y: (n,) float32, y is written."""
    np.multiply(x, np.float32(factor), out=y)
