"""Digests that say what a number means: the problem, the protocol, the source, the environment.

Two numbers may be compared where problem and protocol agree; where the source agrees too, nothing
that a person wrote has changed between them. Each digest is the beginning of the SHA-256 of canonical
JSON of the *meaning*: order of keys, comments, formatting, the machine and the hash seed leave it
alone.

No torch, nothing imported that a workload names: files are read as text.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import io
import json
import tokenize
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench import codec
from tirbench.digest import closure
from tirbench.digest.closure import Read
from tirbench.expression import Expression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tirbench.codec import Json
    from tirbench.model import (
        BoundFunction,
        BoundLaunch,
        BoundTensor,
        Case,
        Implementation,
        Machine,
        TimerName,
        Workload,
    )

__all__ = ["Read", "environment", "installed_version", "problem", "protocol", "reader", "source"]

LENGTH: Final = 16
"""Hexadecimal digits of a digest: 64 bits, enough to never meet twice in one suite."""

PROTOCOL_VERSION: Final = 3
"""Raised when the meaning of a time changes without a key of the workload: the table of calls by
duration, the statistic, the layout of the arena, the flush. 2: every case of a process lies in the same
pages, and a flush follows the last launch of a graph. 3: lines that kernels asked the L2 cache to keep are
let go before every flush, and a launch that the host is slower than is estimated without the host."""

IN_ENVIRONMENT: Final = {
    # name in the line: where a machine keeps it, top-level modules of the distribution
    "driver": ("driver", ()),
    "torch": ("torch", ("torch",)),
    "triton": ("triton", ("triton",)),
    "tirx": ("apache-tvm-tirx", ("tvm", "tvm_tirx")),
}
"""Versions that `environment` states. A row's `source` leaves them out, so that a machine with
another torch than the one that measured can still tell whether what is in git has changed."""

_SURROUNDING: Final = frozenset(
    module for _, modules in IN_ENVIRONMENT.values() for module in modules
)


def problem(case: Case, read: Read) -> str:
    """Digest of what is computed: when it changes, the number means something else.

    The tensors that the case uses (their names seed their contents), their initialisers with the
    definitions these reach, what is restored between calls, and the parameters and axes that tensors or
    arguments depend on. Not the oracle, tolerances, grid, launch options or kernel source. Names of
    `[derive]` count by their text, since their value may be another one on another device.
    """
    workload = case.workload
    derive = dict(workload.derive)
    values = {**dict(workload.params), **dict(case.values)}
    names = _entering_names(case)
    return _short(
        {
            "seed": workload.seed,
            "values": {
                name: codec.dump(value)
                for name, value in values.items()
                if name in names and name not in derive
            },
            "derive": {name: _written(derive[name]) for name in names if name in derive},
            "tensors": {tensor.name: _tensor(case, tensor, read) for tensor in case.tensors},
            "inits": sorted(
                (_function(case, function, read) for function in case.inits), key=_canonical
            ),
            "world_size": case.world_size,
            "prepare": None if case.prepare is None else _function(case, case.prepare, read),
        }
    )


def protocol(case: Case, timer: TimerName, placements: int, rounds: int) -> str:
    """Digest of how a time is taken: timer, L2, regime, budgets, rounds, placements.

    Args:
        case: whose `[timer]` table names L2 policy, regime and budgets.
        timer: the timer that ran, after defaults; `wall` flushes nothing: its L2 policy is `warm`.
        placements: how many placement seeds it was measured on.
        rounds: how often on each.
    """
    choice = case.workload.timer
    return _short(
        {
            "version": PROTOCOL_VERSION,
            "timer": timer,
            "l2": "warm" if timer == "wall" else choice.l2,
            "regime": choice.regime,
            "budgets": [choice.warmup, choice.repeat, choice.cudagraph_rep, choice.cooldown_s],
            "rounds": rounds,
            "placements": placements,
        }
    )


def source(
    case: Case,
    implementation: str,
    read: Read,
    version: Callable[[str], str | None] | None = None,
) -> str:
    """Digest of what an implementation is written as: files, arguments, launch options.

    A file target counts with every file beside it that it imports; a dotted target by its name and the
    installed version of its package, torch and Triton excepted (`IN_ENVIRONMENT`).

    Args:
        case: the case; targets are relative to the folder of its workload.
        implementation: the name of one of `case.implementations`.
        read: reads a file by its path relative to the project's root.
        version: version of the distribution that holds a top-level module; `installed_version` if
            not given.
    """
    of_module = version or installed_version
    bound = next(item for item in case.implementations if item.name == implementation)

    def target(name: str, include: tuple[str, ...]) -> Json:
        file, colon, _ = name.rpartition(":")
        if colon:
            folders = [_path(case, folder) for folder in include]
            return _relative(case, closure.files(_path(case, file), read, folders))
        module = name.partition(".")[0]
        return None if module in _SURROUNDING else of_module(module)

    def step(launch: BoundLaunch | BoundFunction) -> Json:
        data = _object(launch)
        include = dict(getattr(launch, "options", ())).get("include", ())
        return {**_without(data, "path"), "closure": target(launch.target, include)}

    context = bound.context
    return _short(
        {
            "steps": [step(launch) for launch in bound.steps],
            "context": None if context is None else step(context),
            "returns": list(bound.returns),
        }
    )


def environment(machine: Machine) -> str:
    """What surrounds the code, in a line: `driver 580.159 · torch 2.11.0 · triton 3.6.0`.

    Local parts of a version (`+cu128`) are kept: they name another build.
    """
    known = {**dict(machine.facts), **dict(machine.versions)}
    return " · ".join(
        f"{name} {known[key]}" for name, (key, _) in IN_ENVIRONMENT.items() if key in known
    )


def reader(root: str | Path) -> Read:
    """Read files below `root`, each once; `None` for what is not there or lies outside of it."""
    base = Path(root).resolve()

    @cache
    def read(path: str) -> bytes | None:
        file = (base / path).resolve()
        if not file.is_relative_to(base) or not file.is_file():
            return None
        return file.read_bytes()

    return read


@cache
def installed_version(module: str) -> str | None:
    """Version of the installed distribution that holds a top-level module; `None` without one."""
    import importlib.metadata  # 20 ms that `check` and `list` need not pay

    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        # Slower, as it reads the metadata of everything installed: for modules named otherwise.
        distributions = sorted(set(importlib.metadata.packages_distributions().get(module, ())))
        versions = [f"{name} {importlib.metadata.version(name)}" for name in distributions]
        return ", ".join(versions) or None


# --- Parts ----------------------------------------------------------------------------------------


def _tensor(case: Case, tensor: BoundTensor, read: Read) -> Json:
    """A tensor without its place in the file; data that is read from a file counts by its contents."""
    data = _without(_object(tensor), "name", "path")
    if tensor.init is not None and tensor.init.kind == "file":
        parameters = dict(tensor.init.parameters)
        contents = read(_path(case, str(parameters.get("path", ""))))
        data["contents"] = None if contents is None else hashlib.sha256(contents).hexdigest()
    return data


def _function(case: Case, function: BoundFunction, read: Read) -> Json:
    file, colon, name = function.target.rpartition(":")
    reached = closure.function(_path(case, file), name, read) if colon else {}
    return {**_without(_object(function), "path"), "closure": _relative(case, reached)}


def _path(case: Case, name: str) -> str:
    folder = case.workload.source.folder
    return f"{folder}/{name}" if folder else name


def _relative(case: Case, texts: dict[str, str]) -> Json:
    """Texts by path seen from the workload's folder: a project that moves stays what it is."""
    prefix = _path(case, "")
    return {path.removeprefix(prefix): text for path, text in texts.items()}


def _object(value: object) -> dict[str, Json]:
    data = codec.dump(value)
    assert isinstance(data, dict)  # noqa: S101 - a dataclass is always an object
    return data


def _without(data: dict[str, Json], *keys: str) -> dict[str, Json]:
    return {key: value for key, value in data.items() if key not in keys}


# --- Names that enter -----------------------------------------------------------------------------


def _entering_names(case: Case) -> frozenset[str]:
    """Names that tensors, initialisers or arguments of any call depend on, through `[derive]` too.

    A name that is only in a grid, a launch option, a condition or a tolerance does not enter.
    """
    workload = case.workload
    derive = dict(workload.derive)
    waiting = list(_names_in(list(_computed(workload, {t.name for t in case.tensors}))))
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += list(_names_in(derive[name])) if name in derive else []
    return frozenset(found)


def _computed(workload: Workload, tensors: set[str]) -> Iterator[object]:
    yield from (tensor for tensor in workload.tensors if tensor.name in tensors)
    yield from (function.args for function in workload.inits)
    if workload.check.oracle is not None:
        yield workload.check.oracle.args
    if workload.ranks is not None:
        yield workload.ranks
    for implementation in (*workload.kernels, *workload.references):
        yield from _arguments(implementation)


def _arguments(implementation: Implementation) -> Iterator[object]:
    yield from (launch.args for launch in implementation.steps)
    if implementation.context is not None:
        yield implementation.context.args


def _names_in(value: object) -> Iterator[str]:
    """Every name in the expressions that a value of the model holds."""
    if isinstance(value, Expression):
        yield from _names_of(value.text)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _names_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _names_in(getattr(value, field.name))


@lru_cache(maxsize=4096)  # all cases of a workload have the same expressions
def _names_of(text: str) -> tuple[str, ...]:
    tree = ast.parse(text.strip(), mode="eval")
    return tuple(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


# --- Canonical forms ------------------------------------------------------------------------------


def _written(argument: object) -> Json:
    """An argument as written, without regard to blanks between the words of an expression."""
    if isinstance(argument, Expression):
        return _spaced(argument.text)
    if isinstance(argument, tuple):
        return [_written(item) for item in argument]
    return codec.dump(argument)


@lru_cache(maxsize=4096)
def _spaced(text: str) -> str:
    tokens = tokenize.generate_tokens(io.StringIO(text.strip()).readline)
    return " ".join(token.string for token in tokens if token.string.strip())


def _canonical(value: Json) -> str:
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def _short(value: Json) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:LENGTH]
