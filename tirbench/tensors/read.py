"""Tensors that are kept in files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from tirbench.tensors.errors import TensorError

if TYPE_CHECKING:
    from collections.abc import Mapping
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
        array = _reader("numpy", path).load(path, allow_pickle=False)
        return _picked(path, {None: torch.from_numpy(array)}, key)
    if path.suffix == ".npz":
        with _reader("numpy", path).load(path, allow_pickle=False) as arrays:
            found = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        return _picked(path, found, key)
    if path.suffix == ".safetensors":
        return _picked(path, _reader("safetensors.torch", path).load_file(path), key)
    raise TensorError(f"{path}: not a .pt, .npy, .npz or .safetensors file")


def _reader(module: str, path: Path) -> Any:
    """A module that reads a kind of file; it is needed only where there is such a file."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise TensorError(f"{path}: needs the package {package}: pip install {package}") from error


def _picked(path: Path, found: Mapping[Any, object], key: str | None) -> torch.Tensor:
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
