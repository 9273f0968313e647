"""Our own sources: which files to read, what their names stand for, and the classes that they define."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from surface.known import Foreign, Known, Ours, OwnClass


@dataclass(frozen=True, slots=True)
class Source:
    """One file of ours. ``module``: its dotted name; ``names``: what its imports and classes stand for."""

    path: str
    module: str
    tree: ast.Module
    names: dict[str, Known]


def adapter_files(root: Path) -> list[Path]:
    """The files that may import vLLM: the adapters, and the meta-package."""
    return sorted([*root.glob("packages/*/src/*/vllm/**/*.py"), *root.glob("src/vllm_tt_plugin/**/*.py")])


def all_files(root: Path) -> list[Path]:
    return sorted([*root.glob("packages/*/src/**/*.py"), *root.glob("src/**/*.py")])


def module_name(path: Path) -> str:
    """``packages/x/src/tt_x/vllm/a.py`` -> ``tt_x.vllm.a``."""
    parts = path.with_suffix("").parts
    inside = parts[len(parts) - parts[::-1].index("src") :]
    return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)


def imports(tree: ast.AST, module: str, *, package: bool = False) -> Iterator[tuple[str, str, int]]:
    """(local name, ``module:Name``, line) of every ``from ... import``, wherever in the file it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parents = module.split(".") if package else module.split(".")[:-1]
                kept = parents[: len(parents) - node.level + 1]
                origin = ".".join([*kept, *([origin] if origin else [])])
            for alias in node.names:
                yield alias.asname or alias.name, f"{origin}:{alias.name}", node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], f"{alias.name}:", node.lineno


def in_vllm(path: str) -> bool:
    return path.partition(":")[0].partition(".")[0] == "vllm"


def read(root: Path, files: list[Path]) -> list[Source]:
    """Parses the files; a name that another file of ours defines is known by where it is defined."""
    sources = [
        Source(str(path.relative_to(root)), module_name(path), ast.parse(path.read_text(encoding="utf-8")), {})
        for path in files
    ]
    for source in sources:
        package = source.path.endswith("__init__.py")
        for local, path, _ in imports(source.tree, source.module, package=package):
            if in_vllm(path):
                source.names[local] = Foreign(path)
            elif path.partition(".")[0].partition(":")[0] not in sys.stdlib_module_names:
                source.names[local] = Ours(path)
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                source.names[node.name] = Ours(f"{source.module}:{node.name}")
    return sources


def classes_of(sources: list[Source]) -> dict[str, OwnClass]:
    """Every top-level class of ours, with its bases; attributes are filled in by the reader of the methods."""
    found: dict[str, OwnClass] = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                named = [source.names.get(base.id) for base in node.bases if isinstance(base, ast.Name)]
                name = f"{source.module}:{node.name}"
                found[name] = OwnClass(name, tuple(base for base in named if base is not None))
    return found
