"""vLLM's KV cache specification and configuration, to and from plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec


@dataclass(frozen=True, slots=True)
class CacheGeometry:
    """num_blocks of one lane's cache; num_kv_heads of the whole model (no tensor parallelism in vLLM's sense)."""

    num_blocks: int
    num_kv_heads: int
    block_size: int
    head_size: int
    num_layers: int
    dtype: torch.dtype


def default_kv_cache_spec(vllm_config: VllmConfig) -> dict[str, KVCacheSpec]:
    """One layer stands for all: every layer of the model uses the same page table. Source: tt-metal contract 1.3."""
    model = vllm_config.model_config
    return {
        "model.layers.0": FullAttentionSpec(
            block_size=vllm_config.cache_config.block_size,
            num_kv_heads=model.get_total_num_kv_heads(),
            head_size=model.get_head_size(),
            dtype=model.dtype,
        )
    }


def cache_geometry(vllm_config: VllmConfig, config: KVCacheConfig) -> CacheGeometry:
    """The numbers that the model's allocation hook is told."""
    if len(config.kv_cache_groups) != 1:
        raise NotImplementedError(f"{len(config.kv_cache_groups)} KV cache groups: only uniform attention is served")
    spec = config.kv_cache_groups[0].kv_cache_spec
    if not isinstance(spec, AttentionSpec):
        raise NotImplementedError(f"a KV cache of kind {type(spec).__name__} is not served")
    model = vllm_config.model_config
    return CacheGeometry(
        num_blocks=config.num_blocks,
        num_kv_heads=spec.num_kv_heads,
        block_size=spec.block_size,
        head_size=spec.head_size,
        num_layers=model.get_total_num_hidden_layers(),
        dtype=spec.dtype,
    )
