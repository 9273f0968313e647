"""Layers as vLLM plans them: groups, shared buffers, layers that differ in shape, windows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from tt_worker.vllm.kv_spec import cache_layout, kv_cache_spec, sliding_window, with_margin

pytestmark = pytest.mark.vllm

COMMON: dict[str, Any] = {"block_size": 64, "num_kv_heads": 2, "head_size": 32, "dtype": torch.bfloat16}
FULL = FullAttentionSpec(**COMMON)
SLIDING = SlidingWindowSpec(sliding_window=512, **COMMON)


def name(layer: int) -> str:
    return f"model.layers.{layer}.self_attn"


def layout(*groups: KVCacheGroupSpec) -> Any:
    """cache_layout needs the configuration for layers that one stands for: not here."""
    unused: Any = None
    return cache_layout(unused, KVCacheConfig(num_blocks=9, kv_cache_tensors=[], kv_cache_groups=list(groups)))


def test_layers_of_different_groups_share_buffers() -> None:
    found = layout(KVCacheGroupSpec([name(0), name(2)], SLIDING), KVCacheGroupSpec([name(1), name(3)], FULL))
    assert [(layer.group, layer.buffer, layer.window) for layer in found.layers] == [
        (0, 0, 512), (1, 0, None), (0, 1, 512), (1, 1, None),
    ]  # fmt: skip


def test_layers_of_one_group_that_differ_in_shape_have_a_buffer_each() -> None:
    """One page table, as a class has it that sizes sliding and full layers differently and keeps every block."""
    wide = FullAttentionSpec(**{**COMMON, "num_kv_heads": 1, "head_size": 64})
    specs = {name(0): FULL, name(1): wide}
    group = KVCacheGroupSpec(list(specs), UniformTypeKVCacheSpecs(block_size=64, kv_cache_specs=specs))
    found = layout(group)
    assert [layer.shape(9, 1) for layer in found.layers] == [(9, 2, 64, 32), (9, 1, 64, 64)]
    assert [(layer.group, layer.buffer) for layer in found.layers] == [(0, 0), (0, 1)]


def test_a_layer_that_only_computes_with_a_window_keeps_its_blocks() -> None:
    """vLLM frees nothing of it, and layers without a window may stand in the same page table."""
    computed = FullAttentionSpec(**COMMON, sliding_window=512)
    found = layout(KVCacheGroupSpec([name(0), name(1)], computed))
    assert [layer.window for layer in found.layers] == [None, None]


def test_a_latent_layer_is_one_head() -> None:
    latent = MLAAttentionSpec(**{**COMMON, "num_kv_heads": 1, "head_size": 40})
    (layer, _) = layout(KVCacheGroupSpec([name(0), name(1)], latent)).layers
    assert layer.shape(9, 8) == (9, 1, 64, 40)


def test_W10_sliding_windows_keep_what_is_computed_again() -> None:
    """31 tokens more for tiles of 32; layers without a window stay as they are."""
    kept = with_margin({name(0): SLIDING, name(1): FULL}, 31)
    assert kept[name(0)] == SlidingWindowSpec(sliding_window=543, **COMMON)
    assert kept[name(1)] is FULL
    assert sliding_window({name(0): SLIDING, name(1): FULL}) == 512


def test_a_model_with_a_latent_cache_and_no_hook_has_one_head() -> None:
    """Its configuration counts the heads that the latent is unfolded into."""
    model = SimpleNamespace(
        use_mla=True, get_total_num_kv_heads=lambda: 128, get_head_size=lambda: 576, dtype=torch.bfloat16
    )
    config: Any = SimpleNamespace(model_config=model, cache_config=SimpleNamespace(block_size=64))
    (spec,) = kv_cache_spec(object, config).values()
    assert isinstance(spec, MLAAttentionSpec)
    assert (spec.num_kv_heads, spec.head_size) == (1, 576)
