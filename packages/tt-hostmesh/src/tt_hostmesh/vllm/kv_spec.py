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


def shaped_specs(vllm_config: VllmConfig) -> dict[str, KVCacheSpec]:
    """One specification a layer that keeps all its blocks, by the checkpoint's heads and head size of that layer."""
    model = vllm_config.model_config
    config: Any = model.hf_text_config
    specs: dict[str, KVCacheSpec] = {}
    for i in range(len(config.layer_types)):
        own = config.per_layer_config[i]
        specs[f"model.layers.{i}.self_attn"] = FullAttentionSpec(
            block_size=vllm_config.cache_config.block_size,
            num_kv_heads=own.num_key_value_heads,
            head_size=own.head_dim,
            dtype=model.dtype,
        )
    return specs
