"""What a vLLM release says about each symbol that we use: signatures and types, no code."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surface.lookup import OUTSIDE, Left, Release
from surface.uses import Use

Value = str | list[str] | dict[str, str] | None
"""A signature; the names of abstract methods; fields with their types; None: the release does not have it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The surface of one release."""

    vllm: str
    symbols: Mapping[str, Value]


def take(vllm: str, release: Release, uses: Iterable[Use]) -> Snapshot:
    """The value of every symbol; that of a method that we override ends in a hash of its body."""
    overridden = {use.symbol for use in uses if use.how == "override"}
    values = {
        symbol: value_of(release, symbol, symbol in overridden) for symbol in sorted({use.symbol for use in uses})
    }
    return Snapshot(vllm, values)


def value_of(release: Release, symbol: str, with_body: bool = False) -> Value:
    owner, _, last = symbol.rpartition(".")
    try:
        if owner.endswith(".__mentions__"):
            function = release.follow(owner.removesuffix(".__mentions__"))
            named = function is not None and re.search(rf"\b{last}\b", release.text_of(function))
            return "mentioned" if named else None
        if last in ("__fields__", "__abstract__"):
            kind = release.follow(owner)
            if kind is None:
                return None
            return fields(release, kind) if last == "__fields__" else abstract_methods(release, kind)
        found = release.follow(symbol)
        if found is None and ":" in owner:
            found = _other_names(release, owner, last)
    except Left:
        return OUTSIDE
    if found is None or isinstance(found, str):
        return found
    text = described(found)
    return f"{text} #{body_hash(found, release)}" if with_body and found.is_function else text


def _other_names(release: Release, owner: str, last: str) -> Any | None:
    """A parameter of ``__init__`` that is no field; an attribute that another method than ``__init__`` sets."""
    kind = release.follow(owner)
    if kind is not None and not kind.is_class and not kind.is_module:
        kind = release.kind_of(kind)
    if kind is None or not kind.is_class:
        return None
    for each in release.ancestors(kind):
        if re.search(rf"\bself\.{last}(: [^=]+)? = ", release.text_of(each)):
            return "attribute"
    init = release.member(kind, "__init__")
    if init is not None and init.is_function and last in init.parameters:
        return f"parameter: {init.parameters[last].annotation}"
    return None


def described(found: Any) -> str:
    if found.is_module:
        return "module"
    if found.is_class:
        return f"class({', '.join(map(str, found.bases))})"
    if found.is_function:
        return signature(found)
    word = "property" if "property" in found.labels else "attribute"
    return f"{word}: {found.annotation}" if found.annotation is not None else word


def signature(found: Any) -> str:
    """``(self, request: Request, *, flag: bool = False) -> None``, in one line."""
    parts: list[str] = []
    star = False
    for each in found.parameters:
        kind = each.kind.name
        if kind == "keyword_only" and not star:
            parts.append("*")
        star = star or kind in ("var_positional", "keyword_only")
        stars = {"var_positional": "*", "var_keyword": "**"}.get(kind, "")
        note = f": {each.annotation}" if each.annotation is not None else ""
        default = f" = {each.default}" if each.default is not None and not stars else ""
        parts.append(f"{stars}{each.name}{note}{default}")
    returns = f" -> {found.returns}" if found.returns is not None else ""
    return " ".join(f"({', '.join(parts)}){returns}".split())


def body_hash(found: Any, release: Release) -> str:
    """Changes when the statements of a function do; comments, the docstring and the layout do not count."""
    tree = ast.parse(textwrap.dedent(release.text_of(found))).body[0]
    body = tree.body if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef) else [tree]
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        body = body[1:]
    return hashlib.sha256("".join(map(ast.dump, body)).encode()).hexdigest()[:8]


def fields(release: Release, kind: Any) -> dict[str, str]:
    """The annotated attributes of a dataclass and its bases, which are its fields."""
    found: dict[str, str] = {}
    for each in reversed(list(release.ancestors(kind))):
        for name, member in each.members.items():
            if member.is_attribute and "instance-attribute" in member.labels and member.annotation is not None:
                found[name] = str(member.annotation)
    return found


def abstract_methods(release: Release, kind: Any) -> list[str]:
    """What a subclass must define."""
    seen: dict[str, bool] = {}
    for each in release.ancestors(kind):
        for name, member in each.members.items():
            if not member.is_alias and (member.is_function or member.is_attribute):
                decorators = [str(d.value) for d in getattr(member, "decorators", ())]
                seen.setdefault(name, any(d.endswith("abstractmethod") for d in decorators))
    return sorted(name for name, is_abstract in seen.items() if is_abstract)


def dump(snapshot: Snapshot) -> str:
    """JSON with a line a symbol, so that a change is a line of a diff."""
    lines = [f" {json.dumps(symbol)}: {json.dumps(value)}" for symbol, value in sorted(snapshot.symbols.items())]
    return f'{{"vllm": {json.dumps(snapshot.vllm)}, "symbols": {{\n' + ",\n".join(lines) + "\n}}\n"


def load(path: Path) -> Snapshot:
    document = json.loads(path.read_text(encoding="utf-8"))
    return Snapshot(document["vllm"], document["symbols"])
