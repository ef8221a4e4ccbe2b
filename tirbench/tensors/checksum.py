"""Noticing that memory changed without keeping a copy of it."""

from __future__ import annotations

import torch

from tirbench.pieces import pieces
from tirbench.tensors.fill import CHUNK_GPU
from tirbench.tensors.spec import bits


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """A number that changes when any one element does: int64 on the tensor's device, no waiting.

    Each element, as an integer, times an odd number that depends on its position, summed modulo 2**64:
    the order of summation does not matter, and a single change cannot go unseen.
    """
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for index, start, count in pieces(tensor.shape, CHUNK_GPU):
        words = bits(tensor[index]).reshape(-1).to(torch.int64)
        factors = torch.arange(start, start + count, device=tensor.device)
        total += factors.mul_(2 * 0x1D8E4E27C47D124F).add_(0x9E3779B1).mul_(words).sum()
    return total
