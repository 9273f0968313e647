"""Warm-up: compile everything, then capture the traces, in the order that models need."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tt_worker.adapter import ModelAdapter
from tt_worker.methods import optional_method

logger = logging.getLogger("vllm.tt.warmup")


@dataclass(frozen=True, slots=True)
class WarmupPlan:
    """sample_prefill, sample_decode: whether that call may sample on the device; pages: width of a page table."""

    sample_prefill: bool
    sample_decode: bool
    pages: int


def warm_up(adapter: ModelAdapter, plan: WarmupPlan) -> float:
    """Compile prefill and decode without traces, then capture prefill's and decode's. Returns seconds.

    The order matters: captured the other way round, prefill's capture corrupts the decode trace. Live requests must
                       not exist:
    warm-up writes to block 0 and slot 0. Source: tt-metal contract 1.1 and 1.4.
    """
    model = adapter.model
    steps: list[tuple[str, Callable[[], None]]] = [
        ("compile prefill", lambda: _prefill(adapter, plan, trace=False)),
        ("compile decode", lambda: _decode(adapter, plan, trace=False)),
    ]
    if adapter.trace.prefill:
        steps.append(("capture prefill", lambda: _prefill(adapter, plan, trace=True)))
    if adapter.trace.decode:
        steps.append(("capture decode", lambda: _decode(adapter, plan, trace=True)))
    start = time.perf_counter()
    for number, (name, run) in enumerate(steps, 1):
        if number == 3 and hasattr(model, "already_warmed_up_prefill"):
            # The model skips a second prefill warm-up unless told that the first does not count.
            model.already_warmed_up_prefill = False
        begun = time.perf_counter()
        run()
        logger.info("[%d/%d] %s, batch %d: %.1f s", number, len(steps), name, adapter.rows, time.perf_counter() - begun)
    return time.perf_counter() - start


def _prefill(adapter: ModelAdapter, plan: WarmupPlan, *, trace: bool) -> None:
    method = optional_method(adapter.model, "warmup_model_prefill", "1.4")
    if method is not None:
        method({"kv_cache": adapter.kv_cache, "enable_trace": trace, "can_sample_on_device": plan.sample_prefill})


def _decode(adapter: ModelAdapter, plan: WarmupPlan, *, trace: bool) -> None:
    method = optional_method(adapter.model, "warmup_model_decode", "1.4")
    if method is not None:
        keywords: dict[str, Any] = {
            "kv_cache": adapter.kv_cache,
            "enable_trace": trace,
            "max_batch_size": adapter.rows,
            "num_blocks": plan.pages,
            "can_sample_on_device": plan.sample_decode,
        }
        method(keywords)
