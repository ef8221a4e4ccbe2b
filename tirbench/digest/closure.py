"""The source text that a target depends on, found by reading and never by importing.

Two closures. Of *files*: the file and every file beside it that it imports or includes; what a timed
implementation is digested by. Of a *function*: only the definitions that it reaches; what an
`[[init]]` is digested by, because its file usually holds the kernels too, and an edit of a kernel must
not turn its own problem into another one.

Comments, docstrings, blank lines and trailing blanks are left out: they change nothing that runs.
What only running could tell (`getattr`, `globals()`) is not followed.
"""

from __future__ import annotations

import ast
import io
import posixpath
import re
import tokenize
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Read: TypeAlias = "Callable[[str], bytes | None]"
"""Contents of a file by its path relative to the project's root; `None` when there is none."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def files(path: str, read: Read, include: Sequence[str] = ()) -> dict[str, str]:
    """The text of a file and of all files beside it that it depends on, by path.

    A file that is missing has no entry; the digest of a target that does not exist is still defined.

    Args:
        path: of the file, relative to the project's root.
        read: reads a file by such a path.
        include: folders that `#include "…"` looks in after that of the file.
    """
    found: dict[str, str] = {}
    waiting = [path]
    while waiting:
        current = waiting.pop()
        text = _text(current, read)
        if current in found or text is None:
            continue
        module = _parsed(text) if current.endswith(".py") else None
        if module is None:
            found[current] = "\n".join(line.rstrip() for line in text.splitlines())
            folder = posixpath.dirname(current)
            waiting += [
                _join(place, name)
                for name in _INCLUDE.findall(text)
                for place in (folder, *include)
            ]
        else:
            found[current] = "\n".join(line for line in _bare_lines(text, module) if line)
            waiting += list(_imported_files(module, current, read))
    return found


def function(path: str, name: str, read: Read) -> dict[str, str]:
    """The text of the definitions that function `name` of a Python file reaches, by path.

    Falls back to whole files where the name is not defined at the top of the file.
    """
    reached = _Reached(read)
    reached.reach(path, name)
    texts = {
        file: "\n".join(reached.lines(file, sorted(places)))
        for file, places in reached.statements.items()
    }
    for file in sorted(reached.whole):
        texts.update(files(file, read))
    return texts


# --- Python files ---------------------------------------------------------------------------------


def _text(path: str, read: Read) -> str | None:
    data = read(path)
    return None if data is None else data.decode("utf-8", errors="replace").replace("\r\n", "\n")


@lru_cache(maxsize=512)  # every row of a workload reads the same few files
def _parsed(text: str) -> ast.Module | None:
    """The syntax tree of a file, shared between calls: nobody may change it."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):  # ValueError: a null byte, before Python 3.12
        return None


@lru_cache(maxsize=512)
def _bare_lines(text: str, module: ast.Module) -> list[str]:
    """The lines of a file without comments, docstrings and trailing blanks; emptied, not removed.

    Shared between calls, as the tree is.
    """
    lines = text.split("\n")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.start for token in tokens if token.type == tokenize.COMMENT]
    for row, column in comments:
        lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            _empty_docstring(node.body, lines)
    return [line.rstrip() for line in lines]


def _empty_docstring(body: list[ast.stmt], lines: list[str]) -> None:
    if not body or not _is_text(body[0]):
        return
    first, last = body[0].lineno, body[0].end_lineno or body[0].lineno
    before = lines[first - 1].encode()[: body[0].col_offset]  # columns of the tree are in bytes
    after = lines[last - 1].encode()[body[0].end_col_offset or 0 :]
    if not before.strip() and not after.strip():
        lines[first - 1 : last] = [""] * (last - first + 1)


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _join(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name))


def _module_file(dotted: str, folder: str, read: Read) -> str | None:
    """The file beside the importing one that a module name means; `None` for installed packages."""
    base = _join(folder, dotted.replace(".", "/")) if dotted else folder
    for candidate in (f"{base}.py", _join(base, "__init__.py")):
        if read(candidate) is not None:
            return candidate
    return None


def _folder_of(node: ast.ImportFrom, path: str) -> str:
    """Where a `from` import looks: the file's folder, which is importable, or a parent of it."""
    return _join(posixpath.dirname(path), "/".join([".."] * (node.level - 1)) or ".")


def _imported_files(module: ast.Module, path: str, read: Read) -> Iterator[str]:
    """The files beside `path` that it imports anywhere, also inside functions."""
    for node in _imports(module):
        folder = posixpath.dirname(path)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            folder = _folder_of(node, path)
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
        for name in names:
            parts = name.split(".")
            for length in range(1, len(parts) + 1):  # importing a.b runs a/__init__.py too
                file = _module_file(".".join(parts[:length]), folder, read)
                if file is not None:
                    yield file


@lru_cache(maxsize=512)
def _imports(module: ast.Module) -> tuple[ast.Import | ast.ImportFrom, ...]:
    return tuple(n for n in ast.walk(module) if isinstance(n, ast.Import | ast.ImportFrom))


# --- What a function reaches ----------------------------------------------------------------------


@dataclass(slots=True)
class _File:
    """One parsed file: its bare lines and its top-level statements by the names they bind."""

    lines: list[str]
    module: ast.Module
    bound: dict[str, list[int]]


@dataclass(slots=True)
class _Reached:
    """The top-level statements that are reached so far, by file, and the files taken whole."""

    read: Read
    statements: dict[str, set[int]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    _files: dict[str, _File | None] = field(default_factory=dict)

    def reach(self, path: str, name: str) -> None:
        """Add what `name` of the file at `path` needs."""
        waiting = [(path, name)]
        while waiting:
            file, wanted = waiting.pop()
            known = self._open(file)
            if known is None or wanted not in known.bound:
                self.whole.add(file)
                continue
            seen = self.statements.setdefault(file, set())
            # Statements of the module that bind nothing run at import: they may set up what is used.
            for place in [*known.bound[wanted], *known.bound[""]]:
                if place not in seen:
                    seen.add(place)
                    waiting += self._needs(file, known, known.module.body[place])

    def lines(self, path: str, places: list[int]) -> Iterator[str]:
        """The bare text of top-level statements of one file, in their order."""
        known = self._open(path)
        if known is None:
            return
        for place in places:
            statement = known.module.body[place]
            decorators = getattr(statement, "decorator_list", [])
            first = min([statement.lineno, *(item.lineno for item in decorators)])
            last = statement.end_lineno or statement.lineno
            yield from (line for line in known.lines[first - 1 : last] if line)

    def _open(self, path: str) -> _File | None:
        if path not in self._files:
            text = _text(path, self.read)
            module = None if text is None else _parsed(text)
            if text is None or module is None:
                self._files[path] = None
            else:
                self._files[path] = _File(_bare_lines(text, module), module, _bindings(module))
        return self._files[path]

    def _needs(self, path: str, known: _File, statement: ast.stmt) -> Iterator[tuple[str, str]]:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id in known.bound:
                yield path, node.id
            elif isinstance(node, ast.ImportFrom):
                yield from self._from_import(path, node)
            elif isinstance(node, ast.Import):
                single = ast.Module(body=[node], type_ignores=[])
                self.whole.update(_imported_files(single, path, self.read))

    def _from_import(self, path: str, node: ast.ImportFrom) -> Iterator[tuple[str, str]]:
        file = _module_file(node.module or "", _folder_of(node, path), self.read)
        for alias in node.names:
            opened = None if file is None else self._open(file)
            if file is not None and opened is not None and alias.name in opened.bound:
                yield file, alias.name
            else:  # a module, a star, or a name that only running could find
                single = ast.Module(body=[node], type_ignores=[])
                self.whole.update(_imported_files(single, path, self.read))


@lru_cache(maxsize=512)
def _bindings(module: ast.Module) -> dict[str, list[int]]:
    """Index of every top-level statement by the names it binds; `""` for those that bind none."""
    bound: dict[str, list[int]] = {"": []}
    for place, statement in enumerate(module.body):
        names = _bound_by(statement)
        if not names and not _is_text(statement) and not _is_main_guard(statement):
            names = {""}
        for name in names:
            bound.setdefault(name, []).append(place)
    return bound


def _bound_by(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                names.add("" if local in {"*", "annotations"} else local)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(
                part.id for item in targets for part in ast.walk(item) if isinstance(part, ast.Name)
            )
    return names


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test)
