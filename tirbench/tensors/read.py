"""Tensors that are kept in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tirbench.tensors.errors import TensorError

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, key: str | None) -> torch.Tensor:
    """Read one tensor from a `.pt`, `.npy`, `.npz` or `.safetensors` file into the host's memory.

    Nothing in a file is executed: pickles are read with `weights_only`, arrays without objects.

    Raises:
        TensorError: no such file, another kind of file, or `key` does not pick a tensor in it.
    """
    if not path.is_file():
        raise TensorError(f"{path}: no such file")
    if path.suffix in {".pt", ".pth"}:
        found = torch.load(path, map_location="cpu", weights_only=True)
        return _picked(path, found if isinstance(found, dict) else {None: found}, key)
    if path.suffix == ".npy":
        import numpy as np

        return _picked(path, {None: torch.from_numpy(np.load(path, allow_pickle=False))}, key)
    if path.suffix == ".npz":
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            wanted = arrays.files if key is None else [key] if key in arrays.files else []
            return _picked(path, {name: torch.from_numpy(arrays[name]) for name in wanted}, key)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return _picked(path, load_file(path), key)
    raise TensorError(f"{path}: not a .pt, .npy, .npz or .safetensors file")


def _picked(path: Path, found: dict[str | None, object], key: str | None) -> torch.Tensor:
    """The tensor of that key, or the only one."""
    if key is None and len(found) == 1:
        (tensor,) = found.values()
    elif key is not None and key in found:
        tensor = found[key]
    else:
        names = ", ".join(sorted(str(name) for name in found if name is not None))
        raise TensorError(f"{path}: has no tensor {key!r}; it has: {names or 'a single one'}")
    if not isinstance(tensor, torch.Tensor):
        raise TensorError(f"{path}: {key!r} is a {type(tensor).__name__}, not a tensor")
    return tensor
