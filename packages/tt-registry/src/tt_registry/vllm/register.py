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
        if present is None or (entry.force and present != entry.target):
            ModelRegistry.register_model(entry.name, entry.target)
            if entry.message:
                logger.info("%s", entry.message)
        elif present != entry.target:
            continue
        ours.append(entry.name)
    return tuple(ours)
