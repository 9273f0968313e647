"""The registry as text: a table for a terminal, JSON for a program, Markdown for docs/registry.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import cast

from .architectures import BUILT_IN, TTT, Architecture, Variant
from .capabilities import Capabilities, describe
from .names import tt_name
from .resolution import Resolution


def as_table(resolutions: Sequence[Resolution]) -> str:
    """One line an architecture, columns aligned, with the reason below each target that is not importable."""
    rows = [("ARCHITECTURE", "SOURCE", "DP", "HERE", "TARGET")]
    rows += [(r.tt_architecture, r.source, r.data_parallel, _yes(r.importable), r.target) for r in resolutions]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[4]]) for row in rows]
    reasons = dict.fromkeys(r.reason for r in resolutions if not r.importable)
    return "\n".join([*lines, *(f"\nnot importable: {reason}" for reason in reasons)])


def as_details(resolution: Resolution) -> str:
    """Everything known of one architecture, a line each."""
    lines = [f"{key}: {_plain(value)}" for key, value in as_json(resolution).items() if key != "capabilities"]
    capabilities = resolution.declaration.capabilities
    if capabilities is not None:
        lines += ["declares:", *(f"  {key}: {_plain(value)}" for key, value in capabilities.declared.items())]
    return "\n".join(lines)


def as_json(resolution: Resolution) -> dict[str, object]:
    """Plain values of one resolution. `capabilities` is null when the class's source cannot be read."""
    said = resolution.declaration
    return {
        "tt_architecture": resolution.tt_architecture,
        **asdict(resolution),
        "capabilities": None if said.capabilities is None else _capabilities(said.capabilities),
        "capabilities_undecided": said.undecided,
        "capabilities_note": said.note,
    }


def _capabilities(capabilities: Capabilities) -> dict[str, object]:
    """The typed values. What was read from source text is made of plain literals, so JSON can hold it."""
    return {name: _json(getattr(capabilities, name)) for name in capabilities.field_names()}


def _json(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(map(str, cast("frozenset[object]", value)))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    return value


def architectures_markdown() -> str:
    """The built-in table, a row each implementation."""
    head = ("Architecture", "Chosen by", "Class", "Data parallel", "Media", "MoE", "Notes")
    rows = [_row(architecture, variant) for architecture in BUILT_IN for variant in architecture.variants]
    return _markdown(head, rows)


def _row(architecture: Architecture, variant: Variant) -> tuple[str, ...]:
    names = f"`{tt_name(architecture.name)}`" + (f", `{architecture.name}`" if architecture.also_bare else "")
    chosen = ""
    if architecture.variable:
        default = " (default)" if variant is architecture.variants[0] else ""
        chosen = f"`{architecture.variable}={variant.name}`{default}"
    elif architecture.test_only:
        chosen = "`register_test_models`"
    elif architecture.permanent:
        chosen = "always"
    target = variant.target.replace(TTT, "models.*")
    notes = variant.notes or architecture.notes
    return (
        names,
        chosen,
        f"`{target}`",
        variant.data_parallel,
        _yes(architecture.multimodal),
        _yes(architecture.moe),
        notes,
    )


def capabilities_markdown() -> str:
    """Every capability with its type, default and meaning."""
    rows = [(f"`{key}`", allowed, f"`{default}`", meaning) for key, allowed, default, meaning in describe()]
    return _markdown(("Key or attribute", "Allowed", "Default", "Meaning"), rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "architectures": architectures_markdown,
    "capabilities": capabilities_markdown,
}
"""Generated parts of docs/registry.md, by the name in their markers."""


def update_blocks(text: str) -> str:
    """A document with every generated part brought up to date. The rest is untouched."""
    for name, render in BLOCKS.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        pattern = re.compile(re.escape(begin) + r"\n.*?" + re.escape(end), re.DOTALL)
        text = pattern.sub(lambda _: f"{begin}\n{render()}\n{end}", text)  # noqa: B023 (used at once)
    return text


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return _yes(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value))) or "-"
    return "-" if value is None or value == "" else str(value)
