"""``python -m vllm_tt_plugin.cli.points.patched``: loads vLLM and the plugin, and lists what of vLLM's was replaced."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, cast

OURS = ("tt_platform", "tt_registry", "tt_scheduler", "tt_sampling", "tt_worker", "tt_hostmesh", "vllm_tt_plugin")
ADAPTERS = ("platform", "scheduler", "lane_scheduler", "worker")


def is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] in OURS


def origin(value: Any) -> str | None:
    """The module where a function or class was written, behind class methods, properties and wrappers."""
    # By type: vLLM has stand-ins for missing packages, which raise whatever they are asked for.
    if isinstance(value, staticmethod | classmethod):
        value = cast("Any", value).__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, FunctionType):
        return str(value.__globals__.get("__name__"))
    return value.__module__ if isinstance(value, type) else None


def attributes(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Name and value of everything that a module and its own classes define."""
    for name, value in list(vars(module).items()):
        yield f"{module.__name__}.{name}", value
        if isinstance(value, type) and value.__module__ == module.__name__:
            for inner, held in list(vars(value).items()):
                yield f"{module.__name__}.{name}.{inner}", held


def patches(prefix: str = "vllm") -> tuple[list[str], int]:
    """Attributes of loaded modules of a package whose code is ours, and how many there are in all."""
    found: list[str] = []
    looked_at = 0
    for name, module in sorted(sys.modules.items()):
        if name == prefix or name.startswith(f"{prefix}."):
            for path, value in attributes(module):
                looked_at += 1
                if is_ours(origin(value)):
                    found.append(path)
    return found, looked_at


def main() -> None:
    plugins = importlib.import_module("vllm.plugins")
    plugins.load_general_plugins()
    for name in ADAPTERS:
        importlib.import_module(f"vllm_tt_plugin.{name}")
    found, looked_at = patches()
    print(json.dumps({"patched": found, "looked_at": looked_at}))


if __name__ == "__main__":
    main()
