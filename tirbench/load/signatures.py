"""What a Python file defines and how its functions are called, read from its syntax tree.

Nothing is imported: a workload must be checkable on a machine that cannot run it, and checking must not
run code.
"""

from __future__ import annotations

import ast
import sys
import threading
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tirbench.load.bounds import read_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_TRANSPARENT: Final = frozenset(
    {"cache", "compile", "contextmanager", "inference_mode", "jit", "lru_cache", "no_grad"}
    | {"autotune", "heuristics", "prim_func", "override", "staticmethod"}
)
"""Decorators that leave a function's parameters as they are written."""


_SAFE_BYTES: Final = 100_000
_DEEP_STACK: Final = 1 << 27
"""Bytes; Python 3.10 takes eighty for each of the half million links that fit into a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters of a function.

    `positional` may be given by position, `by_name` by name; `required` must be given. `open_positional`
    and `open_named` say whether there is a `*args` and a `**kwargs`.
    """

    positional: tuple[str, ...]
    by_name: frozenset[str]
    required: tuple[str, ...]
    open_positional: bool = False
    open_named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One name of a module.

    `signature` is `None` where it cannot be read: an imported name, a class, an unknown decorator.
    `tuned` are the parameters that `@triton.autotune` or `@triton.heuristics` set, by decorator;
    `tuned_unreadably` says that they set more than could be read.
    """

    line: int
    signature: Signature | None = None
    decorators: tuple[str, ...] = ()
    tuned: tuple[tuple[str, str], ...] = ()
    tuned_unreadably: bool = False
    function: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """The names a file defines; `open_ended` where it imports `*`; `error` where it cannot be read."""

    definitions: dict[str, Definition]
    open_ended: bool = False
    error: str = ""


def read_module(path: Path) -> Module:
    """The names that a Python file defines at its top level."""
    try:
        facts = path.stat()
    except OSError as error:
        return Module(definitions={}, error=error.strerror or str(error))
    return _read(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=4096)
def _read(path: Path, _mtime_ns: int, _size: int) -> Module:
    source, unread = read_source(path)
    if unread:
        return Module(definitions={}, error=unread)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a kernel file's warnings are for who runs it
            tree = _tree(source)
    except SyntaxError as error:
        return Module(definitions={}, error=f"line {error.lineno}: {error.msg}")
    except (RuntimeError, MemoryError):  # too deep for the stack, or for a larger one
        return Module(definitions={}, error="nested too deeply")
    except ValueError as error:
        return Module(definitions={}, error=str(error))
    return _module(tree)


def _module(tree: ast.Module) -> Module:
    """What the statements of a module define."""
    definitions: dict[str, Definition] = {}
    values: dict[str, ast.expr] = {}
    open_ended = False
    for node in _top_level(tree.body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                definitions[node.name] = _definition(node, values)
            case ast.ClassDef():
                definitions[node.name] = Definition(line=node.lineno)
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    open_ended = open_ended or alias.name == "*"
                    name = alias.asname or alias.name.partition(".")[0]
                    definitions[name] = Definition(line=node.lineno)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in _assigned(targets):
                    definitions[name] = Definition(line=node.lineno)
                    if node.value is not None:
                        values[name] = node.value
            case _:
                pass
    return Module(definitions=definitions, open_ended=open_ended)


def _tree(source: bytes) -> ast.Module:
    """The syntax tree of a module.

    Python 3.10 follows `a + a + …` down its stack without a limit and would end where that does: a large
    file is read on a stack that holds the longest chain of all.
    """
    if sys.version_info >= (3, 11) or len(source) < _SAFE_BYTES:
        return ast.parse(source)
    from concurrent.futures import ThreadPoolExecutor

    before = threading.stack_size(_DEEP_STACK)
    try:
        with ThreadPoolExecutor(1) as reader:
            return reader.submit(ast.parse, source).result()
    finally:
        threading.stack_size(before)


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those below `if`, `try` and `with` among them."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            yield from _top_level(node.body)
            yield from _top_level(getattr(node, "orelse", ()))
            yield from _top_level(getattr(node, "finalbody", ()))
            for handler in getattr(node, "handlers", ()):
                yield from _top_level(handler.body)


def _assigned(targets: Iterable[ast.expr]) -> Iterator[str]:
    """The names that an assignment binds."""
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Tuple | ast.List):
            yield from _assigned(target.elts)


def _definition(
    node: ast.FunctionDef | ast.AsyncFunctionDef, values: dict[str, ast.expr]
) -> Definition:
    """A function with what its decorators say."""
    decorators = tuple(_last_name(item) for item in node.decorator_list)
    tuned: list[tuple[str, str]] = []
    unreadable = False
    for item, name in zip(node.decorator_list, decorators, strict=True):
        if name in ("autotune", "heuristics") and isinstance(item, ast.Call):
            names = _tuned_names(item, name, values)
            unreadable = unreadable or names is None
            tuned += [(parameter, name) for parameter in names or ()]
    return Definition(
        line=node.lineno,
        signature=_signature(node.args) if set(decorators) <= _TRANSPARENT else None,
        decorators=decorators,
        tuned=tuple(tuned),
        tuned_unreadably=unreadable,
        function=True,
    )


def _signature(args: ast.arguments) -> Signature:
    """The parameters of a function."""
    positional = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    required = positional[: len(positional) - len(args.defaults)]
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if default is None:
            required.append(arg.arg)
    return Signature(
        positional=tuple(positional),
        by_name=frozenset(arg.arg for arg in (*args.args, *args.kwonlyargs)),
        required=tuple(required),
        open_positional=args.vararg is not None,
        open_named=args.kwarg is not None,
    )


def _tuned_names(call: ast.Call, decorator: str, values: dict[str, ast.expr]) -> list[str] | None:
    """The parameters that a tuner sets; `None` where its table is computed out of sight."""
    key = "configs" if decorator == "autotune" else "values"
    table = call.args[0] if call.args else None
    table = next((keyword.value for keyword in call.keywords if keyword.arg == key), table)
    if isinstance(table, ast.Name):
        table = values.get(table.id)
    if table is None:
        return None
    if decorator == "heuristics":
        return _keys(table)
    found: list[str] = []
    configs = [n for n in ast.walk(table) if isinstance(n, ast.Call) and _last_name(n) == "Config"]
    for config in configs:
        constants = config.args[0] if config.args else None
        constants = next((k.value for k in config.keywords if k.arg == "kwargs"), constants)
        keys = None if constants is None else _keys(constants)
        if keys is None:
            return None
        found += keys
    return list(dict.fromkeys(found)) if configs else None


def _keys(table: ast.expr) -> list[str] | None:
    """The keys of a dict display or of `dict(…)`; `None` where they cannot all be read."""
    if isinstance(table, ast.Dict):
        keys = [k.value for k in table.keys if isinstance(k, ast.Constant)]
        return [str(key) for key in keys] if len(keys) == len(table.keys) else None
    if isinstance(table, ast.Call) and _last_name(table) == "dict" and not table.args:
        names = [keyword.arg for keyword in table.keywords]
        return [name for name in names if name] if None not in names else None
    return None


def _last_name(node: ast.expr) -> str:
    """`autotune` of `@triton.autotune(…)`."""
    node = node.func if isinstance(node, ast.Call) else node
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
