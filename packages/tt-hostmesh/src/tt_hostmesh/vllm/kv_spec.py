"""A model's layers as vLLM plans their caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, SlidingWindowSpec

from tt_hostmesh.layers.kept import Kept

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def layer_specs(vllm_config: VllmConfig, layers: Sequence[Kept]) -> dict[str, KVCacheSpec]:
    """One specification a layer, with a sliding window where its older blocks are given back."""
    return {f"model.layers.{i}.self_attn": _spec(vllm_config, kept) for i, kept in enumerate(layers)}


def _spec(vllm_config: VllmConfig, kept: Kept) -> KVCacheSpec:
    block_size, dtype = vllm_config.cache_config.block_size, vllm_config.model_config.dtype
    if kept.window is None:
        return FullAttentionSpec(block_size=block_size, num_kv_heads=kept.heads, head_size=kept.head_size, dtype=dtype)
    return SlidingWindowSpec(
        block_size=block_size,
        num_kv_heads=kept.heads,
        head_size=kept.head_size,
        dtype=dtype,
        sliding_window=kept.window,
    )
