"""Carries out a registration plan on vLLM's ModelRegistry."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from vllm.model_executor.models.registry import ModelRegistry

from tt_registry.loading import extend_path
from tt_registry.plan import registration_plan
from tt_registry.resolution import Runtime

from ._compat import registered_target

# What this process registered here, by name: an entry that is not in it is somebody else's.
_OURS: dict[str, str] = {}

logger = logging.getLogger("vllm.tt.registry")


def register_models(
    environ: Mapping[str, str] = os.environ,
    runtime: Runtime = "ttnn",
    register_test_models: bool = False,
) -> tuple[str, ...]:
    """Register every served architecture lazily, as "module:Class". Repeating it changes nothing.

    Returns the TT-prefixed and bare names that vLLM now has from us, whether registered by this call or by one before.

    Raises:
        OverrideError: `TT_MODEL_CLASS_OVERRIDES` cannot be read.
    """
    plan = registration_plan(environ=environ, runtime=runtime, register_test_models=register_test_models)
    extend_path(plan.search_path)
    ours: list[str] = []
    for entry in plan.entries:
        present = registered_target(entry.name)
        stale = present is not None and present == _OURS.get(entry.name)
        if present is None or ((entry.force or stale) and present != entry.target):
            ModelRegistry.register_model(entry.name, entry.target)
            if entry.message:
                logger.info("%s", entry.message)
        elif present != entry.target:
            continue
        _OURS[entry.name] = entry.target
        ours.append(entry.name)
    return tuple(ours)


def foreign_target(name: str) -> str | None:
    """`module:Class` that somebody else registered in vLLM under this name; None when nobody did."""
    present = registered_target(name)
    return present if present and present != _OURS.get(name) else None
