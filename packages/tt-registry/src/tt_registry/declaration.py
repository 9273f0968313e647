"""What a model class declares, read from its source text. Nothing is imported, so neither ttnn nor torch is needed.

Only what the source says outright is known: a literal is a value, anything else (a ttnn enum, an environment variable)
is decided when the class is imported, and is listed as such. `Capabilities.of` on the imported class is the last word.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .capabilities import Capabilities, CapabilityError, attribute_names
from .location import Location, Missing, locate

_DICT = "model_capabilities"
_HOOK = "get_model_capabilities"
_MAX_STEPS = 32
"""Modules and base classes followed for one class. Only a cycle in the sources comes near it."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """Capabilities as the source has them.

    capabilities: None when the source cannot be read, or declares something of a wrong type
    undecided:    keys and attributes whose value is only known after import; they have their defaults in `capabilities`
    note:         why capabilities is None, or what could not be followed; empty when everything was read
    """

    capabilities: Capabilities | None
    undecided: tuple[str, ...] = ()
    note: str = ""


def read_declaration(module: str, class_name: str, *, behind: Sequence[str] = ()) -> Declaration:
    """Read `module:class_name` and, for what it does not say itself, its base classes in their order.

    behind: folders searched after `sys.path`, as in `locate`.
    """
    reader = _Reader(tuple(behind))
    try:
        found = reader.find(module, class_name)
        if found is None:
            return Declaration(None, note=f"{module} does not define or import a class {class_name}")
        reader.read(*found)
        capabilities = Capabilities.parse(
            reader.keys, owner=f"{found[0].name}.{class_name}", attributes=reader.attributes
        )
    except (_Unreadable, CapabilityError) as error:
        return Declaration(None, note=str(error))
    return Declaration(capabilities, tuple(reader.undecided), "; ".join(reader.notes))


class _Unreadable(Exception):
    """The source of a module cannot be had."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A module as text. `package` is what its relative imports start from."""

    name: str
    package: str
    tree: ast.Module


class _Reader:
    """Collects what one class and its bases declare. What is said first wins, as in Python's lookup."""

    def __init__(self, behind: tuple[str, ...]) -> None:
        self.behind = behind
        self.keys: dict[str, object] = {}
        self.attributes: dict[str, object] = {}
        self.undecided: list[str] = []
        self.notes: list[str] = []
        self._decided: set[str] = set()
        self._steps = 0

    def find(self, module: str, class_name: str) -> tuple[_Source, ast.ClassDef] | None:
        """The class statement, followed through `from x import y` if the module only passes the class on."""
        self._step(f"{module}:{class_name}")
        source = self._source(module)
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                return source, node
        for node in source.tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == class_name:
                        return self.find(_imported_module(source, node), alias.name)
        return None

    def read(self, source: _Source, node: ast.ClassDef) -> None:
        for name, value in _statements(node):
            if name in self._decided:
                continue
            if name in (_DICT, _HOOK):
                self._decided.update((_DICT, _HOOK))
                self._read_keys(value)
            elif name in attribute_names():
                self._decided.add(name)
                self._keep(self.attributes, name, value)
        for base in node.bases:
            if self._decided >= {_DICT, *attribute_names()}:
                return
            self._read_base(source, base)

    def _read_base(self, source: _Source, base: ast.expr) -> None:
        if not isinstance(base, ast.Name):
            self.notes.append(f"base class {ast.unparse(base)} was not followed")
            return
        try:
            found = self.find(source.name, base.id)
        except _Unreadable as error:
            self.notes.append(f"base class {base.id} was not followed: {error}")
            return
        if found is not None:
            self.read(*found)

    def _read_keys(self, value: ast.expr | None) -> None:
        if not isinstance(value, ast.Dict):
            self.undecided.append(_HOOK if value is None else _DICT)
            return
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._keep(self.keys, key.value, item)
            else:
                self.undecided.append(f"**{ast.unparse(item)}" if key is None else ast.unparse(key))

    def _keep(self, where: dict[str, object], name: str, value: ast.expr | None) -> None:
        try:
            where[name] = ast.literal_eval(value) if value is not None else None
        except (ValueError, TypeError, RecursionError):  # whatever literal_eval has against an expression
            self.undecided.append(name)

    def _source(self, module: str) -> _Source:
        found = locate(module, behind=self.behind)
        if isinstance(found, Missing):
            raise _Unreadable(str(found))
        if found.file is None or not found.file.endswith(".py"):
            raise _Unreadable(f"{module} has no Python source ({found})")
        return _Source(module, _package(found), _parse(found.file))

    def _step(self, what: str) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _Unreadable(f"gave up at {what} after {_MAX_STEPS} modules and classes")


def _statements(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """(name, value) of the class body's assignments, and (name, None) of its functions; the last of a name wins."""
    last: dict[str, ast.expr | None] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            last.update((t.id, statement.value) for t in statement.targets if isinstance(t, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            last[statement.target.id] = statement.value
        elif isinstance(statement, ast.FunctionDef):
            last[statement.name] = None
    # The hook outranks the dict of the same class.
    yield from sorted(last.items(), key=lambda item: item[0] != _HOOK)


def _imported_module(source: _Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), source.package)
    except ImportError as error:
        raise _Unreadable(f"{source.name}: {error}") from None


def _package(found: Location) -> str:
    return found.module if found.folders else found.module.rpartition(".")[0]


def _parse(file: str) -> ast.Module:
    try:
        return _parse_version(file, os.stat(file).st_mtime_ns)
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise _Unreadable(f"cannot read {file}: {error}") from None


@functools.lru_cache(maxsize=64)
def _parse_version(file: str, mtime_ns: int) -> ast.Module:
    with open(file, "rb") as stream:
        return ast.parse(stream.read(), filename=file)
