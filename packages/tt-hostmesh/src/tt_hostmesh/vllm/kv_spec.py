"""A model's layers as vLLM plans their caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, SlidingWindowSpec

if TYPE_CHECKING:
    from vllm.config import VllmConfig

SLIDING = "sliding_attention"


def layer_specs(vllm_config: VllmConfig) -> dict[str, KVCacheSpec]:
    """One specification a layer, by the checkpoint's `layer_types`: sliding window or full attention."""
    model = vllm_config.model_config
    config: Any = model.hf_text_config
    common: dict[str, Any] = {
        "block_size": vllm_config.cache_config.block_size,
        "num_kv_heads": model.get_total_num_kv_heads(),
        "head_size": model.get_head_size(),
        "dtype": model.dtype,
    }
    return {
        f"model.layers.{i}.self_attn": (
            SlidingWindowSpec(sliding_window=config.sliding_window, **common)
            if kind == SLIDING
            else FullAttentionSpec(**common)
        )
        for i, kind in enumerate(config.layer_types)
    }
