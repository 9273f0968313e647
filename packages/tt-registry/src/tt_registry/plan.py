"""What has to be in a model registry, as a list of entries. Whoever owns the registry carries it out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .lookup import known
from .resolution import Resolution, Runtime


@dataclass(frozen=True, slots=True)
class Entry:
    """One name to register.

    force:   replace what is there. Only an override does, and only under the prefixed name, which is the one that
             serves. vLLM reads a checkpoint's kind from its own class under the bare name, before the prefix is put on:
             a class in its place that lacks vLLM's interfaces would make it refuse the checkpoint
    message: log line once the entry was made; empty = nothing to say
    """

    name: str
    target: str
    force: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Entries in order, and the folders that must stand at the end of `sys.path` so that they can be imported."""

    entries: tuple[Entry, ...]
    search_path: tuple[str, ...]


def registration_plan(
    *,
    environ: Mapping[str, str] = os.environ,
    runtime: Runtime = "ttnn",
    register_test_models: bool = False,
) -> Plan:
    """Every name of every served architecture.

    Raises:
        OverrideError: `TT_MODEL_CLASS_OVERRIDES` cannot be read.
    """
    resolutions = known(environ=environ, runtime=runtime, register_test_models=register_test_models)
    entries = [entry for resolution in resolutions for entry in _entries(resolution)]
    folders = dict.fromkeys(folder for resolution in resolutions for folder in resolution.search_path)
    return Plan(tuple(entries), tuple(folders))


def _entries(resolution: Resolution) -> list[Entry]:
    names = [resolution.tt_architecture]
    if resolution.also_bare:
        names.append(resolution.architecture)
    first, *others = names
    return [
        Entry(first, resolution.target, resolution.source == "override", _message(resolution)),
        *(Entry(name, resolution.target) for name in others),
    ]


def _message(resolution: Resolution) -> str:
    """The two lines that operators look for in a server's log."""
    if resolution.source == "override":
        return f"Applied TT_MODEL_CLASS_OVERRIDES: {resolution.tt_architecture} -> {resolution.target}"
    if resolution.source == "bundle":
        return f"Registered TT model {resolution.tt_architecture} -> {resolution.target} (from {resolution.origin})"
    return ""
