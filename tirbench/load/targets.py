"""Whether what a workload names exists, and takes the arguments it is given."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench.diagnostics import did_you_mean
from tirbench.load.calls import check_call, check_tirx, check_triton
from tirbench.load.cuda import check_cuda
from tirbench.load.kinds import KINDS
from tirbench.load.places import resolve
from tirbench.load.signatures import Definition, read_module

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.load.names import Names
    from tirbench.model import Function, Launch, Workload
    from tirbench.model import Path as TomlPath

_FILE: Final = re.compile(r"([^:]+):([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)")
_DOTTED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+")


@dataclass(frozen=True, slots=True)
class Place:
    """The project on this machine: its root, and the folder that targets are looked up from."""

    root: Path
    folder: Path


def check_targets(
    workload: Workload, names: Names, problems: Problems
) -> dict[TomlPath, frozenset[str] | None]:
    """Note every target that does not exist or does not take its arguments.

    Returns:
        For each launch with a grid that a tuner may complete, the parameters of its kernel, or `None`
        where they cannot be read.
    """
    root = Path(workload.source.root)
    place = Place(root, root / workload.source.folder)
    grid_names: dict[TomlPath, frozenset[str] | None] = {}
    for implementation in (*workload.kernels, *workload.references):
        for step in implementation.steps:
            grid_names[step.path] = _check_launch(step, place, names, problems)
        _check_function(implementation.context, place, problems)
    for function in workload.inits:
        _check_function(function, place, problems)
    _check_function(workload.check.oracle, place, problems)
    for output in workload.check.outputs:
        _check_function(output.through, place, problems)
    if workload.ranks is not None:
        _check_function(workload.ranks.prepare, place, problems)
    for tensor in workload.tensors:
        if tensor.init is not None and tensor.init.kind == "file":
            for name, value in tensor.init.parameters:
                if name == "path":
                    text = getattr(value, "text", "''")[1:-1]
                    path: TomlPath = (*tensor.path, "init", "path")
                    inside(text, place, path, problems)
    return grid_names


def inside(text: str, place: Place, path: TomlPath, problems: Problems) -> Path | None:
    """The file or folder that a relative path names, if it is in the project and exists; else noted."""
    if os.path.isabs(text) or "\\" in text or re.match(r"[A-Za-z]:", text):  # noqa: PTH117 - no Path: it may be hostile
        message = f"'{text}' is not a relative path with forward slashes"
        problems.add("TB050", path, message, hint="paths are relative to the workload file")
        return None
    found, reason = resolve(str(place.root), str(place.folder), text)
    if reason == "outside":
        message = f"'{text}' leaves the project"
        problems.add(
            "TB050", path, message, hint="what a workload names lies below the project's root"
        )
        return None
    if found is None:
        hint = did_you_mean(text, _siblings(place.folder, text))
        hint = hint or "paths are relative to the workload file"
        problems.add("TB051", path, f"no file '{text}'", hint=hint)
    return found


def _siblings(folder: Path, text: str) -> list[str]:
    """The files beside the one that is not there; without its folder, those of its name in others."""
    parent, _, name = text.rpartition("/")
    try:
        names = sorted(os.listdir(folder / parent))[:500]  # noqa: PTH208 - names are all that is needed
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            return [f"{path.parent.name}/{name}" for path in sorted(folder.glob(f"*/{name}"))[:500]]
        return []
    return [f"{parent}/{name}" if parent else name for name in names]


def _check_launch(
    launch: Launch, place: Place, names: Names, problems: Problems
) -> frozenset[str] | None:
    """One launch; the answer is what a grid may name besides the workload's own names."""
    kind = KINDS[launch.kind]
    _check_written(launch, problems)
    if launch.kind == "cuda":
        file = _file_of(launch.target, kind.suffix, (*launch.path, "target"), place, problems)
        if file is not None:
            check_cuda(launch, *file, problems)
        folders = dict(launch.options).get("include", ())
        for index, folder in enumerate(folders if isinstance(folders, tuple) else ()):
            inside(str(folder), place, (*launch.path, "include", index), problems)
        return frozenset()
    if kind.suffix not in ("", ".py"):  # a plug-in's language: only that the file is there is known
        _file_of(launch.target, kind.suffix, (*launch.path, "target"), place, problems)
        return frozenset()
    definition = _definition(launch.target, kind.suffix, (*launch.path, "target"), place, problems)
    if definition is None:
        return None if launch.kind == "triton" else frozenset()
    match launch.kind:
        case "triton":
            return check_triton(launch, definition, names, problems)
        case "tirx":
            check_tirx(launch, definition, problems)
        case "call" | "build":
            check_call(launch, definition, problems)
        case _:  # a plug-in's kind checks its own arguments when it renders
            pass
    return frozenset()


def _check_written(launch: Launch, problems: Problems) -> None:
    """`args` is written the way the kind passes arguments."""
    path = (*launch.path, "args")
    match KINDS[launch.kind].arguments:
        case "named" if launch.args.positional:
            message = f"the arguments of a {launch.kind} function are given by parameter name"
            problems.add("TB052", path, message, hint='args = { X = "x" }')
        case "positional" if launch.args.named:
            message = f"the arguments of a {launch.kind} kernel are given by position"
            problems.add("TB052", path, message, hint='args = ["x", "int32(n)"]')
        case _:
            pass


def _check_function(function: Function | None, place: Place, problems: Problems) -> None:
    """A named function exists and takes its arguments."""
    if function is None:
        return
    path = (*function.path, "target")
    definition = _definition(function.target, "", path, place, problems)
    if definition is not None:
        check_call(function, definition, problems)


def _file_of(
    target: str, suffix: str, path: TomlPath, place: Place, problems: Problems
) -> tuple[Path, str, str] | None:
    """The file of a target, its path as written, and the name in it; `None` after noting why not."""
    match = _FILE.fullmatch(target)
    if match is None:
        form = f"file{suffix or '.py'}:name"
        problems.add(
            "TB050",
            path,
            f"'{target}' is not of the form {form}",
            hint="or a dotted path that Python can import" * (suffix == ""),
        )
        return None
    text, name = match[1], match[2]
    wanted = suffix or ".py"
    if not text.endswith(wanted):
        near = f"{text}{wanted}"
        there = resolve(str(place.root), str(place.folder), near)[0] is not None
        hint = f"did you mean '{near}'?" if there else ""
        problems.add("TB050", path, f"'{text}' is not a {wanted} file", hint=hint)
        return None
    file = inside(text, place, path, problems)
    if file is not None and not file.is_file():  # a pipe would be waited for
        problems.add("TB051", path, f"'{text}' is not a file")
        return None
    return None if file is None else (file, text, name)


def _definition(
    target: str, suffix: str, path: TomlPath, place: Place, problems: Problems
) -> Definition | None:
    """What a target in a Python file is; `None` if that cannot be known or is noted as wrong."""
    if not suffix and _DOTTED.fullmatch(target) and ":" not in target:
        return None  # importing it would run code; the run says whether it exists
    found = _file_of(target, suffix, path, place, problems)
    if found is None:
        return None
    file, text, name = found
    module = read_module(file)
    if module.error:
        problems.add("TB051", path, f"'{text}' cannot be read: {module.error}")
        return None
    first, _, rest = name.partition(".")
    definition = module.definitions.get(first)
    if definition is None and not module.open_ended:
        hint = did_you_mean(first, module.definitions, "it defines")
        problems.add("TB051", path, f"'{text}' defines no '{first}'", hint=hint)
    return None if rest else definition
