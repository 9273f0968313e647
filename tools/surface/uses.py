"""Every use that our sources make of vLLM: imports, overrides, attributes, keywords. Derived, never listed by hand."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from surface.expressions import Reader
from surface.known import bases_in_vllm
from surface.sources import Source, adapter_files, all_files, classes_of, imports, in_vllm, read

MODULE_STRING = re.compile(r"vllm(\.[a-z_0-9]+)+")
VARIABLE_STRING = re.compile(r"VLLM_[A-Z0-9_]+")
NOT_MODULES = re.compile(r"vllm\.(tt\b.*|platform_plugins|general_plugins)")
"""Our loggers, and the entry-point groups: names that only look like modules."""
OWN_VARIABLES = {"VLLM_TARGET_DEVICE", "VLLM_VERSION_OVERRIDE"}
"""Read when vLLM is built, by its setup.py, which is not part of the package."""


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """One use. ``how``: import, fields, abstract, override, attribute, write, keyword, module, variable, or

    ``name``:     an attribute of ours on a subclass of vLLM's, which vLLM may one day give a meaning
    ``optional``: asked for with ``hasattr`` or a default, so a release may lack it
    ``choice``:   one of several names for the same thing, of which a release has one
    """

    symbol: str
    how: str
    file: str
    line: int


def derive(root: Path) -> list[Use]:
    """All uses in a source tree, sorted, without repetition."""
    sources = read(root, adapter_files(root))
    reader = Reader(classes_of(sources))
    # Twice without taking notes: what an attribute is may be known from a file that comes later.
    for _ in range(2):
        for source in sources:
            reader.read(source)
    reader.found.clear()
    for source in sources:
        reader.read(source)
    uses = {Use(*each) for each in reader.found}
    for source in sources:
        uses |= _imported(source) | _subclassed(source, reader)
    return sorted(uses | _strings(root))


def _imported(source: Source) -> set[Use]:
    package = source.path.endswith("__init__.py")
    # Inside `try`, and inside a function of a _compat.py, where a question has been asked before.
    doors = (ast.Try, ast.FunctionDef) if source.path.endswith("/_compat.py") else (ast.Try,)
    tried = {
        each.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, doors)
        for each in ast.walk(node)
        if isinstance(each, ast.ImportFrom)
    }
    return {
        Use(path, "optional" if line in tried else "import", source.path, line)
        for _, path, line in imports(source.tree, source.module, package=package)
        if in_vllm(path)
    }


def _subclassed(source: Source, reader: Reader) -> set[Use]:
    """Of a class of ours that is one of vLLM's too: what it overrides, and names it must not meet by accident."""
    uses: set[Use] = set()
    for node in source.tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        own = f"{source.module}:{node.name}"
        defined = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        held = reader.classes[own].attributes
        for base in bases_in_vllm(own, reader.classes):
            uses.add(Use(f"{base}.__abstract__", "abstract", source.path, node.lineno))
            uses |= {Use(f"{base}.{each.name}", "override", source.path, each.lineno) for each in defined}
            methods = {each.name for each in defined}
            uses |= {Use(f"{base}.{name}", "name", source.path, node.lineno) for name in held if name not in methods}
        if any(isinstance(each, ast.Name) and each.id == "dataclass" for each in node.decorator_list):
            for base in bases_in_vllm(own, reader.classes):
                uses.add(Use(f"{base}.__fields__", "fields", source.path, node.lineno))
    return uses


def _strings(root: Path) -> set[Use]:
    """Modules and environment variables of vLLM that are named in strings."""
    uses: set[Use] = set()
    for path in all_files(root):
        file = str(path.relative_to(root))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        places = {id(each) for node in ast.walk(tree) if isinstance(node, ast.Tuple) for each in node.elts}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            text = node.value
            if MODULE_STRING.fullmatch(text) and not NOT_MODULES.fullmatch(text):
                # One of several places in a tuple: which of them a release has is found out.
                uses.add(Use(f"{text}:", "choice" if id(node) in places else "module", file, node.lineno))
            elif VARIABLE_STRING.fullmatch(text) and text not in OWN_VARIABLES:
                uses.add(Use(f"vllm.envs:{text}", "variable", file, node.lineno))
    return uses
