"""Targets: `file.py:name` beside the workload, or a dotted path of an installed package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tirbench.errors import UsageError
from tirbench.launch import roots


def load_target(folder: Path, target: str) -> Any:
    """The object that `target` names.

    Args:
        folder: the folder of the workload; file targets are relative to it.
        target: `kernels/rmsnorm.py:rmsnorm_kernel` or `torch.nn.functional.rms_norm`.

    Raises:
        UsageError: the module has no such name.
        Exception: whatever importing the file or package raises, as it is.
    """
    file, colon, name = target.rpartition(":")
    if colon:
        module = load_file(folder / file)
        if not hasattr(module, name):
            raise UsageError(f"{file} has no function {name!r}")
        return getattr(module, name)
    return load_dotted(target, roots.root_of(folder.resolve()))


def load_file(path: Path) -> ModuleType:
    """Import a kernel file by path, once per process; its folder is importable from it.

    The module's name carries a digest of its path, so that equally named files of two revisions or two
    folders are two modules.
    """
    path = path.resolve()
    name = roots.name_of(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = (
        module  # before execution: dataclasses and Triton look their module up there
    )
    folder = str(path.parent)
    root = roots.root_of(path)
    if root is not None:
        root.look_in(path.parent)
    elif folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_dotted(target: str, root: roots.Root | None = None) -> Any:
    """The object at a dotted path: the longest importable prefix, then attributes.

    Args:
        target: the path.
        root: the tree of the workload, where several revisions are in this process.

    Raises:
        ModuleNotFoundError: the package is not installed; the message is Python's.
        UsageError: the package has no such attribute.
    """
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        prefix = ".".join(parts[:length])
        name = roots.name_for(root, prefix)
        try:
            found: Any = importlib.import_module(name)
        except ModuleNotFoundError as error:
            # Only a missing prefix may be an attribute; a missing dependency of it is the caller's to see.
            missing = error.name
            if length > 1 and missing is not None and (name + ".").startswith(missing + "."):
                continue
            raise
        for part in parts[length:]:
            if not hasattr(found, part):
                raise UsageError(f"{prefix} has no attribute {part!r} (target {target!r})")
            found = getattr(found, part)
        return found
    raise UsageError(f"{target!r} is not a dotted path of a package's function")
