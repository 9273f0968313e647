"""What a package's present sources break for the users of its last release, and which of it was reviewed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import griffe
import tomllib

from release.history import sources_at
from release.workspace import Package

WAIVERS = Path("tools") / "release" / "waivers.toml"
PRIVATE = (".vllm.", ".cli.")
"""Parts without promises: adapters follow vLLM, and the command line has its own page."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """A breaking change that was looked at. ``since``: the tag that it breaks; ``change``: as `breaking` spells it."""

    since: str
    change: str
    reason: str


def read_waivers(root: Path) -> list[Waiver]:
    """Raises ValueError for an entry that lacks a field or gives no reason."""
    path = root / WAIVERS
    document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    entries: list[dict[str, str]] = document.get("waiver", [])
    for entry in entries:
        if set(entry) != {"since", "change", "reason"} or not all(str(value).strip() for value in entry.values()):
            raise ValueError(f"{WAIVERS}: a waiver has since, change and reason, none empty; this one is {entry}")
    return [Waiver(**entry) for entry in entries]


def breaking(package: Package, tag: str) -> list[str]:
    """Each breaking change since the tag, as ``tt_x.module.name: what``. Nothing is imported."""
    with tempfile.TemporaryDirectory() as folder:
        before = _load(package.module, sources_at(package, tag, Path(folder)))
        now = _load(package.module, (package.root / package.sources).parent)
        found = [_spelled(breakage) for breakage in griffe.find_breaking_changes(before, now)]
    return sorted({change for change in found if not any(part in f"{change.split(':')[0]}." for part in PRIVATE)})


def interface_problems(package: Package, tag: str, changes: Iterable[str], waivers: Iterable[Waiver]) -> list[str]:
    """Breaking changes without a waiver, waivers without a change, and a version that does not tell of a break."""
    waived = {waiver.change for waiver in waivers if waiver.since == tag}
    changes = list(changes)
    found = [f"{change} (not in {WAIVERS.as_posix()})" for change in changes if change not in waived]
    found += [f"{WAIVERS.as_posix()} waives what does not happen: {each}" for each in sorted(waived - set(changes))]
    if changes and series(package.version) == series(tag.rpartition("-v")[2]):
        number = "first" if len(series(package.version)) == 1 else "second"
        found.append(f"{package.version} is of the series of {tag}, which it breaks: raise the {number} number")
    return found


def series(version: str) -> tuple[int, ...]:
    """The numbers that stay while nothing breaks: the first, and before 1.0 the first two."""
    major, minor, _ = (int(number) for number in version.split("."))
    return (major,) if major else (0, minor)


def _load(module: str, folder: Path) -> griffe.Object | griffe.Alias:
    return griffe.load(module, search_paths=[str(folder)], allow_inspection=False, resolve_aliases=True)


def _spelled(breakage: griffe.Breakage) -> str:
    path = breakage.obj.canonical_path
    what = f"{breakage.kind.value[0].lower()}{breakage.kind.value[1:]}"
    name = getattr(breakage.old_value, "name", None) or getattr(breakage.new_value, "name", None)
    return f"{path}: {what}" + (f" ({name})" if name and "arameter" in what else "")
