"""What an expression in our sources is known to be, in terms of vLLM: a path that starts at an import.

A path is ``module:Name`` and steps: ``.attribute``, ``[]`` for an item of a container, ``()`` for what a call returns.
``vllm.config:VllmConfig.scheduler_config.max_num_seqs``. Nothing of vLLM is read here.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CONTAINERS = {"list", "List", "Sequence", "Iterable", "Iterator", "set", "frozenset", "deque", "Collection"}
MAPPINGS = {"dict", "Dict", "Mapping", "MutableMapping", "defaultdict"}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A thing of vLLM, or an instance of it: attributes are looked up alike."""

    path: str
    instance: bool = False

    @property
    def is_class(self) -> bool:
        name = self.path.rpartition(":")[2]
        return not self.instance and "." not in name and name.lstrip("_")[:1].isupper()


@dataclass(frozen=True, slots=True)
class Ours:
    """A class of ours, or an instance of it: ``module:Name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Many:
    """A container with items of one kind."""

    item: Known


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple, item by item."""

    items: tuple[Known | None, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """Something that is called, by what it returns."""

    result: Known | None


Known = Foreign | Ours | Many | Several | Method


@dataclass(slots=True)
class OwnClass:
    """A class of ours: its bases as written in terms of Known, and what its attributes and methods are."""

    name: str
    bases: tuple[Known, ...]
    attributes: dict[str, Known | None] = field(default_factory=dict[str, "Known | None"])


Classes = Mapping[str, OwnClass]
Names = Mapping[str, Known]


def annotation(node: ast.expr | None, names: Names) -> Known | None:
    """What an annotation says, as far as it concerns vLLM or our own classes."""
    match node:
        case ast.Constant(value=str(text)):
            return annotation(ast.parse(text, mode="eval").body, names)
        case ast.Name(id=name):
            known = names.get(name)
            return Foreign(known.path, instance=True) if isinstance(known, Foreign) else known
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return annotation(left, names) or annotation(right, names)
        case ast.Subscript(value=ast.Name(id=outer), slice=inner):
            arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return _generic(outer, arguments, names)
        case _:
            return None


def _generic(outer: str, arguments: Sequence[ast.expr], names: Names) -> Known | None:
    if outer in CONTAINERS or outer in MAPPINGS:
        item = annotation(arguments[-1], names)
        return Many(item) if item is not None else None
    if outer == "tuple":
        return Several(tuple(annotation(each, names) for each in arguments))
    if outer in ("type", "Type", "Optional", "ClassVar"):
        return annotation(arguments[0], names)
    if outer == "Callable":
        return Method(annotation(arguments[-1], names))
    return None


def item_of(known: Known | None) -> Known | None:
    """What iterating gives."""
    match known:
        case Many(item=item):
            return item
        case Foreign(path=path):
            return Foreign(f"{path}[]")
        case _:
            return None


def bases_in_vllm(name: str, classes: Classes) -> list[str]:
    """Paths of the vLLM classes that a class of ours comes from, through other classes of ours."""
    found: list[str] = []
    for base in classes[name].bases if name in classes else ():
        match base:
            case Foreign(path=path):
                found.append(path)
            case Ours(name=other):
                found += bases_in_vllm(other, classes)
            case _:
                pass
    return found


def own_attribute(name: str, attribute: str, classes: Classes) -> tuple[bool, Known | None]:
    """Whether a class of ours, or one of its bases that is ours, has the attribute, and what it is."""
    own = classes.get(name)
    if own is None:
        return False, None
    if attribute in own.attributes:
        return True, own.attributes[attribute]
    for base in own.bases:
        if isinstance(base, Ours):
            has, known = own_attribute(base.name, attribute, classes)
            if has:
                return True, known
    return False, None
