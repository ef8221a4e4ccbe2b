"""`tirbench new NAME`: a workload that is right and runs, to be made into one's own."""

from __future__ import annotations

import sys
from importlib.resources import files
from keyword import iskeyword
from typing import TYPE_CHECKING, Final

from tirbench.errors import UsageError
from tirbench.load import schema_path

if TYPE_CHECKING:
    from pathlib import Path

_IMPORTED: Final = frozenset({"numpy", "packaging", "tirbench", "torch", "triton", "tvm_tirx"})
"""What kernel files and harnesses import: a file of such a name would be imported in its place."""


def new(name: str, root: Path) -> tuple[Path, ...]:
    """Write `workloads/NAME.toml` and `workloads/kernels/NAME.py`.

    Args:
        name: of the workload; its functions are named after it.
        root: the project's folder.

    Returns:
        The files that were written, then the schema that the workload names, where it is not there yet.

    Raises:
        UsageError: the name cannot name a module, or one of the files exists; nothing is written then.
    """
    _check_name(name)
    workload = root / "workloads" / f"{name}.toml"
    kernel = root / "workloads" / "kernels" / f"{name}.py"
    for path in (workload, kernel):
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path.relative_to(root)} exists; nothing was written")
    schema = schema_path(str(root), "workloads")
    kernel.parent.mkdir(parents=True, exist_ok=True)
    _write(kernel, _text("kernel.py.txt").replace("NAME", name))
    _write(workload, _text("workload.toml.txt").replace("NAME", name).replace("SCHEMA", schema, 1))
    beside = workload.parent / schema
    return (workload, kernel, *([] if beside.exists() else [beside]))


def _check_name(name: str) -> None:
    """Refuse what cannot name a module of its own.

    Raises:
        UsageError: always with what is wrong.
    """
    if iskeyword(name):
        raise UsageError(f"'{name}' is a keyword of Python; give the workload another name")
    if not (name.isidentifier() and name.isascii()) or len(name) > 60:
        raise UsageError(
            f"{name!r} cannot name a workload and its functions: letters, digits and underscores, "
            "a letter first, at most 60"
        )
    if name in sys.stdlib_module_names | _IMPORTED:
        raise UsageError(
            f"{name!r} is a module that kernels import; give the workload another name"
        )


def _text(name: str) -> str:
    return (files("tirbench") / "scaffold" / name).read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    """Write a file that does not exist; `x` makes sure that it still does not."""
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists; it was not touched") from None
