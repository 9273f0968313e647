"""What differs between vLLM releases for the sampler, each probe with the release that changed it."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.sample.thinking_budget_state import maybe_create_thinking_budget_state_holder


def thinking_budget(vllm_config: VllmConfig, capacity: int, is_pin_memory: bool) -> Any:
    """vLLM's holder of thinking budgets on the host, or None. 0.26 asks about pinned memory."""
    create: Any = maybe_create_thinking_budget_state_holder
    pinned = (is_pin_memory,) if "is_pin_memory" in inspect.signature(create).parameters else ()
    return create(vllm_config.reasoning_config, capacity, 0, torch.device("cpu"), *pinned)
