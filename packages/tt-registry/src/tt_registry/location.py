"""Where a module would be imported from, found without importing anything.

`importlib.util.find_spec("a.b.c")` imports `a` and `a.b`. For tt-metal that means running package code, and with it
perhaps ttnn, only to ask whether a file is there. The search here walks the specs instead.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec


@dataclass(frozen=True, slots=True)
class Location:
    """A module that was found.

    file:    its source file; None for a namespace package or a module without one
    folders: where its submodules are looked for; empty when it is not a package
    """

    module: str
    file: str | None
    folders: tuple[str, ...]

    def __str__(self) -> str:
        return self.file or ", ".join(self.folders) or self.module


@dataclass(frozen=True, slots=True)
class Missing:
    """The first part of a dotted name that was not found, and where it was looked for."""

    module: str
    part: str
    searched: tuple[str, ...]

    def __str__(self) -> str:
        if "." not in self.part:
            return f"{'package' if '.' in self.module else 'module'} {self.part!r} is not on PYTHONPATH"
        return f"module {self.part!r} is not in {', '.join(self.searched) or self.part.rpartition('.')[0]}"


def locate(module: str, *, behind: Sequence[str] = ()) -> Location | Missing:
    """Find a module by its dotted name.

    behind: folders that are searched after everything on `sys.path`, as if they had been appended to it.
    """
    top, *rest = module.split(".")
    found = _locate_top(top, behind)
    for part in rest:
        if found is None or not found.folders:
            break
        parent, found = found, _locate_in(f"{found.module}.{part}", found.folders)
        if found is None:
            return Missing(module, f"{parent.module}.{part}", parent.folders)
    if found is None:
        return Missing(module, top, (*sys.path, *behind))
    if found.module != module:
        return Missing(module, ".".join(module.split(".")[: found.module.count(".") + 2]), (str(found),))
    return found


def locate_in(module: str, folder: str) -> Location | None:
    """Find a module by its dotted name in one folder alone, whatever else is on `sys.path`."""
    folders: tuple[str, ...] = (folder,)
    found: Location | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        found = _from_spec(name, _spec_from_folders(name, folders))
        if found is None:
            return None
        folders = found.folders
    return found


def _locate_top(name: str, behind: Sequence[str]) -> Location | None:
    found = _from_loaded(name) if name in sys.modules else _from_spec(name, importlib.util.find_spec(name))
    if found is None:
        return _from_spec(name, _spec_from_folders(name, behind))
    if found.file is None and found.folders and behind:  # a namespace package goes on in later folders
        more = _from_spec(name, _spec_from_folders(name, behind))
        if more is not None and more.file is None:
            return Location(name, None, (*found.folders, *more.folders))
    return found


def _locate_in(name: str, folders: Sequence[str]) -> Location | None:
    if name in sys.modules:
        return _from_loaded(name)
    for finder in sys.meta_path:
        if finder is importlib.machinery.PathFinder:
            # Not PathFinder itself: for a nested namespace package it demands that the parent is imported.
            spec = _spec_from_folders(name, folders)
        else:
            find = getattr(finder, "find_spec", None)
            spec = find(name, list(folders)) if find is not None else None
        if spec is not None:
            return _from_spec(name, spec)
    return None


def _spec_from_folders(name: str, folders: Iterable[str]) -> ModuleSpec | None:
    """What PathFinder does, entry by entry: the first real module wins, otherwise the namespace portions add up."""
    portions: list[str] = []
    for folder in folders:
        finder = pkgutil.get_importer(folder)
        spec = finder.find_spec(name) if finder is not None else None  # type: ignore[union-attr]
        if spec is None:
            continue
        if spec.loader is not None:
            return spec
        portions.extend(spec.submodule_search_locations or ())
    if not portions:
        return None
    namespace = ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _from_spec(name: str, spec: ModuleSpec | None) -> Location | None:
    if spec is None:
        return None
    folders = tuple(spec.submodule_search_locations or ())
    return Location(name, spec.origin if spec.has_location else None, folders)


def _from_loaded(name: str) -> Location | None:
    module = sys.modules[name]
    # None in sys.modules is Python's own mark for "import of this name is refused".
    if module is None:  # pyright: ignore[reportUnnecessaryComparison]
        return None
    return Location(name, getattr(module, "__file__", None), tuple(getattr(module, "__path__", ())))
