"""A kernel of a `.cu` file as machine code: NVRTC, called through NVIDIA's `cuda-core`.

Nothing here needs a GPU or a driver. The compiler sees the file under the name that the workload gives
it, so that its messages, and what a profiler shows, hold no path of a machine.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, Final

from tirbench.errors import TirbenchError, UsageError
from tirbench.values import DTYPES

INSTALL: Final = "kind \"cuda\" needs NVIDIA's cuda-core and NVRTC: pip install 'tirbench[cuda]'"
HEADERS: Final = (
    "CUDA's headers were not found: pip install nvidia-cuda-runtime (nvidia-cuda-runtime-cu12 beside an "
    "NVRTC of CUDA 12), or set CUDA_HOME to a CUDA toolkit"
)
SPELT_OTHERWISE: Final[Mapping[str, str]] = {
    "D": "define_macro",
    "G": "debug",
    "U": "undefine_macro",
    "device_debug": "debug",
    "dopt": "device_code_optimize",
    "fmad": "fma",
    "generate_line_info": "lineinfo",
    "maxrregcount": "max_register_count",
    "w": "disable_warnings",
}
"""NVRTC's options whose field of `ProgramOptions` has another name; the others are spelt alike."""
DECIDED_ELSEWHERE: Final[Mapping[str, str]] = {
    "I": "write the folder in `include`",
    "include_path": "write the folder in `include`",
    "arch": "the code is compiled for the device that runs it",
    "gpu_architecture": "the code is compiled for the device that runs it",
    "name": "the program is named after its file",
}
LISTS: Final = frozenset(
    {
        "define_macro",
        "undefine_macro",
        "ptxas_options",
        "pre_include",
        "diag_error",
        "diag_suppress",
        "diag_warn",
    }
)
"""Fields that a repeated flag adds to; any other flag is given once."""
_FLAG: Final = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
_MESSAGE: Final = re.compile(
    r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.+)$",
    re.MULTILINE,
)


class CompileError(TirbenchError):
    """A `.cu` file does not compile: the first line says where and why, the compiler's log follows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CudaSource:
    """What of which file is compiled, and how.

    Attributes:
        folder: the folder of the workload; `file` and `include` are relative to it.
        file: the `.cu` file as the workload names it.
        expression: the kernel in C++: `rmsnorm<__half, 256, 8, false>`.
        flags: NVRTC's, as they are written on its command line.
        include: folders that `#include` looks in before CUDA's own.
    """

    folder: Path
    file: str
    expression: str
    flags: tuple[str, ...] = ()
    include: tuple[str, ...] = ()


def name_expression(name: str, template: Sequence[object]) -> str:
    """The C++ expression that names one instance of a kernel.

    Args:
        name: of the function.
        template: its template arguments: integers, booleans, and dtypes of torch by their C type.

    Raises:
        UsageError: an argument is none of these.
    """
    if not template:
        return name
    return f"{name}<{', '.join(map(_template_argument, template))}>"


def _template_argument(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    c_type = DTYPES.get(str(value).removeprefix("torch."), (0, None))[1]
    if c_type is None:
        raise UsageError(f"a template takes integers, booleans and dtypes, not {value!r}")
    return c_type


def compiled(source: CudaSource, arch: str) -> Any:
    """The machine code of one kernel; compiled once a process for equal text, flags and device.

    Args:
        source: what is compiled.
        arch: `sm_90a`.

    Returns:
        A `cuda.core.ObjectCode` that holds a cubin; `get_kernel(source.expression)` is its kernel.

    Raises:
        CompileError: NVRTC refuses the file.
        UsageError: cuda-core is not installed, or a flag is unknown to it.
    """
    return _compiled(source, _read(source), arch)


def _read(source: CudaSource) -> str:
    try:
        return (source.folder / source.file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{source.file} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=256)
def _compiled(source: CudaSource, text: str, arch: str) -> Any:
    try:
        from cuda.core import Program
    except ImportError as error:
        raise UsageError(f"{INSTALL} ({error})") from error
    log = StringIO()
    try:
        program = Program(text, "c++", program_options(source, arch))
        return program.compile("cubin", name_expressions=(source.expression,), logs=log)
    except UsageError:
        raise
    except Exception as error:  # cuda-core has no public class for what its compilers raise
        raise CompileError(explained(str(error), source)) from error


def program_options(source: CudaSource, arch: str) -> Any:
    """The flags of a source as `cuda.core.ProgramOptions`.

    Line numbers are always kept: a profiler shows them, and machine code does not change with them.

    Raises:
        UsageError: a flag is not one that cuda-core hands to NVRTC, or is given twice.
    """
    from cuda.core import ProgramOptions

    fields = {field.name for field in dataclasses.fields(ProgramOptions)}
    given: dict[str, Any] = {"lineinfo": True}
    for flag in source.flags:
        name, value = _parsed(flag, fields)
        if name in LISTS:
            given.setdefault(name, []).append(value)
        elif name in given and name != "lineinfo":
            raise UsageError(f"the flag {flag!r} is given twice")
        else:
            given[name] = value
    folders = [str(source.folder / folder) for folder in source.include]
    own = str((source.folder / source.file).parent)  # what a compiler of files looks in by itself
    given["include_path"] = [own, *folders, *header_folders()]
    return ProgramOptions(name=source.file, arch=arch, **given)


def _parsed(flag: str, fields: Iterable[str]) -> tuple[str, Any]:
    """Field and value of `ProgramOptions` for one flag of NVRTC's command line."""
    macro = re.fullmatch(r"-([DUI])(.+)", flag, re.DOTALL)  # the one form without a `=` between
    match = _FLAG.fullmatch(flag)
    if macro is None and match is None:
        raise UsageError(f"{flag!r} is no flag of NVRTC: one flag an entry, as --maxrregcount=64")
    spelt, text = macro.groups() if macro else match.groups()  # type: ignore[union-attr]  # one of them
    spelt = spelt.replace("-", "_")
    name = SPELT_OTHERWISE.get(spelt, spelt)
    if name in DECIDED_ELSEWHERE:
        raise UsageError(f"the flag {flag!r} cannot be given: {DECIDED_ELSEWHERE[name]}")
    if name not in fields:
        raise UsageError(f"{flag!r} is no flag that cuda-core hands to NVRTC")
    if name == "define_macro" and text and "=" in text:
        return name, tuple(text.split("=", 1))
    return name, _value(text)


def _value(text: str | None) -> Any:
    """What stands behind the `=` of a flag, as cuda-core takes it."""
    if text is None:
        return True
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text


@cache
def header_folders() -> tuple[str, ...]:
    """Where `cuda_fp16.h` and its like lie: NVRTC brings the compiler alone.

    cuda-core's own finder looks where torch's wheels put them (`nvidia-cuda-runtime`), then in conda, then
    below CUDA_HOME and the usual folders of a toolkit. The CUDA C++ library is added where it is there.
    """
    from cuda.pathfinder import find_nvidia_header_directory

    found = []
    for library in ("cudart", "cccl"):
        try:
            folder = find_nvidia_header_directory(library)
        except RuntimeError:  # a name that an older finder does not know
            folder = None
        if folder is not None:
            found.append(folder)
    return tuple(found)


def explained(message: str, source: CudaSource) -> str:
    """What a failed compilation says: its first error in one line, then the compiler's log.

    Args:
        message: the text of cuda-core's error, which holds the log of NVRTC.
        source: what was compiled.
    """
    padding = " \n\0"  # cuda-core hands on the terminating zero of NVRTC's buffer
    log = message.partition("compilation log:")[2].strip(padding) or message.strip(padding)
    log = log.replace(str(source.folder) + "/", "")
    errors = list(_MESSAGE.finditer(log))
    if not errors:
        first = f"{source.file}: {log.splitlines()[0] if log else 'NVRTC failed without a message'}"
    elif errors[0]["file"].startswith(
        "__nv_"
    ):  # NVRTC's own file, which holds the name of the kernel
        first = f"{source.file}: {source.expression}: {errors[0]['text']}"
    else:
        first = f"{errors[0]['file']}:{errors[0]['line']}: {errors[0]['text']}"
    if len(errors) > 1:
        first += f" (and {len(errors) - 1} more)"
    if re.search(r"cannot open source file \"cuda_\w+\.h\"", log) and not header_folders():
        first += f"; {HEADERS}"
    return f"{first}\n\n{log}"
