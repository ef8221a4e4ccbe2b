"""Several revisions of one project in a process: what a file imports comes from its own tree.

Ordinarily a kernel file finds its siblings because its folder joins `sys.path`, and they are known by their
plain names: a second revision would be given the siblings of the first. Of a tree that is *isolated* no
folder joins `sys.path` and no file is known by its plain name. An import statement in such a file, also one
inside a function that runs much later, is answered with the module of that tree, which stands in
`sys.modules` under a name that carries a digest of its path. So does what a revision imports of the
project's own packages, which are installed from the working tree and would be those of neither revision.

Not reached: extension modules, which can be loaded once, and names that registries of other packages keep
for the whole process (`torch.library`).
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_ROOTS: list[Root] = []
_import = builtins.__import__
_import_module = importlib.import_module


@dataclass(slots=True, kw_only=True)
class Root:
    """One tree, and what its files call by which name.

    Attributes:
        folder: the tree.
        project: the working tree, which packages may be installed from.
        folders: where plain names are looked for, the folder of the last kernel file first.
        names: the module in `sys.modules` for each plain name; `None` for one that is not of the tree.
    """

    folder: Path
    project: Path
    folders: list[Path] = field(default_factory=list)
    names: dict[str, str | None] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """How the paths of its files begin."""
        return f"{self.folder}{os.sep}"

    def look_in(self, folder: Path) -> None:
        """Look for plain names in this folder first, as if it joined `sys.path`."""
        if folder not in self.folders:
            self.folders.insert(0, folder)
            self.names = {name: own for name, own in self.names.items() if own is not None}

    def own(self, name: str) -> str | None:
        """The dotted name under which the tree's own module is imported; `None` if it has none."""
        top, dot, rest = name.partition(".")
        if top not in self.names:
            # What the process has imported wins, as it would over any folder of `sys.path`.
            spec = None if top in sys.modules else self._find(top)
            self.names[top] = None if spec is None else self._load(top, spec)
        own = self.names[top]
        return None if own is None else f"{own}{dot}{rest}"

    def _find(self, top: str) -> ModuleSpec | None:
        spec = PathFinder.find_spec(top, [str(folder) for folder in self.folders])
        if spec is not None:
            return spec
        try:
            installed = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return None
        if installed is None:
            return None
        places = list(installed.submodule_search_locations or ()) or [installed.origin or ""]
        place = Path(places[0])
        if not place.is_relative_to(self.project) or place.is_relative_to(self.folder):
            return None
        here = self.folder / place.relative_to(self.project)
        return PathFinder.find_spec(top, [str(here.parent)])

    def _load(self, top: str, spec: ModuleSpec) -> str:
        """Import a module of the tree; its name is known before it runs, for those that import it back."""
        origin = spec.origin
        if origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES)):
            raise ImportError(
                f"{top} is an extension module, of which one process cannot hold two revisions"
            )
        locations = spec.submodule_search_locations
        place = origin or next(iter(locations or ()))
        name = name_of(Path(place).parent if locations and origin else Path(place), Path(place))
        if name in sys.modules:
            return name
        self.names[top] = name
        try:
            _run(name, origin, locations)
        except BaseException:
            del self.names[top]
            raise
        return name


def name_of(path: Path, digested: Path | None = None) -> str:
    """The name of a file's module: its stem, and a digest of where it lies."""
    digest = hashlib.sha256(str(digested or path).encode()).hexdigest()[:8]
    return f"{path.stem}_{digest}"


def isolate(folder: Path, project: Path) -> None:
    """Have the files of a tree import each other, and no other tree's; for the life of the process.

    Args:
        folder: the tree.
        project: the project's folder, whose packages the tree has as well.
    """
    root = Root(folder=folder.resolve(), project=project.resolve())
    if all(known.folder != root.folder for known in _ROOTS):
        _ROOTS.append(root)
    builtins.__import__ = _imported
    importlib.import_module = _imported_module


def root_of(path: Path | str) -> Root | None:
    """The isolated tree that a file or folder is in."""
    text = f"{path}{os.sep}"
    return next((root for root in _ROOTS if text.startswith(root.prefix)), None)


def name_for(root: Root | None, name: str) -> str:
    """The name by which a file of that tree gets the module that it calls `name`."""
    return (root.own(name) if root is not None else None) or name


def _run(name: str, origin: str | None, locations: Sequence[str] | None) -> None:
    """Import a module under this name; a folder without a file of its own is a namespace."""
    if origin is None:
        module = ModuleType(name)
        module.__path__ = list(locations or ())
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
        return
    spec = importlib.util.spec_from_file_location(
        name, origin, submodule_search_locations=None if locations is None else list(locations)
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{Path(origin).name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise


def _owner(scope: Mapping[str, Any] | None) -> Root | None:
    """The tree of the file that imports."""
    file = scope.get("__file__") if scope is not None else None
    return root_of(file) if isinstance(file, str) else None


def _imported(
    name: str,
    globals: Mapping[str, Any] | None = None,  # noqa: A002 - the names of `__import__`
    locals: Mapping[str, Any] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """`__import__`, with the plain names of isolated trees."""
    if level == 0 and (root := _owner(globals)) is not None:
        name = root.own(name) or name
    return _import(name, globals, locals, fromlist or (), level)


def _imported_module(name: str, package: str | None = None) -> ModuleType:
    """`importlib.import_module`, likewise: its caller is the file that imports."""
    if not name.startswith("."):
        root = _owner(sys._getframe(1).f_globals)  # noqa: SLF001 - no other way to know who asks
        if root is not None:
            name = root.own(name) or name
    return _import_module(name, package)
