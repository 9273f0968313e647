"""Follows a path into the sources of a vLLM release with griffe, module by module, without importing anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import griffe

from surface.releases import module_file

OUTSIDE = "outside"
"""The value of a path that leaves vLLM: through a type of another package, or one that is not written down."""

STEP = re.compile(r"\.(\w+)|(\[\])|(\(\))")


class Left(Exception):
    """The path leaves vLLM."""


class Release:
    """One release. Objects are griffe's; modules are parsed when they are first needed."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self._modules: dict[str, Any] = {}

    def module(self, name: str) -> Any | None:
        """griffe's module, or None."""
        if name not in self._modules:
            file = module_file(name, self.files)
            parent = None
            if file is not None and "." in name:
                parent = self.module(name.rpartition(".")[0])
            self._modules[name] = (
                None
                if file is None
                else griffe.visit(name.rpartition(".")[2], filepath=Path(file), code=self.files[file], parent=parent)
            )
        return self._modules[name]

    def was_read(self, file: str) -> bool:
        """Whether a path so far led into this file."""
        return any(module is not None and str(module.filepath) == file for module in self._modules.values())

    def named(self, dotted: str, depth: int = 0) -> Any | None:
        """The object of a full name such as ``vllm.config.VllmConfig``, through re-exports. None: there is none.

        Raises Left when the name is not vLLM's.
        """
        if dotted.partition(".")[0] != "vllm" or depth > 20:
            raise Left
        parts = dotted.split(".")
        for cut in range(len(parts), 0, -1):
            module = self.module(".".join(parts[:cut]))
            if module is not None:
                break
        else:
            return None
        found: Any = module
        for name in parts[cut:]:
            found = self.member(found, name, depth)
            if found is None:
                return None
        return found

    def member(self, owner: Any, name: str, depth: int = 0) -> Any | None:
        """A member of a module, or of a class or its bases."""
        if owner.is_module:
            if name in owner.members:
                return self._behind(owner.members[name], depth)
            return self.module(f"{owner.path}.{name}") or self._lazy(owner, name, depth)
        for each in self.ancestors(owner):
            if name in each.members:
                return self._behind(each.members[name], depth)
        # What is called on a torch module is its `forward`.
        return self.member(owner, "forward", depth) if name == "__call__" else None

    def _behind(self, found: Any, depth: int) -> Any | None:
        return self.named(found.target_path, depth + 1) if found.is_alias else found

    def _lazy(self, module: Any, name: str, depth: int) -> Any | None:
        """A name that a module's ``__getattr__`` finds in a table ``name: "module:name"``."""
        match = re.search(rf'"{name}":\s*"([\w.]*):{name}"', self.files[str(module.filepath)])
        if match is None:
            return None
        origin = f"{module.path}{match[1]}" if match[1].startswith(".") else match[1]
        return self.named(f"{origin}.{name}", depth + 1)

    def ancestors(self, owner: Any, seen: tuple[str, ...] = ()) -> Iterator[Any]:
        """The class, then its bases that are vLLM's, depth first."""
        yield owner
        for base in owner.bases if owner.is_class else ():
            try:
                found = self.named(str(getattr(base, "canonical_path", base)))
            except Left:
                continue
            if found is not None and found.is_class and found.path not in seen:
                yield from self.ancestors(found, (*seen, owner.path))

    def text_of(self, found: Any) -> str:
        """The source of a class or function."""
        return "\n".join(self.files[str(found.filepath)].splitlines()[found.lineno - 1 : found.endlineno])

    def follow(self, path: str) -> Any | None:
        """The griffe object at the end of a path; None when a name on the way is not there. Raises Left."""
        module, _, rest = path.partition(":")
        found: Any = self.module(module)
        if found is None:
            return None
        name = re.split(r"[.\[(]", rest, maxsplit=1)[0]
        if name:
            found = self.member(found, name)
        for attribute, item, call in STEP.findall(rest[len(name) :]):
            if found is None:
                return None
            if call and found.is_function:
                found = self.type_of(found.returns, found)
            elif not call:
                owner = found if found.is_class or found.is_module else self.kind_of(found)
                found = self.item(found, owner) if item else self.member(owner, attribute)
        return found

    def kind_of(self, found: Any) -> Any:
        """The class of what an attribute, a property or a module's variable holds. Raises Left."""
        if found.is_function:
            raise Left
        note = found.annotation
        if note is None and found.value is not None:
            note = self._assigned(found)
        return self.type_of(note, found)

    def _assigned(self, found: Any) -> Any:
        """The annotation of what is assigned: a parameter of the method, a class that is called, another attribute."""
        value = found.value
        if isinstance(value, griffe.ExprCall):
            return value.function
        if isinstance(value, griffe.ExprName):
            return self._parameter(found, str(value)) or value
        if isinstance(value, griffe.ExprAttribute):
            first, *rest = map(str, value.values)
            holder: Any = self.type_of(self._parameter(found, first), found) if first != "self" else found.parent
            for name in rest:
                member = self.member(holder, name) if holder is not None else None
                if member is None:
                    raise Left
                holder = self.kind_of(member) if not member.is_class else member
            return holder
        raise Left

    def _parameter(self, found: Any, name: str) -> Any:
        init = found.parent.members.get("__init__") if found.parent is not None else None
        if init is not None and init.is_function and name in init.parameters:
            return init.parameters[name].annotation
        return None

    def type_of(self, note: Any, where: Any) -> Any:
        """The vLLM class in an annotation. Raises Left when there is none."""
        if getattr(note, "is_class", False):
            return note
        for name in names_in(note):
            found = self._resolve(name, where)
            if found is not None and found.is_class:
                return found
            if found is not None and found.is_function:
                return self.type_of(found.returns, found)
            if found is not None and found.is_attribute and found.value is not None and found is not where:
                return self.type_of(found.value, found)
        raise Left

    def _resolve(self, name: Any, where: Any) -> Any | None:
        try:
            return self.named(str(name.canonical_path))
        except Left:
            return None

    def item(self, found: Any, owner: Any) -> Any:
        """What a container holds: the last class of its annotation, or what its ``__iter__`` gives."""
        note = getattr(found, "annotation", None) if not found.is_class else None
        names = list(names_in(note))
        for name in reversed(names[1:] if len(names) > 1 else []):
            kind = self._resolve(name, found)
            if kind is not None and kind.is_class:
                return kind
        iterate = self.member(owner, "__iter__")
        if iterate is None:
            raise Left
        return self.type_of(iterate.returns, iterate)


def names_in(note: Any) -> Iterator[Any]:
    """The names of an annotation, outermost first."""
    if isinstance(note, griffe.ExprName | griffe.ExprAttribute):
        yield note
    elif isinstance(note, griffe.Expr):
        for child in note.iterate(flat=False):
            yield from names_in(child)
