"""Scaling, written with NumPy."""

from __future__ import annotations

import numpy as np


def scale(x: np.ndarray, factor: float, y: np.ndarray) -> None:
    """y = x * factor; x, y: (n,) float32, y is written."""
    np.multiply(x, np.float32(factor), out=y)
