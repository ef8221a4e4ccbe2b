"""Machine code of TIRx kernels, kept on disk: TIRx compiles its CUDA source anew in every process.

On an H200 NVRTC takes 0.7 to 1.5 s for a kernel, headers and all, when it is launched for the first time,
and a comparison launches it in dozens of processes. What is kept is found by everything that decides it: the
source, the resolved settings of the compiler, and the versions of what compiles and what it includes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

CALLBACK: Final = "tvm_callback_cuda_compile"
"""The global function through which TIRx has CUDA source compiled: (source, settings) → [code, format]."""

FOLDER_VARIABLE: Final = "TIRBENCH_CACHE_DIR"
"""Environment variable that moves the folder."""

COMPILERS: Final = (
    "apache-tvm-tirx",
    "apache-tvm-ffi",
    "cuda-bindings",
    *("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13"),
    *("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu13"),
    *("nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12", "nvidia-cuda-cccl-cu13"),
)
"""Packages that decide the machine code, by the names that they have for the versions of CUDA."""

Compile = Callable[[str, str], Sequence[Any]]


def folder() -> Path | None:
    """Where machine code is kept: of this user, for all projects, as Triton's is.

    `None` of a user without a home, as containers have them: in a folder of everybody's, anybody could
    leave code to be run.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given) / "tirx"
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:  # there is no home
        return None
    return base / "tirbench" / "tirx"


@cache
def keep() -> None:
    """From now on in this process, TIRx asks the folder before it compiles; called again it does nothing."""
    import tvm_ffi

    where = folder()
    if where is not None:
        compile_ = tvm_ffi.get_global_func(CALLBACK)
        kept = kept_by(compile_, where, versions())
        tvm_ffi.register_global_func(CALLBACK, kept, override=True)


def kept_by(compile_: Compile, where: Path, compilers: str) -> Compile:
    """The same compiler with a memory.

    Only what NVRTC makes is kept: its version is known, that of an `nvcc` somewhere on the path is not.

    Args:
        compile_: as TIRx has it.
        where: the folder.
        compilers: versions of everything that decides the result.
    """

    def ask(source: str, settings: str) -> Sequence[Any]:
        if json.loads(settings).get("cuda", {}).get("compiler", "nvrtc") != "nvrtc":
            return compile_(source, settings)
        key = hashlib.sha256(f"{source}\0{settings}\0{compilers}".encode()).hexdigest()
        path = where / f"{key}.bin"
        with suppress(OSError):
            form, _, code = path.read_bytes().partition(b"\n")
            return [bytearray(code), form.decode()]
        code, form = compile_(source, settings)
        with suppress(
            OSError
        ):  # a full disk or a read-only home: the next process compiles for itself
            where.mkdir(parents=True, exist_ok=True)
            begun = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            begun.write_bytes(str(form).encode() + b"\n" + bytes(code))
            begun.replace(path)
        return [code, form]

    return ask


def versions() -> str:
    """What compiles here, and against which headers."""
    found = []
    for name in COMPILERS:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return "\n".join([*found, *_nvrtc(), *_headers()])


def _nvrtc() -> list[str]:
    """The library that is loaded, which need not be a package's."""
    with suppress(Exception):
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
        return [f"NVRTC {major}.{minor}"]
    return []


def _headers() -> list[str]:
    """The toolkit whose headers are included, and when they were put there."""
    with suppress(Exception):
        from tvm_tirx.support import nvcc

        path = Path(nvcc.find_cuda_path())
        return [f"{path} {(path / 'include' / 'cuda.h').stat().st_mtime_ns}"]
    return []
